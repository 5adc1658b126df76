"""The table of serving targets: each has a command, a page, and says what every platform must know."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

import tasks
from ftbuild import triton
from ftbuild.errors import ConfigError
from ftserve.targets import table
from ftserve.targets.grafana import Dashboard
from ftserve.targets.kserve import Service
from ftserve.targets.target import Target
from testing import ROOT
from tests.unit.ftserve.test_written_files import FILES, deployed

# Each as its command makes it without an option that may be left out.
MADE: Mapping[str, Target] = {
    each.name: Service("pvc://models/gpt") if each is Service else each() for each in table.ALL
}
# Those that serve; the other watches.
SERVING = [name for name, target in MADE.items() if not isinstance(target, Dashboard)]


@pytest.mark.parametrize("name", MADE)
def test_each_has_a_command_and_a_place_in_the_page(name: str) -> None:
    assert f"serve.{name}" in tasks.namespace.task_names
    assert f"invoke serve.{name} " in (ROOT / "docs" / "ftserve" / "serving.md").read_text()


def test_no_command_that_writes_is_missing_in_the_table() -> None:
    commands = {
        name.removeprefix("serve.") for name in tasks.namespace.task_names if name.startswith("serve.")
    }
    assert commands == {*MADE, "docker", "front"}


def test_every_module_of_a_target_is_in_the_table() -> None:
    defining = re.compile(r"^    def files\(self", re.MULTILINE)
    modules = {
        path for path in (ROOT / "ftserve" / "targets").glob("*.py") if defining.search(path.read_text())
    }
    listed = {ROOT / f"{each.__module__.replace('.', '/')}.py" for each in table.ALL}
    assert modules - {ROOT / "ftserve" / "targets" / "target.py"} == listed


@pytest.mark.parametrize("name", SERVING)
def test_all_serve_the_same_image_with_the_same_words_and_ask_it_for_answers(name: str) -> None:
    wanted = deployed()
    text = "\n".join(MADE[name].files(wanted).values())
    assert wanted.image in text
    assert "concurrent.futures" in text, "the probe, which asks for a token"
    missing = [word for word in wanted.command if word.replace(triton.MODELS, "") not in text]
    assert missing == []
    for variable, value in wanted.environment.items():
        assert re.search(rf"{variable}\W+(name: |value: )*{value}", text), variable


@pytest.mark.parametrize("name", MADE)
def test_what_a_deployment_says_goes_into_files_only(name: str) -> None:
    """A name with no path in it, and a text that ends with its line."""
    for file, text in MADE[name].files(replace(deployed(), name="another")).items():
        assert re.fullmatch(r"[\w.-]+", file)
        assert text.endswith("\n")


def test_one_file_has_the_name_by_which_the_platforms_program_finds_it() -> None:
    """docker compose looks for compose.yaml; the others are named on the command line."""
    names = {name: set(target.files(deployed())) for name, target in MADE.items()}
    assert names["compose"] == {"compose.yaml"}
    assert names["k8s"] == names["kserve"] == {"manifests.yaml"}


def containers(described: Any) -> Iterator[dict[str, Any]]:
    """Yield every container of a file, of Compose's services and of pods, however deep they are."""
    if isinstance(described, dict):
        if "image" in described and {"args", "command"} & set(described):
            yield described
        described = list(described.values())
    for each in described if isinstance(described, list) else ():
        yield from containers(each)


@pytest.mark.parametrize("name", [file for file in FILES if file.endswith(".yaml")])
def test_no_container_has_rights_or_writes_into_its_image(name: str) -> None:
    """The server's, the front's, and the one that fetches models."""
    found = list(containers(list(yaml.safe_load_all(FILES[name]()))))
    assert len(found) == len(re.findall(r"^ +(?:- )?image: [^\n]", FILES[name](), re.MULTILINE))
    for each in found:
        if name.startswith("compose"):
            assert each["cap_drop"] == ["ALL"]
            assert each["security_opt"] == ["no-new-privileges:true"]
            assert each["read_only"] is True
        else:
            rights = each["securityContext"]
            assert rights["capabilities"] == {"drop": ["ALL"]}
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("name", SERVING)
def test_each_is_recorded_word_for_word(name: str) -> None:
    recorded = {file.partition(".")[0].partition("-")[0] for file in FILES}
    assert {"k8s": "kubernetes", "sif": "apptainer"}.get(name, name) in recorded


def test_what_is_not_told_where_the_models_are_refuses() -> None:
    with pytest.raises(ConfigError, match="mounts a folder"):
        MADE["compose"].files(replace(deployed(), models=None))
