"""The webhook, against a real server on loopback."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from requests.adapters import HTTPAdapter

from ftbuild.cli import nightly as nightly_command
from ftbuild.cli.publishing import Signing, Target
from ftbuild.cli.selection import Selection
from ftbuild.config.schema import Config
from ftbuild.nightly import notify
from ftbuild.nightly import run as nightly_run
from ftbuild.nightly.record import NightlyRun, Reason
from ftbuild.nightly.request import NightlyOptions, Request
from ftbuild.registry.policy import POLICY
from ftbuild.text.results import CheckResult
from ftbuild.text.results import State as CheckState
from testing import recorded_runs

SECRET = "T0PS3CRET"


@dataclass
class Hook:
    """A webhook that answers with `codes` in turn, then 200, and keeps the requests."""

    codes: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(hook: Hook) -> Iterator[Hook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Type"] == "application/json"
            hook.bodies.append(json.loads(body))
            hook.requests.append(f"{self.command} {self.path}")
            time.sleep(hook.seconds)
            self.send_response(hook.codes.pop(0) if hook.codes else 200)
            for name, value in hook.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            hook.requests.append(f"{self.command} {self.path}")
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook.url = f"http://127.0.0.1:{server.server_port}/services/{SECRET}?token={SECRET}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hook
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "POLICY", replace(POLICY, first_pause=0.02))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.mark.parametrize(
    ("run", "status"),
    [
        (recorded_runs.good(), "success"),
        (recorded_runs.bad(), "failure"),
        (replace(recorded_runs.bad(), exit_code=130), "interrupted"),
        (replace(recorded_runs.good(), exit_code=1), "failure"),
    ],
    ids=["good", "bad", "interrupted", "good but for its exit code"],
)
def test_success_is_sent_for_a_good_run_only(run: NightlyRun, status: str) -> None:
    with serving(Hook()) as hook:
        assert notify.post(hook.url, run) is None
    (body,) = hook.bodies
    assert (body["status"], body["exit_code"]) == (status, run.exit_code)
    assert body["text"].startswith("✓" if status == "success" else "✗")


def test_the_payload_has_what_failed_where_and_why() -> None:
    with serving(Hook()) as hook:
        notify.post(hook.url, recorded_runs.bad())
    (body,) = hook.bodies
    assert body["counts"] == {"passed": 3, "failed": 4, "error": 4, "skipped": 6}
    assert (body["id"], body["registry"]) == ("20261121T020000Z", recorded_runs.REGISTRY)
    assert body["seconds"] == recorded_runs.bad().seconds
    failed = {(f["cell"], f["state"], f["reason"]): f["detail"] for f in body["failed"]}
    assert failed["22.03-sm80", "failed", "patch"] == "ft/0040-sm-89.patch does not apply to v5.0"
    assert failed["22.03-sm75", "error", "fetch"] == "FasterTransformer cannot be fetched"
    assert len(failed) == 8
    assert [finding["what"] for finding in body["audit"]] == ["digests of base images"]
    for part in ("8 of 14 cells went wrong", "22.03-sm80 (patch)", "digests of base images", "exit code 10"):
        assert part in body["text"]


def test_the_whole_payload_of_a_small_run() -> None:
    failed = recorded_runs.cell("22.12", [89], 30, {"build": 7}, detail="it broke\nbadly")
    silent = replace(failed, cell="22.12-sm90", detail="")
    audit = [CheckResult("pins", CheckState.FAIL, "one <moved> & @all\nto x")]
    run = recorded_runs.run([recorded_runs.excluded("22.03", 90), failed, silent], 7, audit, past=())
    text = (
        "✗ ftbuild nightly 20261121T020000Z: 2 of 2 cells went wrong\n"
        "2 failed in 16 min 58 s, exit code 7\n"
        "• 22.12-sm89 (build): it broke\n"
        "• 22.12-sm90 (build): it does not compile\n"
        "• audit: pins: one &lt;moved&gt; &amp; @\u200ball"
    )
    assert notify.payload(run) == {
        "status": "failure",
        "text": text,
        "id": "20261121T020000Z",
        "started": "2026-11-21T02:00:00+00:00",
        "seconds": run.seconds,
        "exit_code": 7,
        "counts": {"passed": 0, "failed": 2, "error": 0, "skipped": 1},
        "failed": [
            {"cell": "22.12-sm89", "state": "failed", "reason": "build", "detail": "it broke"},
            {"cell": "22.12-sm90", "state": "failed", "reason": "build", "detail": "it does not compile"},
        ],
        "audit": [{"what": "pins", "detail": "one <moved> & @all"}],
        "lost": [],
        "registry": recorded_runs.REGISTRY,
        "revision": run.revision,
        "ftbuild": "0.1.0",
    }


def test_texts_are_clean_and_short_and_mention_no_user() -> None:
    rude = replace(
        recorded_runs.bad().cells[1], detail="\x1b[31m<!channel> @all " + "x" * 10_000 + "\nsecond line"
    )
    body = notify.payload(replace(recorded_runs.bad(), cells=(rude,) * 300))
    assert "<!channel>" not in body["text"]
    assert "@all" not in body["text"]
    assert "and 280 more" in body["text"]
    assert len(body["text"]) < 16_383
    assert len(body["failed"]) == 300
    assert "\x1b" not in json.dumps(body)
    assert "second line" not in json.dumps(body)
    assert all(f["reason"] == Reason.PATCH for f in body["failed"])


@pytest.mark.parametrize("code", [503, 429])
def test_a_request_to_a_busy_server_is_retried(code: int) -> None:
    with serving(Hook([code, code])) as hook:
        assert notify.post(hook.url, recorded_runs.good()) is None
    assert len(hook.bodies) == 3


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_requests_over_both_schemes_are_retried(scheme: str) -> None:
    with notify._session() as session:
        adapter = session.get_adapter(f"{scheme}://hook.invalid/")
    assert isinstance(adapter, HTTPAdapter)
    assert adapter.max_retries.is_retry("POST", 503)


def test_as_many_cells_as_are_listed_need_no_more_words() -> None:
    failed = recorded_runs.bad().cells[1]
    texts = [notify.payload(replace(recorded_runs.bad(), cells=(failed,) * n))["text"] for n in (20, 21)]
    assert [" more" in text for text in texts] == [False, True]
    assert "and 1 more" in texts[1]


def test_a_retry_waits_as_long_as_the_server_asks() -> None:
    with serving(Hook([429], {"Retry-After": "1"})) as hook:
        start = time.monotonic()
        assert notify.post(hook.url, recorded_runs.good()) is None
    assert 1 <= time.monotonic() - start < 60


@pytest.mark.parametrize(("code", "asked"), [(503, 7), (404, 1), (400, 1), (500, 1), (502, 1), (504, 1)])
def test_a_refusal_is_a_warning_without_the_secret(code: int, asked: int) -> None:
    with serving(Hook([code] * 9)) as hook:
        warning = notify.post(hook.url, recorded_runs.bad())
    assert len(hook.bodies) == asked
    assert warning == f"the notification to 127.0.0.1 failed: HTTP {code}"


def test_a_redirect_is_not_followed() -> None:
    with serving(Hook([302], {"Location": "/elsewhere"})) as hook:
        warning = notify.post(hook.url, recorded_runs.good())
    assert hook.requests == [f"POST /services/{SECRET}?token={SECRET}"]
    assert warning is not None
    assert "HTTP 302" in warning


def test_a_timeout_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(notify, "POLICY", replace(POLICY, retries=1))
    with serving(Hook(seconds=0.3)) as hook:
        warning = notify.post(hook.url, recorded_runs.good())
    assert warning is not None
    assert SECRET not in warning
    assert len(hook.requests) == 1  # it may have arrived


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:1/{SECRET}",
        f"https://hook.invalid/{SECRET}",
        f"https://user:{SECRET}@hook.invalid/x",
        f"ftp://hook.invalid/{SECRET}",
        f"hook.invalid/{SECRET}",
        f"http://[::1/{SECRET}",
        f"http://hook.invalid:{SECRET}/",
        "",
    ],
)
def test_a_wrong_or_dead_url_is_a_warning_without_the_secret(
    url: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    warning = notify.post(url, recorded_runs.good())
    assert warning is not None
    assert "\n" not in warning
    assert re.match(r"the notification to (?:127\.0\.0\.1|hook\.invalid|the hook) failed: ", warning)
    printed = capfd.readouterr()
    assert SECRET not in warning + printed.out + printed.err + caplog.text


@pytest.mark.parametrize(
    ("typed", "used"), [(None, "https://chat.invalid/secret"), ("https://b.invalid", None)]
)
def test_the_hook_may_come_from_the_environment_which_other_users_cannot_read(
    config: Config, monkeypatch: pytest.MonkeyPatch, typed: str | None, used: str | None
) -> None:
    asked: list[NightlyOptions] = []

    def execute(request: Request, options: NightlyOptions) -> NightlyRun:
        asked.append(options)
        return recorded_runs.good()

    monkeypatch.setattr(nightly_run, "execute", execute)
    monkeypatch.setenv("FTBUILD_NOTIFY", "https://chat.invalid/secret")
    nightly_command.nightly.function(
        Selection(config.folder), Target(), Signing(), course=nightly_command.Course(notify=typed)
    )
    assert [options.notify for options in asked] == [used or typed]
