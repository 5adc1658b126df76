"""Strict field types and the frozen base model of the configuration files.

Each type allows what can work where it is used: a name that becomes a part of a tag, a path that stays
inside a tree, a URL that git does not take for an option. YAML 1.1 reads `22.10` as the number 22.1, so a
version must be text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any
from urllib.parse import urlsplit

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic import GetPydanticSchema as CustomSchema
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function, str_schema

from ftbuild.host.redaction import redact
from ftbuild.sm import Sm

# Numbers that stand for any release where a name has a field.
_SOME_RELEASE = "22.12"


@dataclass(frozen=True)
class Shape:
    """The form of a text: a pattern for all of it, and a function that raises ValueError for other faults."""

    pattern: str
    what: str
    most: int = 200
    check: Callable[[str], object] = str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(
            self._checked, str_schema(strict=True, min_length=1, max_length=self.most)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}

    def _checked(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text, re.ASCII):
            raise ValueError(f"must be {self.what}, not {redact(text)!r}")
        self.check(text)
        return text


def fields(text: str, allowed: Collection[str]) -> set[str]:
    """Return the names in braces of a text; ValueError for one that is not allowed, or has a format."""
    found = set()
    try:
        for _, name, form, conversion in string.Formatter().parse(text):
            if name is None:
                continue
            if form or conversion or name not in allowed:
                raise ValueError(f"{{{name}}} is not filled in")
            found.add(name)
    except ValueError as wrong:
        known = ", ".join(f"{{{name}}}" for name in sorted(allowed))
        raise ValueError(f"{text!r}: {wrong}; allowed is {known}") from wrong
    return found


def _image(text: str) -> None:
    fields(text, {"release"})
    if not re.fullmatch(_REFERENCE, text.replace("{release}", _SOME_RELEASE), re.ASCII):
        raise ValueError(f"must be the name of an image, not {text!r}")


def _url(text: str) -> None:
    if "://" not in text:
        return
    try:
        _ = urlsplit(text).port
    except ValueError as wrong:
        raise ValueError(f"must be a URL, not {redact(text)!r}: {wrong}") from wrong


# github.com/distribution/reference; the host may have a port or be an IPv6 address.
_REFERENCE = (
    r"(?:(?:localhost|\[[0-9A-Fa-f:]+\]|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)(?::[0-9]{1,5})?/"
    r"|[A-Za-z0-9-]+:[0-9]{1,5}/)?"
    r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_PLAIN = r"[a-z0-9]+(?:[._-][a-z0-9]+)*"
_PART = r"[A-Za-z0-9_][A-Za-z0-9._+-]*"
_ENTRY = r"[0-9]{4}-[a-z0-9][a-z0-9.-]*\.(?:patch|backport)"
_VERSION = r"[0-9][0-9A-Za-z.+!-]*"
_CLAUSE = rf" *(?:==|!=|<=|>=|<|>|~=) *{_VERSION}(?:\.\*)? *"

Text = Annotated[str, Shape(r"[^\x00-\x1f\x7f]+", "one line of text", most=1000)]
Source = Annotated[Text, Field(description="where the facts stand: file and line upstream, or a page")]
Name = Annotated[str, Shape(_PLAIN, "lower case letters and digits, between them '.', '_' or '-'", most=60)]
Release = Annotated[str, Shape(r"[0-9]{2}\.[0-9]{2}", "a release such as 22.12")]
Day = Annotated[
    str, Shape(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a day such as 2026-01-31", check=date.fromisoformat)
]
VersionText = Annotated[str, Shape(_VERSION, "a version such as 11.8", most=40, check=Version)]
Manylinux = Annotated[str, Shape(r"2\.(?:[5-9]|[1-9][0-9])", "a version of glibc such as 2.17")]
SpecifierText = Annotated[
    str, Shape(rf"{_CLAUSE}(?:,{_CLAUSE})*", "a range of versions such as >=5.2,<=5.3", check=SpecifierSet)
]
SmNumber = Annotated[
    Sm,
    CustomSchema(
        lambda _source, handler: no_info_after_validator_function(
            Sm, handler(Annotated[int, Field(strict=True, ge=10, le=999)])
        )
    ),
]
Commit = Annotated[str, Shape(r"[0-9a-f]{40}", "a commit id of 40 hex digits")]
Sha256 = Annotated[str, Shape(r"sha256:[0-9a-f]{64}", "sha256: and 64 hex digits")]
# `..` may not be part of a ref (git-check-ref-format(1)).
GitRef = Annotated[
    str,
    Shape(
        rf"refs(?:/(?!\S*\.\.){_PART})+|[0-9a-f]{{40}}",
        "a full ref (refs/tags/NAME, refs/heads/NAME) or a full commit id of 40 hex digits",
    ),
]
# Git takes what begins with a hyphen for an option, and `transport::address` for a program to run.
GitUrl = Annotated[
    str,
    Shape(
        r"(?!-)(?![A-Za-z0-9.+-]*::)[^\x00-\x1f\x7f]+",
        "a git URL or a path, without a hyphen in front",
        most=1000,
        check=_url,
    ),
]
TreePath = Annotated[
    str,
    Shape(rf"{_PART}(?:/{_PART})*", "a relative path of plain names, such as ft/3rdparty/cutlass"),
]
FilePath = Annotated[str, Shape(r"[^\x00-\x1f\x7f]+", "a path on one line", most=1000)]
FilePattern = Annotated[str, Shape(r"[^\x00-\x1f\x7f]+", "a pattern of file names", most=500)]
EntryName = Annotated[str, Shape(_ENTRY, "NNNN-name.patch or NNNN-name.backport")]
EntryPath = Annotated[str, Shape(rf"{_PLAIN}/{_ENTRY}", "COMPONENT/NNNN-name.patch (or .backport)")]
ImageName = Annotated[str, Shape(r"\S+", "the name of an image", check=_image)]
Program = Annotated[str, Shape(r"[A-Za-z0-9/_.][A-Za-z0-9/_.+-]*", "the name or path of a program")]
ImageDigest = Annotated[str, Shape(r"\S+@sha256:[0-9a-f]{64}", "an image by digest", check=_image)]
Package = Annotated[
    str,
    Shape(
        r"[a-z0-9][a-z0-9+.-]+(?::[a-z0-9-]+)?(?:=[A-Za-z0-9.+:~-]+)?",
        "the name of a Debian package, maybe with =VERSION",
    ),
]
Identifier = Annotated[str, Shape(r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and underscores")]


# Lists must stay tuples here and mappings records, so `strict` cannot be said of a whole model.
_LITERAL = ("bool", "int", "float")
_NO_SCHEMAS = ("default", "metadata", "serialization")


def _take_literally(schema: Any) -> None:
    """Make every number and truth value in a core schema strict."""
    if isinstance(schema, dict):
        if schema.get("type") in _LITERAL:
            schema["strict"] = True
        for inner in (value for key, value in schema.items() if key not in _NO_SCHEMAS):
            _take_literally(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            _take_literally(inner)


class Model(BaseModel):
    """A frozen record that refuses unknown keys, and takes nothing for a number or a truth value but one.

    YAML knows both. `yes` is no 1, and `"12"`, which the JSON Schemas refuse, no 12.
    """

    # All commands import the schemas, and few read every document: a validator is built once it is needed.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _take_literally(schema)
        return schema
