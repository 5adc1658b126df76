"""Plans as files: what is read is what was written, and nothing else is taken for a plan."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from ftbuild import plan_file
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.plan import Plan
from tests.unit.cli.test_commands import invoke
from tests.unit.test_plan import plan_of


@pytest.fixture(scope="module")
def plan(config: Config) -> Plan:
    return plan_of(config)


@pytest.mark.parametrize(
    ("release", "base"),
    [("22.03", None), ("22.12", None), ("22.12", "ngc"), ("24.10", None), ("26.06", None)],
)
def test_a_plan_is_read_as_it_was_written(
    config: Config, tmp_path: Path, release: str, base: str | None
) -> None:
    plan, file = plan_of(config, triton=release, base=base), tmp_path / "folder" / "plan.json"
    plan_file.write(plan, file)
    read = plan_file.read(file)
    assert read == plan
    assert all(read.labels(product) == plan.labels(product) for product in ("runtime", "sdk"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.stat().st_size < plan_file.MAX_BYTES / 2


def test_a_plan_that_was_changed_is_refused(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan_file.write(plan, file)
    for place, change in (
        ("sources", {"commit": "0" * 40}),
        ("files", {"content": "AAAA"}),
        ("patches", {"change": "AAAA"}),
        ("cell", {"sms": [86]}),
    ):
        data = json.loads(file.read_text())
        (data[place] if place == "cell" else data[place][0]).update(change)
        other = tmp_path / "other.json"
        other.write_text(json.dumps(data))
        with pytest.raises(ConfigError, match=r"the plan of 22\.12-sm8[06] was changed"):
            plan_file.read(other)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"", "the whole"),
        (b"{}", "cell"),
        (b"[]", "the whole"),
        (b'{"cell": 1}', "cell"),
        (b"\xff\xfe", "the whole"),
        (b"null", "the whole"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, content: bytes, where: str) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"the file holds no plan: {where}: [^:]") as refused:
        plan_file.read(file)
    assert refused.value.where == str(file)


def test_a_command_takes_a_plan_file_whatever_the_configuration_says_now(
    config_folder: Path, config: Config, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    plan = plan_of(config, sm="90")
    plan_file.write(plan, file)
    handed = ("build", "--plan", str(file), "--config", str(config_folder), "--dry-run", "--format", "json")
    done = invoke(*handed)
    assert done.returncode == 0, done.stderr
    assert [found["key"] for found in json.loads(done.stdout)] == [plan.key]
    (config_folder / "patches.yaml").write_text("directory: .\nranges: {}\n")
    (config_folder / "sources.lock.yaml").unlink()
    again = invoke(*handed)
    assert again.stdout == done.stdout


def test_a_plan_file_and_a_selection_are_not_given_together(config: Config, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan_file.write(plan_of(config), file)
    for command in ("build", "smoke", "publish"):
        done = invoke(command, "--plan", str(file), "--sm", "80")
        assert done.returncode == 2
        assert "--plan" in done.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the plan file cannot be read"):
        plan_file.read(tmp_path / "none.json")
