"""What the batch script makes of the end of a server; Slurm and the server are played, the script is real."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ftserve.targets import apptainer
from testing.waiting import until
from tests.unit.ftserve.test_health import DEPLOYMENT

# Slurm ends the job that is put back into the queue.
SRUN = """\
#!/bin/bash
echo "$@" > asked
while [[ $1 != bash ]]; do shift; done
SLURM_PROCID=0 exec "$@"
"""
SCONTROL = '#!/bin/sh\necho "$@" > requeued\nkill -KILL $PPID\n'
Submit = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def submit(tmp_path: Path) -> Iterator[Submit]:
    """Run the batch script as Slurm does, with a start script of these lines."""
    started: list[subprocess.Popen[str]] = []

    def run(server: str, nodes: int = 1, **environment: str) -> subprocess.Popen[str]:
        folder = tmp_path / "sif"
        folder.mkdir()
        scripts = {
            apptainer.BATCH: apptainer.render(replace(DEPLOYMENT, nodes=nodes))[apptainer.BATCH],
            apptainer.START: f"#!/bin/sh\n{server}\n",
            apptainer.ASK: "#!/bin/sh\nexit 1\n",
            "scontrol": SCONTROL,
            "srun": SRUN,
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
    submit(end).wait(100)
    assert requeued(tmp_path) == "requeue 7\n"
    code = end.removeprefix("exit ") if "exit" in end else "137"
    assert f"the server ended with code {code}\n" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 1", 1), ("exit 85", 85)])
def test_a_server_that_cannot_start_ends_its_job(submit: Submit, tmp_path: Path, end: str, code: int) -> None:
    assert submit(end).wait(100) == code
    assert requeued(tmp_path) is None


def test_a_job_does_not_start_for_ever(submit: Submit, tmp_path: Path) -> None:
    assert submit("exit 87", SLURM_RESTART_COUNT=str(apptainer.RESTARTS)).wait(100) == 87
    assert requeued(tmp_path) is None


def test_the_number_of_starts_is_in_the_log(submit: Submit, tmp_path: Path) -> None:
    submit("exit 87", SLURM_RESTART_COUNT="2").wait(100)
    assert ", start 3\n" in (tmp_path / "log").read_text()
    assert requeued(tmp_path) is not None


def test_a_cancelled_job_ends_its_server_and_stays_away(submit: Submit, tmp_path: Path) -> None:
    """The server takes its time, as one that finishes its answers does."""
    process = submit(
        "trap 'sleep 0.2; echo > ended; exit 143' TERM\ntouch started\nwhile :; do sleep 0.05; done"
    )
    assert until((tmp_path / "sif" / "started").exists)
    process.terminate()
    assert process.wait(100) == 143
    assert (tmp_path / "sif" / "ended").exists()
    assert requeued(tmp_path) is None


# What each node of a job has got, and then it waits, or ends as the first one shall.
NODE = """\
echo "$NODE_LEADER $NODE_GROUP_KEY $*" > "node${NODE_RANK:-0}"
if [ "${NODE_RANK:-0}" = 0 ]; then while ! test -e node1; do sleep 0.05; done; %s; fi
trap 'echo > followed; exit 0' TERM
while :; do sleep 0.05; done
"""


def test_the_other_nodes_of_a_job_follow_the_first(submit: Submit, tmp_path: Path) -> None:
    assert submit(NODE % "exit 3", nodes=3, NODE_LEADER="first").wait(100) == 3
    folder = tmp_path / "sif"
    asked = (folder / "asked").read_text().split()
    assert {"--nodes=2", "--ntasks=2", "--relative=1"} <= set(asked)
    first, other = (folder / "node0").read_text(), (folder / "node1").read_text()
    leader, key = first.split()
    assert (leader, len(key), first) == ("first", 36, other)
    assert key not in asked
    assert until((folder / "followed").exists)
    assert requeued(tmp_path) is None


def test_a_job_that_has_lost_a_node_goes_back_into_the_queue(submit: Submit, tmp_path: Path) -> None:
    """mpirun ends with 205 when a daemon is gone."""
    submit(NODE % "exit 205", nodes=2).wait(100)
    assert requeued(tmp_path) == "requeue 7\n"
