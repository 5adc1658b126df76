"""Builds in words: BuildKit's plain log read line by line, and shown on a terminal and in a pipe."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest

from ftbuild.build import display, stages
from ftbuild.build.stages import Watch
from testing import ROOT

DOCKERFILES = sorted((ROOT / "dockerfiles").glob("*.Dockerfile"))
COMPILE = (
    "RUN --network=none     --mount=type=bind,from=steps,target=/steps SHIPPED='*/x.so' /steps/compile.sh"
)
LOG = f"""\
#0 building with "default" instance using docker driver

#1 [internal] load local bake definitions
#1 DONE 0.0s

#7 [22_12-sm80-runtime context sources] load from client
#7 transferring sources: 12MB 4.0s done
#7 DONE 4.0s

#8 [22_12-sm80-sdk toolchain 1/2] RUN <<'EOF' (set -eu...)
#8 CACHED

#12 [22_12-sm80-sdk backend 1/1] {COMPILE} backend /src/backend backends transformer-shared
#12 0.500 -- Configuring done
#12 1.500 [1/438] Building CXX object a.cc.o
#12 ...

#13 [22_12-sm80-sdk pyt 3/3] {COMPILE} pyt /src/ft lib th_transformer
#13 2.000 [1/20] Building CUDA object b.cu.o
#13 ...

#12 [22_12-sm80-sdk backend 1/1] {COMPILE} backend /src/backend backends transformer-shared
#12 9.000 [212/438] Building CUDA object c.cu.o
"""


def watched(text: str, watch: Watch, seconds: float = 10.0) -> list[str]:
    """What ends while these lines come, one in `seconds`."""
    told: list[str] = []
    for number, line in enumerate(text.splitlines()):
        told += watch.read(line, number * seconds)
    return told


def test_a_log_becomes_a_line_for_each_stage_that_took_time() -> None:
    watch = Watch(("prepare toolchain", "compile backend", "compile pyt", "assemble runtime"))
    assert watched(LOG, watch) == ["send sources  0:20"]
    now = 10.0 * len(LOG.splitlines())
    assert [line.split("  ")[:2] for line in watch.lines(now)] == [
        ["compile backend", "212/438"],
        ["compile pyt", "1/20"],
    ]
    assert watch.left == ("assemble runtime",)
    ended = watch.read("#13 ERROR: process did not complete", now)
    assert ended == [f"failed: compile pyt  {stages.clock(now - watch_start('#13 ['))}"]
    (done,) = watch.read("#12 DONE 190.1s", now)
    assert done.startswith("compile backend  438 commands  ")
    assert watch.lines(now) == []


def watch_start(beginning: str) -> float:
    return 10.0 * next(n for n, line in enumerate(LOG.splitlines()) if line.startswith(beginning))


def test_steps_of_several_targets_that_do_the_same_are_one() -> None:
    watch = Watch()
    watch.read("#1 [a context wheels] load from client", 0)
    watch.read("#2 [b context wheels] load from client", 1)
    assert watch.read("#1 DONE 9.0s", 9) == []
    assert watch.read("#2 DONE 9.0s", 10) == ["send wheels  0:10"]


def test_what_several_targets_get_one_after_the_other_is_told_once() -> None:
    watch = Watch()
    watch.read("#1 [a context sources] load from client", 0)
    assert watch.read("#1 DONE 2.0s", 2) == ["send sources  0:02"]
    watch.read("#2 [b context sources] load from client", 3)
    assert watch.read("#2 DONE 2.0s", 5) == []
    watch.read("#3 [c context sources] load from client", 6)
    assert watch.read("#3 ERROR: no", 9) == ["failed: send sources  0:03"]


def test_a_step_whose_beginning_is_printed_late_took_what_buildkit_says() -> None:
    watch = Watch()
    watch.read(f"#12 [backend 1/1] {COMPILE} backend /src", 100)
    watch.read("#12 71.5 [8/8] Linking CXX shared library x.so", 100)
    assert watch.read("#12 DONE 72.3s", 100) == ["compile backend  8 commands  1:12"]


@pytest.mark.parametrize("line", ["", "#", "#x [y] z", "#5 DONE", "# 5", "ERROR: failed", "#9 1.0 [1/2] x"])
def test_lines_that_name_no_step_are_read_over(line: str) -> None:
    watch = Watch()
    assert watch.read(line, 0) == []
    assert watch.lines(0) == []


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_every_step_of_every_dockerfile_has_words(file: Path) -> None:
    """A program of steps/ that is added without words would be shown as `prepare STAGE`."""
    text = file.read_text()
    names = [name for name, _ in stages._stages(text)]
    found = stages.expected(text, names)
    assert found
    known = [step for _, (_, steps) in stages._stages(text) for step in steps if "/steps/" in step]
    for step in known:
        if step.startswith("RUN"):
            assert not str(stages.words("x", step)).startswith("prepare") or "unpack" in step, step


def test_what_is_left_is_what_the_targets_need() -> None:
    text = (ROOT / "dockerfiles" / "triton-ft.Dockerfile").read_text()
    runtime = stages.expected(text, ["runtime"])
    assert "compile backend" in runtime
    assert not {"compile pyt", "compile unittests", "assemble sdk"} & set(runtime)
    everything = stages.expected(text, ["runtime", "sdk", "backend-info", "pyt-info"])
    assert {"compile backend", "compile pyt", "assemble runtime", "assemble sdk"} <= set(everything)
    assert "compile unittests" not in everything
    assert stages.expected(text, ["nobody"]) == ()


def test_a_pipe_gets_a_line_a_stage_and_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    said: list[str] = []
    with display.shown("22.12-sm80", ("compile backend", "assemble sdk"), said.append) as read:
        for line in LOG.splitlines():
            read(line)
        deadline = time.monotonic() + 10
        while len(said) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        read("#12 ERROR: exit code 1")
    assert said[0] == "send sources  0:04"
    assert said[1].startswith("running: compile backend  212/438  0:0")
    assert said[1].endswith("; 1 step left")
    assert said[-1].startswith("failed: compile backend")
    assert not any("transferring" in text or "RUN" in text for text in said)


def test_a_terminal_gets_what_runs_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with display.shown("22.12-sm80", ("compile backend", "assemble sdk"), print) as read:
        for line in LOG.splitlines():
            read(line)
        deadline = time.monotonic() + 10
        while "212/438" not in screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)
        read("#12 ERROR: exit code 1 \x1b]0;evil\x07")
    text = screen.getvalue()
    assert "compile backend  212/438  0:0" in text
    assert "left: assemble sdk" in text
    assert "failed: compile backend" in text
    assert "evil" not in text


def test_a_night_tells_the_stages_of_its_cells() -> None:
    said: list[str] = []
    progress = stages.Progress(said.append, every=0.0)
    for line in LOG.splitlines():
        progress.read(line, "[22.12-sm80] ")
    assert said[-1].startswith("[22.12-sm80] running: compile backend  212/438")
