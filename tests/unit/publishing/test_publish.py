"""Decisions of publishing without a registry: names, gates, retries, push output, index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftbuild.architecture import Architecture
from ftbuild.cli import publishing
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, HostError, NothingSelected, PublishError
from ftbuild.gates.report import SMOKE, VERIFY, Gate, GateReport
from ftbuild.matrix import select
from ftbuild.plan import LABELS, PRODUCTS, Plan, Revision
from ftbuild.planning import make_plan
from ftbuild.publishing import gates, index, names, push, retry, signing
from ftbuild.publishing.index import Entry
from ftbuild.publishing.status import PublishStatus
from ftbuild.registry.client import Descriptor, Manifest, digest_of
from ftbuild.sm import Sm
from ftbuild.text import reporter
from ftbuild.text.results import State
from testing import gate_records
from tests.unit.registry.answering import PAIR

REVISION = Revision(commit="a" * 40, time="2026-01-01T00:00:00+00:00")
IDS = {"runtime": "sha256:" + "1" * 64, "sdk": "sha256:" + "2" * 64}
DIGEST = "sha256:" + "7" * 64
BUSY = "the push was refused: received unexpected HTTP status: 503 Service Unavailable"


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


_plans: dict[tuple[int, str, str | None], tuple[Config, Plan]] = {}


def plan_of(config: Config, sm: str = "86", base: str | None = None) -> Plan:
    """Plan a cell on bases with digests: nothing else is published. Layers stay as engines push them.

    Made once: it cannot be changed.
    """
    key = (id(config), sm, base)
    if key not in _plans:
        digests = {"ngc": {"22.12": DIGEST}}
        locked = replace(config, lock=config.lock.model_copy(update={"bases": digests}))
        (found,) = select(locked, triton=["22.12"], sms=[sm], bases=[base] if base else [])
        _plans[key] = config, replace(make_plan(locked, found, REVISION), compression="gzip")
    return _plans[key][1]


def judge(
    at: Path, cell: Plan, gate: Gate, *, images: Mapping[str, str] = IDS, state: State = State.OK
) -> None:
    GateReport(gate, cell, images, gate_records.results(gate, cell, state)).write(at)


# Retries


@pytest.mark.parametrize(
    "message",
    [
        # Each is recognized by one thing only, so that no other can stand in for it.
        "unexpected status from HEAD request: 429",
        "received unexpected HTTP status: 500",
        "failed to do request: 502",
        "received unexpected HTTP status: 503",
        "unexpected status from PUT request: 504",
        "toomanyrequests: you have reached your pull rate limit",
        "You have made Too Many Requests",
        "received unexpected HTTP status: Internal Server Error",
        "error parsing HTTP status: Bad Gateway",
        "error parsing HTTP status: Service Unavailable",
        "error parsing HTTP status: Gateway Time-out",
        'Put "https://x/v2/": read tcp 10.0.0.1:1->10.0.0.2:443: read: connection reset by peer',
        "dial tcp 127.0.0.1:5000: connect: connection refused",
        "write: broken pipe",
        "unexpected EOF",
        "net/http: TLS handshake timeout",
        "dial tcp: i/o timeout",
        "dial tcp 10.0.0.2:443: connect: connection timed out",
        "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
        "dial tcp 10.0.0.2:443: connect: no route to host",
        f"{retry.TOKEN_EXPIRED}: unauthorized: authentication required",
    ],
)
def test_transient_failures_are_retried(message: str) -> None:
    assert retry.is_transient(PublishError(message))


@pytest.mark.parametrize(
    "message",
    [
        "unauthorized: authentication required",
        "denied: requested access to the resource is denied",
        "unexpected status from PUT request: 401 Unauthorized",
        "unexpected status from PUT request: 403 Forbidden",
        "unexpected status from PUT request: 404 Not Found",
        "manifest invalid: manifest invalid",
        "the registry has another image than the one that was pushed as 127.0.0.1:5000/x:1",
        "layer sha256:a503b is 15030 bytes long",
    ],
)
def test_permanent_failures_are_not_retried(message: str) -> None:
    assert not retry.is_transient(PublishError(message))


class Busy:
    """An action that fails a number of times, with its reports and pauses."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.reports: list[str] = []
        self.slept: list[float] = []
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"

    def tried(self) -> str:
        return retry.with_backoff(self, self.reports.append, sleep=self.slept.append)


def test_retries_wait_longer_and_longer_and_are_reported() -> None:
    busy = Busy(*[PublishError(f"{BUSY}\nmore of it")] * 3)
    assert busy.tried() == "done"
    assert busy.slept == [1.0, 2.0, 4.0]
    assert busy.reports[1] == f"{BUSY}: trying again in 2 s"


def test_retries_end_with_the_last_error() -> None:
    busy = Busy(*[PublishError(BUSY)] * 99)
    with pytest.raises(PublishError, match="503"):
        busy.tried()
    assert busy.slept == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    assert busy.calls == 7


def test_a_command_that_is_tried_again_first_looks_whether_it_is_done(tmp_path: Path) -> None:
    asked: list[bool] = []

    def is_done() -> bool:
        asked.append((tmp_path / "tried").exists())
        return True

    program = ["sh", "-c", f"touch {tmp_path}/tried; echo '{BUSY}' >&2; exit 1"]
    said: list[str] = []
    done = retry.command(program, said.append, timeout=60, what="w", where="", hint="", is_done=is_done)
    assert (done, asked) == ("", [True])
    assert said == [f"w: {BUSY}: trying again in 1 s"]


def test_a_command_that_is_tried_again_is_run_again(tmp_path: Path) -> None:
    again = f"[ -e {tmp_path}/tried ] && echo done && exit; touch {tmp_path}/tried; echo '{BUSY}' >&2; exit 1"
    answer = retry.command(["sh", "-c", again], print, timeout=60, what="w", where="", hint="")
    assert answer == "done\n"


def test_a_command_that_fails_without_a_word_is_told_by_its_exit_code() -> None:
    with pytest.raises(PublishError, match="w: false ended with code 1"):
        retry.command(["false"], print, timeout=60, what="w", where="", hint="")


def test_the_place_of_a_failure_does_not_make_it_transient() -> None:
    refused = Busy(PublishError("denied", where="registry.example.com:503/timeout/429"))
    with pytest.raises(PublishError, match="denied"):
        refused.tried()
    assert refused.slept == []


# Names


def test_staged_images_differ_by_repository_or_by_tag(cell: Plan) -> None:
    beside = names.resolve("registry.example.com/team", None, "triton_with_ft")
    assert beside.repository == beside.staging == "registry.example.com/team/triton_with_ft"
    assert beside.staged(cell, "sdk") == f"staging-22.12-sm86-{cell.key}-sdk"
    assert names.resolve("registry.example.com/team/", "/", "x").staging == "registry.example.com/team/x"
    apart = names.resolve("registry.example.com/team/", "/waiting/", "triton_with_ft")
    assert apart.repository == "registry.example.com/team/triton_with_ft"
    assert apart.staging == "registry.example.com/team/waiting/triton_with_ft"
    assert apart.staged(cell, "runtime") == names.tag(cell, "runtime") == f"22.12-sm86-{cell.key}"
    assert names.tag(cell, "sdk", moving=True) == "22.12-sm86-sdk"


def test_a_staging_path_that_cannot_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="'Waiting' cannot be part"):
        names.resolve("registry.example.com/team", "Waiting", "triton_with_ft")
    with pytest.raises(ConfigError, match=r"docker\.io cannot have"):
        names.resolve("docker.io/ada", "waiting", "triton_with_ft")


# Gates


def test_images_that_passed_both_gates_may_be_published(cell: Plan, tmp_path: Path) -> None:
    for gate in gates.ALL:
        judge(tmp_path, cell, gate)
    gates.require(cell, tmp_path, {product: (image, DIGEST) for product, image in IDS.items()})


def test_each_reason_not_to_publish_comes_with_a_hint(cell: Plan, tmp_path: Path) -> None:
    images = {product: (image,) for product, image in IDS.items()}

    def reason(folder: Path) -> str:
        with pytest.raises(PublishError) as refused:
            gates.require(cell, folder, images)
        assert refused.value.exit_code == 10
        assert refused.value.what.startswith("22.12-sm86 is not published: ")
        return str(refused.value)

    assert "there is no record of verify" in reason(tmp_path)
    assert "invoke verify with the options of this cell" in reason(tmp_path)
    judge(tmp_path, cell, VERIFY)
    assert "there is no record of smoke" in reason(tmp_path)
    assert "invoke smoke with the options of this cell; --allow-unsmoked" in reason(tmp_path)
    judge(tmp_path, cell, SMOKE, state=State.FAIL)
    assert "smoke failed: answers equal the references\n" in reason(tmp_path)
    judge(tmp_path, cell, SMOKE, images={**IDS, "sdk": DIGEST})
    assert "smoke tested another sdk image than the present one" in reason(tmp_path)
    judge(tmp_path, replace(cell, key="0" * 12), SMOKE)
    assert f"about the inputs 000000000000, not {cell.key}" in reason(tmp_path)
    assert str(tmp_path / "smoke.json") in reason(tmp_path)


# Push output of the engine


def test_a_push_is_followed_to_its_end() -> None:
    stream: list[dict[str, Any]] = [
        {"status": "The push refers to repository [x]"},
        {"status": "Preparing", "progressDetail": {}, "id": "a"},
        {"status": "Pushing", "progressDetail": {"current": 100, "total": 300}, "id": "a"},
        {"status": "Pushing", "progressDetail": {"current": 50}, "id": "b"},
        {"status": "Pushing", "progressDetail": {"current": 300, "total": 300}, "id": "a"},
        {"status": "RemoteImage", "progressDetail": {}, "id": "a"},
        {"progressDetail": {}, "aux": {"Tag": "1", "Digest": DIGEST, "Size": 1}},
    ]
    assert push.follow(stream, fail) == push.Ended(None, 350, DIGEST)


def test_a_refusal_in_the_middle_of_the_stream_is_recognized() -> None:
    stream: list[dict[str, Any]] = [
        {"status": "Pushing", "progressDetail": {"current": 100, "total": 300}, "id": "a"},
        {"errorDetail": {"message": "unauthorized: authentication required"}, "error": "unauthorized: it is"},
        {"status": "never read"},
    ]
    assert push.follow(stream, fail) == push.Ended("unauthorized: it is", 100)
    assert push.follow(stream[1:], fail) == push.Ended("unauthorized: it is", 0)


def test_a_long_push_reports_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "REPORT_SECONDS", 0.0)
    reports: list[str] = []
    detail = {"current": 1_000_000, "total": 4_000_000}
    push.follow([{"status": "Pushing", "progressDetail": detail, "id": "a"}], reports.append)
    assert reports == ["pushed 1 of 4 MB"]


def fail(message: str) -> None:
    pytest.fail(f"unexpected report: {message}")


# Publishing status


def status_of(cell: Plan, published: Any = None, moving: Any = None, unsmoked: Any = None) -> PublishStatus:
    def both(value: Any) -> dict[str, str | None]:
        return value if isinstance(value, dict) else dict.fromkeys(PRODUCTS, value)

    return PublishStatus(cell, both(published), both(moving), both(unsmoked))


def test_a_cell_is_complete_when_moving_and_immutable_tags_agree(cell: Plan) -> None:
    assert not status_of(cell).is_published
    half = {"runtime": DIGEST, "sdk": None}
    assert not status_of(cell, half, half).is_published
    assert not status_of(cell, half, half).is_complete
    assert status_of(cell, DIGEST).is_published
    assert not status_of(cell, DIGEST).is_complete
    assert not status_of(cell, DIGEST, half).is_complete
    assert not status_of(cell, DIGEST, "sha256:" + "8" * 64).is_complete
    assert status_of(cell, DIGEST, DIGEST).is_complete
    assert status_of(cell, unsmoked=DIGEST).is_unsmoked
    assert not status_of(cell, unsmoked=half).is_unsmoked
    assert not status_of(cell, unsmoked=DIGEST).is_published


def test_what_is_published_of_a_cell_is_listed(cell: Plan) -> None:
    assert status_of(cell, DIGEST).digests() == [DIGEST] * 2
    assert status_of(cell, {"runtime": None, "sdk": DIGEST}, moving=IDS).digests() == [DIGEST]
    assert status_of(cell).digests() == []


# Index


class FakeRepository:
    """A repository with given tags and annotations."""

    def __init__(self, name: str, tags: Mapping[str, Mapping[str, str]]) -> None:
        self.name, self._tags = name, tags

    def tags(self) -> list[str]:
        return list(self._tags)

    def manifest(self, tag: str) -> Manifest:
        raw = json.dumps({"manifests": PAIR, "annotations": self._tags[tag]}).encode()
        return Manifest(Descriptor("application/vnd.oci.image.index.v1+json", digest_of(raw), len(raw)), raw)


def entry(triton: str, sms: tuple[int, ...], product: str = "runtime", base: str = "ngc") -> Entry:
    tag = f"{triton}-sm{'_'.join(map(str, sms))}{'' if product == 'runtime' else '-sdk'}"
    codes = tuple(map(Sm, sms))
    return Entry(
        "r.example/x", tag, DIGEST, product, tag, "0" * 12, base, triton, "2.29.0", "11.8", "520", codes
    )


ENTRIES = (
    entry("22.07", (80,)),
    entry("22.12", (80,)),
    entry("22.12", (80,), "sdk"),
    entry("22.12", (80, 86)),
    entry("22.03", (86,)),
    entry("22.12", (90,)),
)


@pytest.mark.parametrize("letter", "09af")
def test_only_moving_tags_are_in_the_index(config: Config, letter: str) -> None:
    """Use keys that begin with a letter, as names of bases do."""
    key = f"{letter}1234567890{letter}"
    made = {
        tag: made.labels(product)
        for base in ("ngc", "open")
        for made in (replace(plan_of(config, "80,86", base), key=key),)
        for product in PRODUCTS
        for moves in (True, False)
        for tag in [names.tag(made, product, moving=moves)]
    }
    others = {"latest": {}, "22.12-sm80_86-sdk-unsmoked": {}, "buildcache": {}, "22.12-sm70": {"a": "b"}}
    beside = {f"{tag}-unsmoked": labels for tag, labels in made.items() if key in tag}
    staged = {f"staging-{tag}": labels for tag, labels in made.items() if key in tag}
    found = index.read(FakeRepository("r.example/x", {**made, **others, **beside, **staged}))  # type: ignore[arg-type]
    assert [one.tag for one in found] == [
        "22.12-sm80_86",
        "22.12-sm80_86-ngc",
        "22.12-sm80_86-ngc-sdk",
        "22.12-sm80_86-sdk",
    ]
    assert {one.sms for one in found} == {(80, 86)}
    assert {one.key for one in found} == {key}


@pytest.mark.parametrize(
    "lean", ["without-beams", "without-beams_int8", "heads-64_128", "without-int8-heads-64"]
)
def test_an_image_that_leaves_something_out_is_in_the_index_after_the_others(
    config: Config, lean: str
) -> None:
    (cell,) = select(config, cells=[f"22.12-sm90-{lean}"])
    made = replace(
        make_plan(config, cell, Revision("a" * 40, "2026-01-01T00:00:00+00:00")), key="0123456789ab"
    )
    labels = {
        names.tag(made, product, moving=moves): made.labels(product)
        for product in PRODUCTS
        for moves in (True, False)
    }
    found = index.read(FakeRepository("r.example/x", labels))  # type: ignore[arg-type]
    assert [one.tag for one in found] == [f"22.12-sm90-{lean}", f"22.12-sm90-{lean}-sdk"]
    old = entry("22.07", (90,))
    assert [one.tag for one in index.fitting((*found, old), Sm(90))] == ["22.07-sm90", f"22.12-sm90-{lean}"]


def test_only_annotations_of_ours_make_an_entry_of_the_index(cell: Plan) -> None:
    """Other tools write `base` or `architecture` there as well, with a meaning of their own."""
    labels, tag = cell.labels("runtime"), names.tag(cell, "runtime", moving=True)
    bare = {key.rpartition(".")[2]: value for key, value in labels.items() if key.startswith(LABELS)}
    foreign = dict.fromkeys(bare, "theirs") | {"architecture": "arm64"}
    assert index.read(FakeRepository("r.example/x", {tag: bare}), fail) == ()  # type: ignore[arg-type]
    for needed in ("product", "cell", "key", "base", "triton", "server", "cuda", "driver", "sm"):
        some = {key: value for key, value in labels.items() if key != f"{LABELS}.{needed}"}
        assert index.read(FakeRepository("r.example/x", {tag: some}), fail) == (), needed  # type: ignore[arg-type]
    (ours,) = index.read(FakeRepository("r.example/x", {tag: {**labels, **foreign}}), fail)  # type: ignore[arg-type]
    assert (ours.base, ours.architecture, ours.key) == (cell.base.name, "amd64", cell.key)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("triton", "latest", "its annotation triton is 'latest'"),
        ("driver", "", "its annotation driver is ''"),
        ("product", "devel", "its annotation product is 'devel'"),
        ("sm", "many", "many"),
        ("tried", "\x1b[2J", "its annotation tried is"),
        ("key", "k" * 5000, "its annotation key is 'kkk"),
    ],
)
def test_an_image_with_an_odd_annotation_is_left_out_of_the_index_with_the_reason(
    cell: Plan, field: str, value: str, said: str
) -> None:
    labels, tag = cell.labels("runtime"), names.tag(cell, "runtime", moving=True)
    odd = {**labels, f"{LABELS}.{field}": value}
    heard: list[str] = []
    assert index.read(FakeRepository("r.example/x", {tag: odd}), heard.append) == ()  # type: ignore[arg-type]
    (line,) = heard
    assert line.startswith(f"{tag} is left out of the index: ")
    assert said in line
    assert len(line) < 400
    assert line.isprintable()


def test_what_an_image_was_run_on_is_in_the_index(cell: Plan) -> None:
    labels, tag = cell.labels("runtime"), names.tag(cell, "runtime", moving=True)
    run = {**labels, f"{LABELS}.tried": "NVIDIA H100, driver 580"}
    (found,) = index.read(FakeRepository("r.example/x", {tag: run}), fail)  # type: ignore[arg-type]
    assert found.tried == "NVIDIA H100, driver 580"


def test_images_for_another_processor_stand_apart(config: Config) -> None:
    (cell,) = select(config, triton=["26.06"], sms=["90"], bases=["open-trixie-arm64"])
    made = make_plan(config, cell, Revision("a" * 40, "2026-01-01T00:00:00+00:00"))
    labels = {names.tag(made, "runtime", moving=True): made.labels("runtime")}
    (arm,) = index.read(FakeRepository("r.example/x", labels))  # type: ignore[arg-type]
    assert (arm.architecture, arm.tag) == ("arm64", "26.06-sm90-open-trixie-arm64")
    entries = (*ENTRIES, arm)
    assert [one.tag for one in index.fitting(entries, Sm(90))] == ["22.12-sm90"]
    assert index.fitting(entries, Sm(90), architecture="arm64") == [arm]
    gpus = json.loads(index.as_json(entries, [Sm(80), Sm(90)]))["gpus"]
    assert list(gpus) == ["8.0", "9.0", "9.0 arm64"]
    assert gpus["9.0 arm64"] == [f"r.example/x:{arm.tag}@{arm.digest}"]
    assert "| 9.0 arm64 | `26.06-sm90-open-trixie-arm64` |" in index.as_markdown(entries, [Sm(90)])
    assert index.from_json(index.as_json(entries, [])) == entries


@pytest.mark.parametrize(
    ("machine", "arch", "expected"),
    [
        ("x86_64", None, "22.12-sm90"),
        ("aarch64", None, "26.06-sm90-open-trixie-arm64"),
        ("aarch64", "amd64", "22.12-sm90"),
        ("x86_64", "arm64", "26.06-sm90-open-trixie-arm64"),
    ],
)
def test_the_image_for_this_machine_is_one_of_its_processor(
    machine: str,
    arch: Architecture | None,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    arm = replace(entry("26.06", (90,)), tag="26.06-sm90-open-trixie-arm64", architecture="arm64")
    file = tmp_path / "index.json"
    file.write_text(index.as_json((*ENTRIES, arm), []))
    assert publishing.which.function(index=file, sm=("90",), arch=arch, format="json") == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    assert [one["tag"] for one in found] == [expected]
    with pytest.raises(NothingSelected, match=r"for arm64 runs on compute capability 8\.0"):
        publishing.which.function(index=file, sm=("80",), arch="arm64")


def test_the_image_compiled_for_a_gpu_comes_first_then_the_newest() -> None:
    def tags(sm: int, product: str = "runtime") -> list[str]:
        return [one.tag for one in index.fitting(ENTRIES, Sm(sm), product)]

    assert tags(80) == ["22.12-sm80", "22.12-sm80_86", "22.07-sm80"]
    assert tags(86) == ["22.12-sm80_86", "22.03-sm86", "22.12-sm80", "22.07-sm80"]
    assert tags(80, "sdk") == ["22.12-sm80-sdk"]
    assert tags(70) == []


@pytest.mark.parametrize(("driver", "is_old"), [("", False), ("520.61.05", False), ("519.9", True)])
def test_a_driver_that_is_too_old_for_an_image_is_said(driver: str, is_old: bool) -> None:
    wanted = replace(ENTRIES[0], driver="520.61")
    said = index.answer(Sm(80), [wanted], driver)
    assert ("driver 520.61, newer than the installed one" in said) == is_old
    assert wanted.pull in said
    assert index.answer(Sm(80), [], driver).endswith(": none")


@given(st.permutations(ENTRIES))
def test_the_order_of_a_registrys_tags_does_not_matter(entries: list[Entry]) -> None:
    assert index.fitting(entries, Sm(86)) == index.fitting(ENTRIES, Sm(86))


def test_the_json_index_round_trips() -> None:
    text = index.as_json(ENTRIES, map(Sm, (70, 80, 86)))
    assert index.from_json(text) == ENTRIES
    gpus = json.loads(text)["gpus"]
    assert gpus["8.0"][0] == f"r.example/x:22.12-sm80@{DIGEST}"
    assert gpus["7.0"] == []
    assert [*gpus] == ["7.0", "8.0", "8.6"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"images": [{"name": "x"}]}', '{"images": [{"sms": 1}]}'])
def test_a_file_that_is_not_an_index_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        index.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"triton": 1.5},
        {"triton": "new"},
        {"sms": ["x"]},
        {"sms": []},
        {"sms": [10**30]},
        {"driver": None},
        {"digest": "sha256:7"},
        {"base": "\x1b[31m"},
        {"product": "other"},
    ],
)
def test_an_index_with_an_odd_value_is_a_usage_error(tmp_path: Path, change: Mapping[str, Any]) -> None:
    content = json.loads(index.as_json(ENTRIES, []))
    content["images"][1] |= change
    file = tmp_path / "index.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="the index cannot be read") as refused:
        index.from_file(file)
    (name,) = change
    assert f"{file}: images.1.{name}" in str(refused.value.where)
    assert "\x1b" not in str(refused.value)


def test_the_markdown_index_has_an_image_and_a_command_for_each_gpu() -> None:
    lines = index.as_markdown(ENTRIES, map(Sm, (70, 86))).splitlines()
    assert f"| 8.6 | `22.12-sm80_86` | 520 | `docker pull r.example/x@{DIGEST}` |" in lines
    assert "| 7.0 | none |  |  |" in lines
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 2 + 2 + len(ENTRIES)
    assert f"| `22.12-sm80-sdk` | sdk | 2.29.0 | 11.8 | 520 | ngc |  | `{DIGEST}` |" in rows


# Signatures


def test_nothing_is_signed_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FTBUILD_COSIGN_KEY", raising=False)
    assert signing.signer(None, public_log=True) is None


def test_a_key_without_cosign_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FTBUILD_COSIGN_KEY", "env://KEY")
    with pytest.raises(HostError, match="cosign is not installed"):
        signing.signer(None, public_log=True)


def test_a_key_that_is_not_there_is_told_before_anything_is_built_or_pushed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"there is no key .*nowhere\.key"):
        signing.signer(str(tmp_path / "nowhere.key"), public_log=True)
    monkeypatch.setenv("FTBUILD_COSIGN_KEY", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no key"):
        signing.signer(None, public_log=True)


def test_a_signature_that_arrived_is_not_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The connection breaks off after cosign has signed: another try would enter it into the log again."""
    program = tmp_path / "cosign"
    lines = [
        "#!/bin/sh",
        f"echo $1 >> {tmp_path}/calls",
        'if [ "$1" = sign ]; then echo "503 Service Unavailable" >&2; exit 1; fi',
        'if [ "$1" = public-key ]; then echo a key; fi',
        'if [ "$1" = verify ]; then cat "$(dirname "$0")/verified"; fi',
    ]
    program.write_text("\n".join([*lines, ""]))
    program.chmod(0o755)
    (tmp_path / "verified").write_text('[{"critical": {"type": "cosign container image signature"}}]')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    reports: list[str] = []
    found = signing.signer("env://KEY", public_log=True)
    assert found
    found.sign(f"registry.example.com/x@{DIGEST}", reports.append)
    assert (tmp_path / "calls").read_text().split() == ["public-key", "sign", "verify"]
    assert reports == ["cosign could not sign: 503 Service Unavailable: trying again in 1 s"]
