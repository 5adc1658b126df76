"""Workflow files: valid, with the gates in the right order, and never stale."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from ftbuild.ci import drift, github, gitlab, steps, summary, yaml_file
from ftbuild.ci.options import Options
from ftbuild.cli import ci
from ftbuild.cli.ci import CiOptions
from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.gates.report import SMOKE, VERIFY, Gate, GateReport
from ftbuild.matrix import Cell, as_github, select
from ftbuild.plan import Plan
from ftbuild.sm import Sm
from ftbuild.text.results import State
from testing import ROOT, gate_records

CELLS = (Cell("22.07", (Sm(80),), "ngc", True), Cell("22.12", (Sm(90),), "open", False))
SAMPLE = Selection(ROOT / "buildcfg" / "sample", ["22.12"], ["80"])
OPTIONS = Options(CELLS)


def load(text: str) -> dict[str, Any]:
    data: dict[Any, Any] = yaml.safe_load(text)
    return {"on" if key is True else key: value for key, value in data.items()}  # YAML 1.1 reads `on` so


def workflows(options: Options) -> dict[str, dict[str, Any]]:
    return {path: load(text) for path, text in github.files(options).items()}


def pipeline(options: Options) -> dict[str, Any]:
    return load(gitlab.files(options)[gitlab.PATH])


def lines(job: dict[str, Any]) -> list[str]:
    """Return the commands of a job, in order."""
    if "steps" in job:
        return [step["run"] for step in job["steps"] if "run" in step]
    return list(job["script"])


def test_the_files_of_this_repository_are_what_its_configuration_makes() -> None:
    config = Selection(ROOT / "buildcfg")
    assert ci.ci.function(config, CiOptions(), check=True) == 0


def test_on_github_a_cell_is_published_only_after_its_build_and_its_smoke_test() -> None:
    jobs = workflows(OPTIONS)[github.CELL]["jobs"]
    assert "needs" not in jobs["build"]
    assert jobs["smoke"]["needs"] == "build"
    assert jobs["publish"]["needs"] == ["build", "smoke"]
    assert not any("continue-on-error" in text for text in map(json.dumps, jobs.values()))
    # A condition without a function of the status keeps the default: everything needed succeeded.
    assert not re.search(r"always|failure|cancelled", "".join(job.get("if", "") for job in jobs.values()))


@pytest.mark.parametrize("system", ["github", "gitlab"])
def test_the_list_of_what_was_staged_reaches_every_job_that_takes_it_from_the_registry(system: str) -> None:
    """Without it they would take what the tags have become: on the GPU, too."""
    if system == "github":
        jobs = workflows(OPTIONS)[github.CELL]["jobs"]
        assert steps.PUSHED in json.dumps([step for step in jobs["build"]["steps"] if "with" in step])
        for name, command in (("smoke", steps.PULL), ("publish", steps.PUBLISH)):
            texts = [json.dumps(step) for step in jobs[name]["steps"]]
            (fetched,) = (n for n, text in enumerate(texts) if "verify-" in text)
            (used,) = (n for n, step in enumerate(jobs[name]["steps"]) if command in step.get("run", ""))
            assert fetched < used
        return
    made = yaml.safe_load(gitlab.files(OPTIONS)[gitlab.PATH])
    assert steps.PUSHED in made[".build"]["artifacts"]["paths"]
    takers = [job for name, job in made.items() if name.startswith(("smoke ", "publish "))]
    assert takers
    assert all(job["needs"][0].startswith("build ") for job in takers), "needs bring artifacts"


def test_on_github_each_cell_has_its_own_chain_and_the_report_always_runs() -> None:
    jobs = workflows(OPTIONS)[github.NIGHTLY]["jobs"]
    assert jobs["cell"]["uses"] == f"./{github.CELL}"
    assert jobs["cell"]["strategy"]["fail-fast"] is False
    assert set(jobs["cell"]["with"]) == set(workflows(OPTIONS)[github.CELL]["on"]["workflow_call"]["inputs"])
    assert set(jobs["report"]["needs"]) == jobs.keys() - {"report"}
    assert jobs["report"]["if"].startswith("always() && ")


def on_github(condition: str, event: str, branch: str) -> bool:
    """Evaluate the condition of a job for an event on a branch of a repository whose default is `main`."""
    repository = SimpleNamespace(default_branch="main")
    payload = SimpleNamespace() if event == "schedule" else SimpleNamespace(repository=repository)
    github = SimpleNamespace(event_name=event, ref=f"refs/heads/{branch}", event=payload)
    names = {"github": github, "format": lambda text, value: text.format(value), "always": lambda: True}
    return bool(eval(condition.replace("&&", "and").replace("||", "or"), names))


def on_gitlab(condition: str, **variables: str) -> bool:
    """Evaluate the condition of a rule."""
    return bool(eval(re.sub(r"\$(\w+)", r"variables['\1']", condition).replace("&&", "and"), locals()))


@pytest.mark.parametrize("one_host", [False, True])
def test_on_github_only_the_default_branch_runs_nights_and_publishes(one_host: bool) -> None:
    made = workflows(replace(OPTIONS, one_host=one_host))
    nightly = made[github.NIGHTLY]["jobs"]
    roots = {name: job for name, job in nightly.items() if "needs" not in job or name == "report"}
    publishing = nightly["nightly"] if one_host else made[github.CELL]["jobs"]["publish"]
    for job in (*roots.values(), publishing):
        assert on_github(job["if"], "workflow_dispatch", "main")
        assert on_github(job["if"], "schedule", "main")
        assert not on_github(job["if"], "workflow_dispatch", "mine")
    assert publishing["environment"] == "publish"


@pytest.mark.parametrize("one_host", [False, True])
def test_on_gitlab_only_the_protected_default_branch_runs_nights_and_publishes(one_host: bool) -> None:
    made = pipeline(replace(OPTIONS, one_host=one_host))
    default = {"CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "main", "CI_COMMIT_REF_PROTECTED": "true"}
    publishing = made["nightly" if one_host else ".publish"]
    assert publishing["environment"] == "publish"
    jobs = [publishing] if one_host else [made[".nightly"], made["report"]]
    for rules in (made["workflow"]["rules"], *(job["rules"] for job in jobs)):
        for source in ("schedule", "web"):
            asked = [rule["if"] for rule in rules if source in rule["if"]]
            for changed, runs in (
                ({}, True),
                ({"CI_COMMIT_BRANCH": "mine"}, False),
                ({"CI_COMMIT_REF_PROTECTED": "false"}, False),
            ):
                there = {"CI_PIPELINE_SOURCE": source, **default, **changed}
                assert any(on_gitlab(condition, **there) for condition in asked) is runs


@pytest.mark.parametrize("one_host", [False, True])
def test_on_github_only_the_job_that_signs_gets_a_token_for_that(one_host: bool) -> None:
    plain = replace(OPTIONS, one_host=one_host)
    assert "id-token" not in str(workflows(plain))
    made = workflows(replace(plain, keyless=True))
    permitted = {
        name: job["env"]
        for data in made.values()
        for name, job in data["jobs"].items()
        if "id-token" in job.get("permissions", {}) and "steps" in job
    }
    (name,) = permitted
    assert name == ("nightly" if one_host else "publish")
    # The workflow that holds the job: a token of a called workflow names that one.
    file = github.NIGHTLY if one_host else github.CELL
    assert f"/{file}@" in permitted[name]["FTBUILD_SIGN_IDENTITY"]
    if not one_host:  # a called workflow has no right that its caller lacks
        assert made[github.NIGHTLY]["jobs"]["cell"]["permissions"]["id-token"] == "write"


@pytest.mark.parametrize("one_host", [False, True])
def test_on_gitlab_only_the_job_that_signs_gets_a_token_for_that(one_host: bool) -> None:
    plain = replace(OPTIONS, one_host=one_host)
    assert "id_tokens" not in str(pipeline(plain))
    made = pipeline(replace(plain, keyless=True))
    with_token = {name: job for name, job in made.items() if "id_tokens" in job}
    ((name, job),) = with_token.items()
    assert name == ("nightly" if one_host else ".publish")
    assert job["id_tokens"] == {"SIGSTORE_ID_TOKEN": {"aud": "sigstore"}}
    assert job["variables"]["FTBUILD_SIGN_IDENTITY"].startswith("$CI_PROJECT_URL//.gitlab-ci.yml@")


def test_on_gitlab_no_runner_of_the_tests_takes_a_job_of_the_nights() -> None:
    made = pipeline(OPTIONS)
    tests, nights = set(made["test"]["tags"]), set(made["default"]["tags"])
    assert not tests <= nights
    assert not nights <= tests
    assert pipeline(replace(OPTIONS, test=("any-branch",)))["test"]["tags"] == ["any-branch"]


def test_on_github_nightly_runs_are_scheduled_or_manual_and_never_overlap() -> None:
    nightly = workflows(replace(OPTIONS, cron="0 3 * * 1"))[github.NIGHTLY]
    assert nightly["on"] == {"schedule": [{"cron": "0 3 * * 1"}], "workflow_dispatch": {}}
    assert nightly["concurrency"] == {"group": "nightly", "cancel-in-progress": False}


@pytest.mark.parametrize("one_host", [False, True])
def test_on_github_only_jobs_that_push_may_write_packages(one_host: bool) -> None:
    made = workflows(replace(OPTIONS, one_host=one_host))
    writers = {
        name
        for data in made.values()
        for name, job in data["jobs"].items()
        if job.get("permissions", {}).get("packages") == "write"
    }
    assert writers == ({"nightly"} if one_host else {"cell", "build", "publish"})
    assert all(data["permissions"] == {"contents": "read"} for data in made.values())


def test_on_github_actions_are_pinned_by_commit_with_their_version_in_a_comment() -> None:
    for text in github.files(OPTIONS).values():
        uses = re.findall(r"uses: (actions/.*)", text)
        assert uses
        assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", use) for use in uses)


def test_the_registry_of_github_is_in_lower_case(tmp_path: Path) -> None:
    (line,) = (run for run in lines(workflows(OPTIONS)[github.NIGHTLY]["jobs"]["matrix"]) if "ghcr" in run)
    out = tmp_path / "out"
    env = {**os.environ, "GITHUB_REPOSITORY": "Team/FT", "GITHUB_OUTPUT": str(out)}
    subprocess.run(["bash", "-c", line], env=env, check=True)
    assert out.read_text() == "registry=ghcr.io/team/ft\n"


def test_github_runs_no_matrix_of_more_than_256_cells() -> None:
    many = tuple(Cell("22.12", (Sm(sm),), "ngc", True) for sm in range(257))
    assert github.files(Options(many[:256]))
    with pytest.raises(ConfigError, match="257 cells are selected"):
        github.files(Options(many))
    assert github.files(Options(many, one_host=True))


def test_on_gitlab_every_cell_has_its_own_chain() -> None:
    made = pipeline(OPTIONS)
    for cell in ("22.07-sm80", "22.12-sm90-open"):
        assert made[f"smoke {cell}"]["needs"] == [f"build {cell}"]
        assert made[f"publish {cell}"]["needs"] == [f"build {cell}", f"smoke {cell}"]
        assert {made[f"{step} {cell}"]["resource_group"] for step in ("build", "smoke", "publish")} == {cell}
    assert made[".build"]["needs"] == []
    assert made["smoke 22.12-sm90-open"]["tags"] == ["gpu", "sm90"]
    assert made["smoke 22.12-sm90-open"]["variables"] == {
        "TRITON": "22.12",
        "SMS": "90",
        "BASE": "open",
    }
    assert "allow_failure" not in gitlab.files(OPTIONS)[gitlab.PATH]


@pytest.mark.parametrize("one_host", [False, True])
def test_on_gitlab_every_job_has_a_known_stage_and_known_parents(one_host: bool) -> None:
    made = pipeline(replace(OPTIONS, one_host=one_host))
    jobs = {name: job for name, job in made.items() if isinstance(job, dict) and "script" in job}
    assert {job["stage"] for job in jobs.values()} == set(made["stages"])
    for job in made.values():
        if isinstance(job, dict):
            assert job.get("extends", ".nightly") in made or one_host
            assert all(need in made for need in job.get("needs", ()))


def test_on_gitlab_pushes_run_tests_and_nightly_runs_the_rest() -> None:
    made = pipeline(OPTIONS)
    assert on_gitlab(made["test"]["rules"][0]["if"], CI_PIPELINE_SOURCE="push")
    assert "push" not in json.dumps([made[".nightly"], made["report"]["rules"]])
    assert all(rule["when"] == "always" for rule in made["report"]["rules"])
    assert made[".smoke"]["artifacts"]["reports"]["junit"].endswith("smoke.xml")


@pytest.mark.parametrize("system", [github, gitlab])
def test_login_precedes_what_needs_it_and_logout_always_runs(system: Any) -> None:
    made = workflows(OPTIONS)[github.CELL]["jobs"] if system is github else pipeline(OPTIONS)
    dot = "" if system is github else "."
    for name, line in (("build", steps.PUSH), ("smoke", steps.PULL), ("publish", steps.PUBLISH)):
        run = lines(made[f"{dot}{name}"])
        assert run.index(steps.LOGIN) < run.index(line)
        assert steps.LOGOUT in made[f"{dot}{name}"].get("after_script", run)


def test_the_password_goes_to_docker_on_standard_input_only(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "$@" >"$OUT/arguments"\ncat >"$OUT/input"\n')
    docker.chmod(0o755)
    env = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "OUT": str(tmp_path),
        "REGISTRY": "ghcr.io/team/ft",
        "REGISTRY_USER": "me",
        "REGISTRY_PASSWORD": "s%cret\\n",
    }
    subprocess.run(["sh", "-c", steps.LOGIN], env=env, check=True)
    assert (tmp_path / "arguments").read_text() == "login ghcr.io --username me --password-stdin\n"
    assert (tmp_path / "input").read_text() == "s%cret\\n"


def test_only_the_report_of_this_run_is_collected(tmp_path: Path) -> None:
    def shell(text: str) -> None:
        subprocess.run(["sh", "-ec", text], cwd=tmp_path, check=True)

    shell(steps.BEGIN_NIGHTLY)
    shell(steps.COLLECT_REPORT)
    assert not (tmp_path / steps.REPORT).exists()
    for run in ("20260101", "20260102"):
        old = tmp_path / ".ftbuild" / "nights" / run
        old.mkdir()
        (old / "report.md").write_text(run)
        os.utime(old, (1, 1))
    shell(steps.BEGIN_NIGHTLY)
    os.utime(tmp_path / ".ftbuild" / "nights" / "20260102", (2**31, 2**31))
    shell(steps.COLLECT_REPORT)
    assert (tmp_path / steps.REPORT / "report.md").read_text() == "20260102"


@pytest.mark.parametrize("one_host", [False, True])
def test_another_registry_has_secrets_of_its_own_and_no_token(one_host: bool) -> None:
    options = replace(OPTIONS, registry="harbor.example.com/team", one_host=one_host)
    text = "".join(github.files(options).values())
    assert "packages:" not in text
    assert "GITHUB_TOKEN" not in text
    assert "secrets.REGISTRY_PASSWORD" in text
    made = pipeline(options)
    assert made["variables"]["REGISTRY"] == "harbor.example.com/team"
    assert "REGISTRY_PASSWORD" not in made["variables"]


def test_the_options_reach_runners_matrix_and_every_job() -> None:
    options = ci.options(
        replace(SAMPLE, base=["open"]), CiOptions(cpu_runner="big, linux", gpu_runner="a100"), ROOT
    )
    made = workflows(options)
    assert made[github.CELL]["jobs"]["build"]["runs-on"] == ["big", "linux"]
    assert made[github.CELL]["jobs"]["smoke"]["runs-on"] == ["a100", github.FIRST_SM]
    assert made[github.CELL]["env"]["FTBUILD_CONFIG"] == "buildcfg/sample"
    assert "./bootstrap matrix --triton 22.12 --sm 80 --base open --format github" in str(made)
    assert pipeline(options)["smoke 22.12-sm80"]["tags"] == ["a100", "sm80"]
    header = github.files(options)[github.CELL].splitlines()[0]
    assert "`invoke dev.ci --github --triton 22.12 --sm 80 --base open --cpu-runner big,linux" in header
    assert "--config buildcfg/sample`" in header


def test_one_host_is_one_job_with_the_same_command_in_both_systems() -> None:
    options = replace(OPTIONS, one_host=True, selection=("--cell", "22.12-*"))
    made = workflows(options)
    assert made.keys() == {github.TEST, github.NIGHTLY}
    (job,) = made[github.NIGHTLY]["jobs"].values()
    line = "./bootstrap nightly --registry \"$REGISTRY\" --cell '22.12-*'"
    assert line in lines(job)
    assert line in lines(pipeline(options)["nightly"])


def test_an_image_for_several_sms_is_tested_on_a_gpu_of_the_first() -> None:
    made = pipeline(Options((Cell("22.12", (Sm(80), Sm(86)), "ngc", True),)))
    assert made["smoke 22.12-sm80_86"]["tags"] == ["gpu", "sm80"]
    assert made["build 22.12-sm80_86"]["variables"]["SMS"] == "80,86"


def test_what_github_hands_to_a_cell_is_in_the_matrix_and_names_that_cell(config: Config) -> None:
    cells = select(config, triton=["22.12"], sms=["80,86"])
    ((record,), given) = (
        json.loads(as_github(cells).splitlines()[0].removeprefix("matrix="))["include"],
        workflows(Options(cells))[github.NIGHTLY]["jobs"]["cell"]["with"],
    )
    keys = [re.fullmatch(r"\$\{\{ matrix\.(\w+) \}\}", text) for text in given.values()]
    assert {match[1] for match in keys if match} == {"id", *github.CELL_VARIABLES}
    assert select(config, triton=[record["triton"]], sms=[record["sms"]], bases=[record["base"]]) == cells


def test_a_configuration_outside_the_checkout_is_refused(config_folder: Path) -> None:
    with pytest.raises(ConfigError, match="in the checkout"):
        ci.options(Selection(config_folder), CiOptions(), ROOT)


def test_check_names_missing_changed_and_leftover_files(tmp_path: Path) -> None:
    split, one_host = github.files(OPTIONS), github.files(replace(OPTIONS, one_host=True))
    with pytest.raises(ConfigError, match=f"{github.TEST} is missing") as refused:
        drift.require_up_to_date(tmp_path, split, github.PATHS)
    assert refused.value.exit_code == 2
    drift.write(tmp_path, split, github.PATHS)
    drift.require_up_to_date(tmp_path, split, github.PATHS)
    assert drift.differences(tmp_path, one_host, github.PATHS) == [
        f"{github.TEST} is out of date",
        f"{github.NIGHTLY} is out of date",
        f"{github.CELL} is left over",
    ]
    drift.write(tmp_path, one_host, github.PATHS)
    assert not (tmp_path / github.CELL).exists()
    assert drift.differences(tmp_path, one_host, github.PATHS) == []


def test_a_file_that_people_wrote_is_never_overwritten_nor_removed(tmp_path: Path) -> None:
    file = tmp_path / gitlab.PATH
    file.write_text("stages: [mine]\n")
    with pytest.raises(ConfigError, match=r"was not written by invoke dev\.ci"):
        drift.write(tmp_path, gitlab.files(OPTIONS), gitlab.PATHS)
    assert file.read_text() == "stages: [mine]\n"
    assert drift.differences(tmp_path, {}, gitlab.PATHS) == []


def test_a_dry_run_prints_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = CiOptions(gitlab=True)
    assert ci.ci.function(SAMPLE, wanted, out=tmp_path, dry_run=True) == 0
    assert list(tmp_path.iterdir()) == []
    out = capsys.readouterr().out
    assert out.startswith(f"# --- {gitlab.PATH}\n# Made by `invoke dev.ci --gitlab")
    assert "github" not in out


def test_a_script_of_several_lines_is_a_block_and_nothing_is_an_anchor() -> None:
    shared = ["x"]
    text = yaml_file.render("# top", {"jobs": {"a": {"run": "one\ntwo\n", "b": shared, "c": shared}}})
    assert text.startswith("# top\n\njobs:\n  a:\n    run: |\n      one\n      two\n")
    assert "&" not in text
    assert load(text) == {"jobs": {"a": {"run": "one\ntwo\n", "b": shared, "c": shared}}}


def judged(plan: Plan, gate: Gate, state: State = State.OK) -> GateReport:
    return GateReport(gate, plan, {"runtime": "sha256:1"}, gate_records.results(gate, plan, state))


def test_the_summary_distinguishes_passed_failed_and_untested(config: Config, tmp_path: Path) -> None:
    selection = Selection(ROOT / "buildcfg", ["22.12"], ["80", "90"])
    good, bad = plans(config, selection)
    judged(good, VERIFY).write(good.folder(tmp_path))
    judged(bad, VERIFY, State.FAIL).write(bad.folder(tmp_path))
    judged(bad, SMOKE).write(bad.folder(tmp_path))
    rows = summary.markdown((good, bad), tmp_path).splitlines()[2:]
    assert rows == [
        f"| 22.12-sm80 | `{good.key}` | passed | **no record** |",
        f"| 22.12-sm90 | `{bad.key}` | **failed**: machine code | passed |",
    ]


def test_a_record_of_another_input_key_does_not_count(config: Config, tmp_path: Path) -> None:
    (plan,) = plans(config, Selection(ROOT / "buildcfg", ["22.12"], ["80"]))
    judged(plan, SMOKE).write(tmp_path / plan.cell.id / "0123456789ab")
    assert summary.markdown((plan,), tmp_path).endswith("| **no record** | **no record** |")


def test_a_record_that_publishing_would_refuse_is_no_result(config: Config, tmp_path: Path) -> None:
    (plan,) = plans(config, Selection(ROOT / "buildcfg", ["22.12"], ["80"]))
    report = judged(plan, SMOKE)
    replace(report, results=report.results[1:]).write(plan.folder(tmp_path))
    (plan.folder(tmp_path) / VERIFY.record).write_text('{"images": []}')
    (row,) = summary.markdown((plan,), tmp_path).splitlines()[2:]
    assert "| **no result**: the record of verify is damaged: " in row
    assert "| **no result**: smoke has not shown: answers equal the references (gpt-fp32) |" in row


@pytest.mark.parametrize("one_host", [False, True])
def test_every_line_of_every_job_is_shell(one_host: bool) -> None:
    options = replace(OPTIONS, one_host=one_host, selection=("--cell", "it's *"))
    jobs = [job for job in pipeline(options).values() if isinstance(job, dict) and "script" in job]
    jobs += [job for made in workflows(options).values() for job in made["jobs"].values() if "steps" in job]
    for line in (line for job in jobs for line in lines(job)):
        subprocess.run(["bash", "-n", "-c", line.replace("${{", "${")], check=True, capture_output=True)


@pytest.mark.parametrize("options", [{"keyless": True}, {"trusted": ("keys/ours.pub",)}])
@pytest.mark.parametrize("one_host", [False, True])
def test_builds_take_what_the_registry_has_where_somebody_is_trusted(
    one_host: bool, options: dict[str, Any]
) -> None:
    plain = replace(OPTIONS, one_host=one_host)
    assert "--from" not in "".join([*github.files(plain).values(), *gitlab.files(plain).values()])
    trusting = replace(plain, **options)
    texts = workflows(trusting)
    on_github = texts[github.NIGHTLY]["jobs"]["nightly"] if one_host else texts[github.CELL]["jobs"]["build"]
    made = pipeline(trusting)
    for job in (on_github, made["nightly" if one_host else ".build"]):
        (taking,) = (n for n, line in enumerate(lines(job)) if '--from "$REGISTRY"' in line)
        assert any("docker login" in line for line in lines(job)[:taking])
        if "keyless" in options:
            assert "FTBUILD_SIGN_IDENTITY" in {**job.get("env", {}), **job.get("variables", {})}
    if "trusted" in options:
        outer = texts[github.NIGHTLY if one_host else github.CELL]["env"]
        assert outer["FTBUILD_TRUSTED_KEYS"] == made["variables"]["FTBUILD_TRUSTED_KEYS"] == "keys/ours.pub"
        assert "--trust keys/ours.pub" in github.files(trusting)[github.NIGHTLY]


def test_a_key_that_jobs_would_not_find_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.pub").touch()
    for key in (str(tmp_path / "elsewhere.pub"), "gone.pub"):
        with pytest.raises(ConfigError, match="in the checkout"):
            ci.options(SAMPLE, CiOptions(trust=(key,)), ROOT)
    assert ci.options(SAMPLE, CiOptions(trust=("LICENSE",)), ROOT).trusted == ("LICENSE",)
    assert ci.options(SAMPLE, CiOptions(trust=("awskms:///alias/x",)), ROOT).substitutes
