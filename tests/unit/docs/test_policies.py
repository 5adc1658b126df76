"""The policies of clusters in docs/attestations.md: about what is published, and of their kinds' schemas."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ftbuild.gates.records import Record
from ftbuild.publishing import signed_statements
from testing import ROOT

PAGE = (ROOT / "docs" / "attestations.md").read_text()
POLICIES: list[Mapping[str, Any]] = [
    yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "\nkind: " in text
]
KINDS = ["ClusterImagePolicy", "ImageValidatingPolicy"]


def policy(kind: str) -> Mapping[str, Any]:
    (found,) = (each for each in POLICIES if each["kind"] == kind)
    return found


def values(part: Any, key: str) -> Iterator[Any]:
    """Every value of a key, however deep."""
    below = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    yield from (part[key] for _ in "1" if isinstance(part, dict) and key in part)
    for each in below:
        yield from values(each, key)


def test_the_page_has_a_policy_for_each_controller() -> None:
    assert [each["kind"] for each in POLICIES] == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_asks_for_a_statement_that_publishing_signs(kind: str) -> None:
    found = policy(kind)
    types = [*values(found, "predicateType"), *(each["type"] for each in values(found, "intoto"))]
    assert types == [signed_statements.gate("smoke")]
    assert "passed" in str(found)
    assert "passed" in Record.model_fields  # the record is the predicate


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_needs_no_public_log_and_trusts_one_key(kind: str) -> None:
    found = policy(kind)
    (key,) = values(found, "key")
    assert key["data"].startswith("-----BEGIN PUBLIC KEY-----")
    assert [*values(found, "ctlog")] in ([], [{"insecureIgnoreTlog": True}])


def test_names_in_expressions_are_those_that_the_policy_defines() -> None:
    spec = policy("ImageValidatingPolicy")["spec"]
    text = " ".join(each["expression"] for each in spec["validations"])
    for kind in ("attestors", "attestations"):
        assert set(re.findall(rf"{kind}\.(\w+)", text)) == {each["name"] for each in spec[kind]}


@pytest.mark.skipif(
    "FTBUILD_POLICY_CRDS" not in os.environ,
    reason="FTBUILD_POLICY_CRDS names no folder with the resources of policy-controller and Kyverno",
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_is_of_the_schema_of_its_kind(kind: str) -> None:
    found = policy(kind)
    files = Path(os.environ["FTBUILD_POLICY_CRDS"]).glob("*.yaml")
    resources = [each for file in files for each in yaml.safe_load_all(file.read_text())]
    (resource,) = (each for each in resources if each["spec"]["names"]["kind"] == kind)
    version = found["apiVersion"].partition("/")[2]
    (of_version,) = (each for each in resource["spec"]["versions"] if each["name"] == version)
    assert of_version["served"]
    schema = of_version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    jsonschema.validate(found["spec"], closed(schema))


def closed(schema: Any) -> Any:
    """A schema as an API server prunes by it: what it does not name is an error here."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made
