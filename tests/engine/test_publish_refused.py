"""Refused publishing: gates, credentials, names; and retries."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.gates.report import SMOKE, VERIFY
from ftbuild.plan import Plan
from ftbuild.text.results import State
from testing.publishing import CELL, GATES, Bench, bench, complete_ids, immutable, moving
from testing.registries import (
    PASSWORD,
    Registry,
    basic,
    faulty,
    free_port,
    other_name,
    password,
    plain,
    tokens,
)
from testing.tokens import TokenServer

if TYPE_CHECKING:
    import docker

Judge = Callable[[Bench, Plan, dict[str, str]], None]
SECRET = "hunter2 and more"


@pytest.fixture
def fresh_bench(client: docker.DockerClient, tmp_path: Path) -> Iterator[Bench]:
    with bench(client, tmp_path / "bench") as made:
        yield made


@pytest.fixture(scope="module")
def open_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with plain(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def failing_registry(tmp_path: Path) -> Iterator[Registry]:
    with faulty(tmp_path / "registry") as running:
        yield running


@pytest.fixture(params=[basic, tokens], ids=["basic", "tokens"])
def guarded_registry(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Registry]:
    start: Callable[[Path, str], AbstractContextManager[Registry]] = request.param
    with start(tmp_path / "registry", other_name()) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def token_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    with tokens(tmp_path / "registry", other_name()) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def server(token_registry: Registry) -> TokenServer:
    """Return the token server of that registry."""
    assert token_registry.tokens
    return token_registry.tokens


# The gates


def without_verify(at: Bench, plan: Plan, images: dict[str, str]) -> None:
    at.judge(plan, images, SMOKE)


def without_smoke(at: Bench, plan: Plan, images: dict[str, str]) -> None:
    at.judge(plan, images, VERIFY)


def failed_verify(at: Bench, plan: Plan, images: dict[str, str]) -> None:
    at.judge(plan, images, SMOKE)
    at.judge(plan, images, VERIFY, state=State.FAIL)


def failed_smoke(at: Bench, plan: Plan, images: dict[str, str]) -> None:
    at.judge(plan, images, VERIFY)
    at.judge(plan, images, SMOKE, state=State.FAIL)


def changed_afterwards(at: Bench, plan: Plan, images: dict[str, str]) -> None:
    at.judge(plan, images, *GATES)
    at.build(plan)


def other_inputs(at: Bench, plan: Plan, images: dict[str, str]) -> None:
    at.judge(plan, images, VERIFY)
    at.judge(plan, images, SMOKE, key="0" * 12)


def cut_short(at: Bench, plan: Plan, images: dict[str, str]) -> None:
    at.judge(plan, images, *GATES)
    record = at.folder(plan) / SMOKE.record
    record.write_text(record.read_text()[:200])


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (without_verify, "there is no record of verify"),
        (without_smoke, "there is no record of smoke"),
        (failed_verify, "verify failed: machine code"),
        (failed_smoke, "smoke failed: answers equal the references"),
        (changed_afterwards, "verify tested another runtime and sdk image than the present one"),
        (other_inputs, "the record of smoke is about the inputs 000000000000"),
        (cut_short, "the record of smoke is damaged"),
    ],
)
def test_only_images_that_passed_both_gates_are_published(
    fresh_bench: Bench, open_registry: Registry, judge: Judge, message: str
) -> None:
    plan = fresh_bench.plan(*CELL)
    judge(fresh_bench, plan, fresh_bench.build(plan))
    done = fresh_bench.publish(open_registry)
    assert done.returncode == 10
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert fresh_bench.repository(open_registry).tags() == []


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (without_verify, "there is no record of verify"),
        (failed_smoke, "smoke failed: answers equal the references"),
        (changed_afterwards, "verify tested another"),
    ],
)
def test_allow_unsmoked_allows_nothing_else(
    fresh_bench: Bench, open_registry: Registry, judge: Judge, message: str
) -> None:
    plan = fresh_bench.plan(*CELL)
    judge(fresh_bench, plan, fresh_bench.build(plan))
    done = fresh_bench.publish(open_registry, "--allow-unsmoked")
    assert done.returncode == 10
    assert message in done.stderr
    assert fresh_bench.repository(open_registry).tags() == []


def test_an_image_staged_before_the_tested_one_is_not_published(
    fresh_bench: Bench, open_registry: Registry
) -> None:
    plan = fresh_bench.plan(*CELL)
    fresh_bench.judge(plan, fresh_bench.build(plan), VERIFY)
    assert (
        fresh_bench.run(open_registry, "registry.stage", "--registry", open_registry.prefix, *CELL).returncode
        == 0
    )
    _, images = fresh_bench.tested()
    done = fresh_bench.publish(open_registry)
    assert done.returncode == 0, done.stderr
    for product, image in images.items():
        assert image in complete_ids(fresh_bench.repository(open_registry), moving(plan)[product])


def test_a_tag_set_by_others_does_not_count_as_a_tested_image(
    fresh_bench: Bench, open_registry: Registry
) -> None:
    plan = fresh_bench.plan(*CELL)
    fresh_bench.judge(plan, fresh_bench.build(plan), VERIFY)
    assert fresh_bench.publish(open_registry, "--allow-unsmoked").returncode == 0
    there = fresh_bench.repository(open_registry)
    for tag in immutable(plan).values():
        index = there.manifest(f"{tag}-unsmoked")
        assert index
        there.put_manifest(tag, index.raw, index.descriptor.media_type)
    done = fresh_bench.publish(open_registry)
    assert done.returncode == 10
    assert "it has not passed verify,smoke, but verify" in done.stderr
    assert not {*moving(plan).values()} & {*there.tags()}


def test_a_refused_cell_does_not_stop_the_others(fresh_bench: Bench, open_registry: Registry) -> None:
    plan, _ = fresh_bench.tested()
    done = fresh_bench.publish(
        open_registry, "--format", "json", cell=("--triton", "22.12", "--sm", "80", "--sm", "86")
    )
    assert done.returncode == 10
    states = {outcome["cell"]: outcome["state"] for outcome in json.loads(done.stdout)}
    assert states == {"22.12-sm80": "failed", "22.12-sm86": "published"}
    assert "22.12-sm80 is neither built here nor staged" in done.stderr
    assert fresh_bench.repository(open_registry).head(moving(plan)["runtime"])


# Credentials


@pytest.mark.parametrize("entry", [password(secret=SECRET), None], ids=["wrong", "none"])
def test_wrong_credentials_are_refused_and_never_shown(
    fresh_bench: Bench, guarded_registry: Registry, entry: dict[str, str] | None
) -> None:
    fresh_bench.tested()
    guarded_registry.login(entry) if entry else guarded_registry.logout()
    done = fresh_bench.publish(guarded_registry)
    assert done.returncode == 10
    assert f"docker login {guarded_registry.host}" in done.stderr
    assert "Traceback" not in done.stderr
    assert_nowhere(fresh_bench, done.stdout + done.stderr, SECRET)


def test_good_credentials_leave_no_trace(fresh_bench: Bench, guarded_registry: Registry) -> None:
    fresh_bench.tested()
    done = fresh_bench.publish(guarded_registry)
    assert done.returncode == 0, done.stderr
    assert_nowhere(fresh_bench, done.stdout + done.stderr, PASSWORD)


def test_a_read_only_account_gets_a_hint(
    fresh_bench: Bench, token_registry: Registry, server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_bench.tested()
    give = server.token
    monkeypatch.setattr(server, "token", lambda user, scopes: give(user, only_pull(scopes)))
    done = fresh_bench.publish(token_registry)
    assert done.returncode == 10
    assert "denied" in done.stderr
    assert f"docker login {token_registry.host}, with an account that may" in done.stderr


def only_pull(scopes: list[str]) -> list[str]:
    return [f"{scope.rpartition(':')[0]}:pull" for scope in scopes]


def test_a_token_that_expires_during_a_push_is_replaced(
    fresh_bench: Bench, failing_registry: Registry
) -> None:
    """The engine sends a layer with one token: its bytes are taken, and its end comes too late."""
    plan, images = fresh_bench.tested(size=8_000_000)
    body = b'{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}'
    failing_registry.proxy_faults.answer("^PUT .*/blobs/uploads/", 401, body=body)
    done = fresh_bench.publish(failing_registry)
    assert done.returncode == 0, done.stderr
    assert re.search("the token expired on the way: .*: trying again in 1 s", done.stderr)
    repository = fresh_bench.repository(failing_registry)
    assert images["runtime"] in complete_ids(repository, moving(plan)["runtime"])


def assert_nowhere(at: Bench, output: str, secret: str) -> None:
    """Fail if the secret, plain or as Docker stores it, is in the output or a written file."""
    encoded = base64.b64encode(f"ada:{secret}".encode()).decode()
    written = [file.read_text(errors="replace") for file in at.work.rglob("*") if file.is_file()]
    assert written
    for text in (output, *written):
        assert secret not in text
        assert encoded not in text


# Busy, broken or unreachable registries


@pytest.mark.parametrize(
    ("status", "times", "options"), [(503, 1, ()), (429, 2, ()), (503, 1, ("--stage", "waiting"))]
)
def test_a_registry_that_is_busy_at_every_step_is_retried(
    fresh_bench: Bench, failing_registry: Registry, status: int, times: int, options: tuple[str, ...]
) -> None:
    plan, images = fresh_bench.tested()
    staged = "/v2/team/waiting/.*/manifests/22" if options else ".*/manifests/staging-"
    here = "^PUT /v2/team/[^/]*/manifests/"
    failing_registry.proxy_faults.answer("^HEAD .*/manifests/", status)
    failing_registry.proxy_faults.answer(f"^PUT {staged}", status)
    failing_registry.proxy_faults.answer("^PUT .*/manifests/sha256:", status)
    failing_registry.proxy_faults.answer(f"{here}22.12-sm86-[0-9a-f]*$", status, times=times)
    failing_registry.proxy_faults.answer(f"{here}22.12-sm86$", status, times=times)
    done = fresh_bench.publish(failing_registry, *options)
    assert done.returncode == 0, done.stderr
    assert all(fault.times == 0 for fault in failing_registry.proxy_faults.pending)
    assert len(re.findall("the push was refused: .*: trying again in 1 s", done.stderr)) == 1
    for product, image in images.items():
        assert image in complete_ids(fresh_bench.repository(failing_registry), moving(plan)[product])


@pytest.mark.parametrize("host", ["127.0.0.1", "registry.invalid"])
def test_an_unreachable_registry_is_an_error_within_a_minute(fresh_bench: Bench, host: str) -> None:
    fresh_bench.tested()
    start = time.monotonic()
    nowhere = Registry(f"{host}:{free_port()}", fresh_bench.work)
    done = fresh_bench.publish(nowhere)
    assert time.monotonic() - start < 60  # seconds alone; a busy engine takes its time to answer
    assert done.returncode == 4
    assert f"the registry {nowhere.host} cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


# Names


@pytest.mark.parametrize(
    ("task", "name", "hint"),
    [
        ("publish", "registry.example.com/Team", "lower case: team"),
        ("publish", "https://registry.example.com/team", "without the scheme"),
        ("registry.stage", "docker.io", "docker.io/USER"),
        ("registry.pull", "nvcr.io", "nvcr.io/ORG"),
    ],
)
def test_an_invalid_registry_is_a_usage_error(
    fresh_bench: Bench, open_registry: Registry, task: str, name: str, hint: str
) -> None:
    done = fresh_bench.run(open_registry, task, "--registry", name, *CELL)
    assert done.returncode == 2
    assert f"--registry {name}" in done.stderr
    assert hint in done.stderr


def test_publishing_without_a_registry_is_a_usage_error(fresh_bench: Bench, open_registry: Registry) -> None:
    done = fresh_bench.run(open_registry, "publish", *CELL, FTBUILD_REGISTRY="")
    assert done.returncode == 2
    assert "--registry host/path, or FTBUILD_REGISTRY" in done.stderr


def test_what_other_machines_may_have_compiled_is_published_only_on_request(
    fresh_bench: Bench, open_registry: Registry
) -> None:
    plan = fresh_bench.plan(*CELL)
    fresh_bench.judge(plan, fresh_bench.build(plan, compiler_cache="remote"), *GATES)
    done = fresh_bench.publish(open_registry)
    assert done.returncode == 10
    assert "was compiled with a remote compiler cache (CCACHE_REMOTE_STORAGE)" in done.stderr
    assert fresh_bench.repository(open_registry).head(moving(plan)["runtime"]) is None
    done = fresh_bench.publish(open_registry, "--allow-shared-cache")
    assert done.returncode == 0, done.stderr
    index = fresh_bench.repository(open_registry).manifest(moving(plan)["runtime"])
    assert index is not None
    assert (index.content.annotations or {})["io.ftbuild.compiler-cache"] == "remote"
