"""JSON of others: limits that hold wherever it is read, and what a file at its limits takes."""

from __future__ import annotations

import contextlib
import json
import re
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from ftbuild.build import manifest as build_manifest
from ftbuild.build import objects as build_objects
from ftbuild.engine import made
from ftbuild.errors import FtbuildError, PublishError
from ftbuild.gates import records
from ftbuild.gates.report import VERIFY
from ftbuild.nightly import record as nightly
from ftbuild.publishing import attestations, from_builder, index, inventories, pushed, substituted
from ftbuild.registry import answers
from ftbuild.text import bounded_json
from testing import ROOT
from testing.sample import sample_plan

SECONDS, BYTES = 8.0, 450 * 10**6
DIGEST = "sha256:" + "0" * 64
# Rooms that read what other machines wrote, and what of it is not of others.
ROOMS = ("audit", "build", "gates", "nightly", "publishing", "registry")
OWN = {
    "gates/unittests/gate.py": "what our own runner prints in a container",
    "gates/unittests/runner.py": "runs alone in an image",
    "gates/smoke": "runs alone in a container, or reads what it wrote",
    "publishing/attest": "what was made here, and what a verified image lists",
    "publishing/secrets.py": "statements made here",
}


def test_json_of_others_is_read_in_one_place() -> None:
    parsing = re.compile(r"\bjson\.loads?\(|\bfrom_json\(statement|validate_json\(")
    found = {
        file.relative_to(ROOT / "ftbuild").as_posix()
        for room in ROOMS
        for file in (ROOT / "ftbuild" / room).rglob("*.py")
        if parsing.search(file.read_text())
    }
    assert not [file for file in found if not any(file.startswith(own) for own in OWN)]


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff"])
def test_a_file_in_which_too_much_is_nested_counts_as_none(content: bytes, tmp_path: Path) -> None:
    """What lies in a work folder, a disk or another program may have damaged."""
    (tmp_path / "metadata.json").write_bytes(content)
    (tmp_path / "manifest").write_bytes(content)
    assert attestations.builder_statements(tmp_path, sample_plan(), "runtime", "image", DIGEST) == []
    with pytest.raises(PublishError, match="buildx does not tell"):
        from_builder.pushed(tmp_path / "metadata.json", sample_plan())
    assert build_manifest.changed(tmp_path / "sources", tmp_path / "manifest") == []


MODELS: Mapping[str, type[BaseModel] | TypeAdapter[Any]] = {
    **{kind.__name__: kind for kind in answers._Answer.__subclasses__()},
    "record of a gate": records.Record,
    "record of a nightly run": nightly._RUN,
    "index": index._File,
    "inventory": inventories._STORED,
    "what was pushed": pushed.FILE.kind,
    "ids of bases": made.FILE.kind,
    "objects that were taken": build_objects.RECORD.kind,
    "what was taken in place of a build": substituted.RECORD.kind,
}


def collections(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas of lists, tuples of any length and mappings, in a schema of pydantic's."""
    if isinstance(schema, dict):
        kind = schema.get("type")
        if kind in ("list", "set", "dict") or (kind == "tuple" and "variadic_item_index" in schema):
            items = schema.get("values_schema") or schema.get("items_schema")
            if items and "'type': 'any'" not in str(items):
                yield schema
        for key, part in schema.items():
            if key not in ("metadata", "serialization"):
                yield from collections(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from collections(part)


@pytest.mark.parametrize("name", MODELS)
def test_the_first_error_ends_the_reading_of_every_list(name: str) -> None:
    model = MODELS[name]
    schema = model.core_schema if isinstance(model, TypeAdapter) else model.__pydantic_core_schema__
    for found in collections(schema):
        assert found.get("fail_fast"), found
        assert found.get("max_length"), found


BODIES = (
    json.dumps([{}] * 90_000),
    json.dumps({f"{n:x}": {} for n in range(90_000)}),
    json.dumps(["x"] * 150_000),
    "[" * 100_000,
    '{"a":' * 100_000,
    json.dumps([{}] * 3_000_000),
)


def read_record(folder: Path, content: str) -> object:
    (folder / VERIFY.record).write_text(content[: records.MAX_BYTES])
    return records.read(VERIFY, folder)


def read_night(folder: Path, content: str) -> object:
    (folder / nightly.FILE).write_text(content)
    return nightly.read(folder)


def read_index(folder: Path, content: str) -> object:
    (folder / "index.json").write_text(content)
    return index.from_file(folder / "index.json")


def read_inventory(folder: Path, content: str) -> object:
    (folder / "inventory-sdk.json").write_text(content)
    if inventories.read(folder, "sdk", ["a"]) is None:
        raise ValueError
    return None


def read_pushed(folder: Path, content: str) -> object:
    (folder / pushed.FILE.name).write_text(content)
    return pushed.digest(folder, "r.example/x", "1")


READERS: Mapping[str, tuple[Callable[[Path, str], object], Sequence[str]]] = {
    "record of a gate": (read_record, ["findings", "images", "figures"]),
    "record of a nightly run": (read_night, ["cells", "builders"]),
    "index": (read_index, ["images"]),
    "inventory": (read_inventory, ["inventory"]),
    "what was pushed": (read_pushed, ["a"]),
    "manifest": (lambda _, content: read_answer(answers.Content, content), ["manifests", "annotations"]),
    "tags": (lambda _, content: read_answer(answers.TagList, content), ["tags"]),
    "refusal": (lambda _, content: read_answer(answers.Errors, content), ["errors"]),
    "configuration": (lambda _, content: read_answer(answers.ImageConfig, content), ["config"]),
}


def read_answer(kind: type[answers.A], content: str) -> object:
    return answers.read(kind, content.encode(), "x")


@pytest.mark.parametrize("reader", READERS)
def test_what_is_wrong_many_times_ends_with_one_message_soon(reader: str, tmp_path: Path) -> None:
    """As a whole, and as the value of a key that the reader knows."""
    read, keys = READERS[reader]
    before, start = peak(), processor_seconds()
    for body in BODIES:
        for content in (body, *(f'{{"{key}": {body}}}' for key in keys)):
            with contextlib.suppress(FtbuildError, ValueError):
                found = read(tmp_path, content)
                assert isinstance(found, BaseModel), "one of unknown keys only, or a list of tags"
    assert processor_seconds() - start < SECONDS
    assert peak() - before < BYTES


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def test_text_is_quoted_in_one_printable_line() -> None:
    with pytest.raises(bounded_json.Unfit) as refused:
        bounded_json.adapted(pushed.FILE.kind, json.dumps({"\x1b]0;owned\x07a\nb": "x"}).encode())
    assert "\x1b" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("content", "most", "kept"), [(b"[1,2]", 2, True), (b"[1,2,3]", 2, False)])
def test_values_are_counted_before_they_are_parsed(content: bytes, most: int, kept: bool) -> None:
    if kept:
        assert bounded_json.loads(content, most) == [1, 2]
        return
    with pytest.raises(bounded_json.TooMuch, match="more than 2 values"):
        bounded_json.loads(content, most)
