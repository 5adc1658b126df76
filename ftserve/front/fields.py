"""The values in bodies of requests, each within its limit, and the objects that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictInt, Tag, model_validator
from pydantic_core import PydanticCustomError

from ftserve.front import limits
from ftserve.front.bodies import IDS, PARTS, ROWS, TEXT, TEXTS, UNKNOWN, UNSUPPORTED

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Name = Annotated[str, Field(max_length=limits.LONGEST_NAME)]
Text = Annotated[str, Field(max_length=limits.LONGEST_TEXT)]
Stop = Annotated[str, Field(min_length=1, max_length=limits.LONGEST_STOP)]
Length = Annotated[StrictInt, Field(ge=1, le=limits.LONGEST_ANSWER)]
# Zero tokens make sense where only the prompt is rated.
LengthOrNone = Annotated[StrictInt, Field(ge=0, le=limits.LONGEST_ANSWER)]
Token = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
# Every list ends with its first wrong element, and none is longer than some limit.
EndTokens = Annotated[list[Token], Field(fail_fast=True, max_length=limits.MAX_STOP_TOKENS)]
Row = Annotated[list[Token], Field(fail_fast=True, max_length=limits.MAX_TOKENS)]
Rows = Annotated[list[Row], Field(fail_fast=True, max_length=limits.MAX_INPUTS)]
Texts = Annotated[list[Text], Field(fail_fast=True, max_length=limits.MAX_INPUTS)]


def form(value: Any) -> str | None:
    """Return which of the alternatives of a text or texts a value is meant to be, by its first element."""
    if isinstance(value, str):
        return TEXT
    if not isinstance(value, list):
        return None
    first = value[0] if value else ""
    kinds: Mapping[type, str] = {str: TEXTS, list: ROWS, int: IDS, float: IDS, bool: IDS, dict: PARTS}
    return kinds.get(type(first))


Input = Annotated[
    Annotated[Text, Tag(TEXT)]
    | Annotated[Texts, Tag(TEXTS)]
    | Annotated[Row, Tag(IDS)]
    | Annotated[Rows, Tag(ROWS)],
    Discriminator(
        form,
        custom_error_type="form",
        custom_error_message=(
            "it must be a text, a list of texts, a list of token ids, or a list of such lists"
        ),
    ),
]
Stops = Annotated[
    Annotated[str, Field(max_length=limits.LONGEST_STOP), Tag(TEXT)]
    | Annotated[list[Stop], Field(fail_fast=True, max_length=limits.MAX_STOPS), Tag(TEXTS)],
    Discriminator(
        form,
        custom_error_type="form",
        custom_error_message=f"it must be a text, or a list of at most {limits.MAX_STOPS} texts",
    ),
]


class Body(BaseModel):
    """An object of a request: its first unknown name ends it, so that no list of them is made.

    `_nothing` are names of parameters that this service lacks, with the values that ask for nothing;
    `_ignored` are those that change no answer, whatever their value.
    """

    model_config = ConfigDict(extra="forbid")

    _nothing: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    _ignored: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _of_known_names(cls, body: Any) -> Any:
        """Leave out what asks for nothing; refuse by a reason what cannot be honoured."""
        if not isinstance(body, dict):
            return body
        known = {}
        for name, value in body.items():
            if value is None or name in cls._ignored:
                continue
            if name in cls.model_fields:
                known[name] = value
            elif name in cls._nothing:
                if not any(_same(value, harmless) for harmless in cls._nothing[name]):
                    raise PydanticCustomError(UNSUPPORTED, "not supported by this service", {"name": name})
            else:
                raise PydanticCustomError(UNKNOWN, "unknown argument", {"name": name})
        return known


def _same(sent: Any, value: Any) -> bool:
    """Return whether two values are one: 0 and 0.0 are, 0 and false are not."""
    return isinstance(sent, bool) is isinstance(value, bool) and bool(sent == value)
