"""Strict field types and the frozen base model of the configuration files.

YAML 1.1 reads `22.10` as the number 22.1, so a version must be text.
"""

from __future__ import annotations

from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetPydanticSchema
from pydantic_core.core_schema import no_info_after_validator_function

from ftbuild.sm import Sm


def _is_version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion as bad:
        raise ValueError(str(bad)) from bad
    return text


def _is_specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as bad:
        raise ValueError(str(bad)) from bad
    return text


VersionText = Annotated[str, Field(strict=True), AfterValidator(_is_version)]
SpecifierText = Annotated[str, Field(strict=True), AfterValidator(_is_specifier)]
Release = Annotated[str, Field(strict=True, pattern=r"^\d\d\.\d\d$")]
SmNumber = Annotated[
    Sm,
    GetPydanticSchema(
        lambda _source, handler: no_info_after_validator_function(
            Sm, handler(Annotated[int, Field(strict=True, ge=10, le=999)])
        )
    ),
]
Commit = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, Field(strict=True, pattern=r"^sha256:[0-9a-f]{64}$")]


class Model(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)
