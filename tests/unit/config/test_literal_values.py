"""Numbers and truth values of the configuration: what is written is what is meant, at every key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ftbuild.config import loader, types
from ftbuild.config.document import parsed
from ftbuild.errors import ConfigError

NUMBERS = ("int", "float", "bool")


def models(kind: type[BaseModel] = types.Model) -> Iterator[type[BaseModel]]:
    for one in kind.__subclasses__():
        yield one
        yield from models(one)


def scalars(schema: Any) -> Iterator[dict[str, Any]]:
    """The numbers and truth values of a core schema."""
    if isinstance(schema, dict):
        if schema.get("type") in NUMBERS:
            yield schema
        yield from (found for key, value in schema.items() if key != "default" for found in scalars(value))
    elif isinstance(schema, list | tuple):
        yield from (found for value in schema for found in scalars(value))


def test_every_number_and_truth_value_of_every_file_is_taken_literally() -> None:
    every = list(models())
    for model in every:
        model.model_rebuild()  # as the first document does of which it is
    found = [(model, scalar) for model in every for scalar in scalars(model.__pydantic_core_schema__)]
    assert len({model for model, _ in found}) > 15
    assert [(model, scalar) for model, scalar in found if not scalar.get("strict")] == []


def refused(folder: Path, file: str, old: str, new: str) -> str:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as wrong:
        loader.load(folder)
    return str(wrong.value)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("yes", "must be a whole number, not true (YAML reads yes, no, on and off so, too)"),
        ('"12"', "must be a whole number without quotes, not '12'"),
        ("12.0", "must be a whole number, not 12.0"),
    ],
)
def test_what_is_no_whole_number_is_none(config_folder: Path, written: str, told: str) -> None:
    message = refused(config_folder, "bases.yaml", "    releases:", f"    cell_gib: {written}\n    releases:")
    assert "bases.yaml:" in message
    assert f"cell_gib: {told}" in message


@pytest.mark.parametrize("written", ["1", '"yes"'])
def test_what_is_no_truth_value_is_none(config_folder: Path, written: str) -> None:
    text = (config_folder / "sources.yaml").read_text()
    line = next(line for line in text.splitlines() if line.startswith("    url:"))
    message = refused(config_folder, "sources.yaml", line, f"{line}\n    server: {written}")
    assert "server: must be true or false" in message


@pytest.mark.parametrize(
    ("yaml", "told"),
    [
        ("score: 0:7.5", "0:7.5 is no plain decimal number"),
        ("score: 1_0.5", "1_0.5 is no plain decimal number"),
        ("<<: {image: x}", "the key << has a meaning of its own"),
        ("=: x", "the key = has a meaning of its own"),
    ],
)
def test_yaml_that_means_something_else_is_refused_with_its_line(
    config_folder: Path, yaml: str, told: str
) -> None:
    place = config_folder / "matrix.yaml"
    line = len(place.read_text().splitlines()) + 1
    place.write_text(f"{place.read_text()}{yaml}\n")
    with pytest.raises(ConfigError) as wrong:
        loader.load(config_folder)
    assert told in str(wrong.value)
    assert f"matrix.yaml:{line}" in str(wrong.value)


@pytest.mark.parametrize(("text", "value"), [("7.5", 7.5), ("-0.25", -0.25), ("1.5e+3", 1500.0), ("9.", 9.0)])
def test_a_plain_number_with_a_fraction_is_read(text: str, value: float) -> None:
    assert parsed(f"a: {text}")[0] == {"a": value}
