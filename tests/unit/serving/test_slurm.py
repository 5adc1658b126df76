"""What the batch script makes of the end of a server; Slurm and the server are played, the script is real."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ftbuild.serving import apptainer
from tests.unit.serving.test_health import DEPLOYMENT

# Slurm ends the job that is put back into the queue.
SCONTROL = '#!/bin/sh\necho "$@" > requeued\nkill -KILL $PPID\n'
Submit = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def submit(tmp_path: Path) -> Iterator[Submit]:
    """Run the batch script as Slurm does, with a start script of these lines."""
    started: list[subprocess.Popen[str]] = []

    def run(server: str, **environment: str) -> subprocess.Popen[str]:
        folder = tmp_path / "sif"
        folder.mkdir()
        scripts = {
            apptainer.BATCH: apptainer.render(DEPLOYMENT)[apptainer.BATCH],
            apptainer.START: f"#!/bin/sh\n{server}\n",
            apptainer.ASK: "#!/bin/sh\nexit 1\n",
            "scontrol": SCONTROL,
        }
        for name, text in scripts.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        environment |= {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(folder)}
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(
                ["bash", str(folder / apptainer.BATCH)],
                env={"SLURM_JOB_ID": "7", **environment},
                cwd=tmp_path,
                stdout=log,
                start_new_session=True,
                text=True,
            )
        started.append(process)
        return started[-1]

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def requeued(folder: Path) -> str | None:
    file = folder / "sif" / "requeued"
    return file.read_text() if file.exists() else None


@pytest.mark.parametrize("end", ["exit 86", "exit 87", "exit 137", "kill -KILL $$"])
def test_a_server_that_is_lost_puts_its_job_back_into_the_queue(
    submit: Submit, tmp_path: Path, end: str
) -> None:
    submit(end).wait(20)
    assert requeued(tmp_path) == "requeue 7\n"
    code = end.removeprefix("exit ") if "exit" in end else "137"
    assert f"the server ended with code {code}\n" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 1", 1), ("exit 85", 85)])
def test_a_server_that_cannot_start_ends_its_job(submit: Submit, tmp_path: Path, end: str, code: int) -> None:
    assert submit(end).wait(20) == code
    assert requeued(tmp_path) is None


def test_a_job_does_not_start_for_ever(submit: Submit, tmp_path: Path) -> None:
    assert submit("exit 87", SLURM_RESTART_COUNT=str(apptainer.RESTARTS)).wait(20) == 87
    assert requeued(tmp_path) is None


def test_the_number_of_starts_is_in_the_log(submit: Submit, tmp_path: Path) -> None:
    submit("exit 87", SLURM_RESTART_COUNT="2").wait(20)
    assert ", start 3\n" in (tmp_path / "log").read_text()
    assert requeued(tmp_path) is not None


def test_a_cancelled_job_ends_its_server_and_stays_away(submit: Submit, tmp_path: Path) -> None:
    """The server takes its time, as one that finishes its answers does."""
    process = submit(
        "trap 'sleep 0.2; echo > ended; exit 143' TERM\ntouch started\nwhile :; do sleep 0.05; done"
    )
    deadline = time.monotonic() + 20
    while not (tmp_path / "sif" / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.terminate()
    assert process.wait(20) == 143
    assert (tmp_path / "sif" / "ended").exists()
    assert requeued(tmp_path) is None
