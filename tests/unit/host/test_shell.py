from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from threading import Event

import pytest

from ftbuild.errors import HostError
from ftbuild.host import shell
from testing import ROOT
from testing.waiting import until


def test_output_and_code_come_back() -> None:
    result = shell.run(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False)
    assert (result.code, result.stdout, result.stderr) == (3, "out\n", "err\n")


def test_a_failed_command_tells_its_last_lines_and_its_command_line() -> None:
    with pytest.raises(shell.CommandFailed) as failed:
        shell.run(["sh", "-c", "echo broken >&2; exit 3"])
    assert "broken" in str(failed.value)
    assert "ended with code 3" in str(failed.value)
    assert "sh -c 'echo broken" in str(failed.value)


@pytest.mark.parametrize(
    ("number", "said"), [(9, "sh was ended by signal 9 (Killed)"), (40, "signal 40 (Real-time signal 6)")]
)
def test_a_command_that_a_signal_ended_is_told_by_its_name(number: int, said: str) -> None:
    with pytest.raises(shell.CommandFailed) as failed:
        shell.run(["sh", "-c", f"kill -{number} $$"])
    assert said in failed.value.what


def test_a_missing_program_is_an_environment_error() -> None:
    with pytest.raises(HostError, match="no-such-program is not installed"):
        shell.run(["no-such-program"])


def test_a_timeout_ends_the_command_and_what_it_started(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(shell.CommandFailed, match="did not answer within 3 s"):
        shell.run(["sh", "-c", script], timeout=3)
    assert ended((tmp_path / "pid").read_text().strip())


def test_credentials_in_urls_are_never_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    seen: list[str] = []
    shell.stream(["echo", "https://me:secret@host/x"], log=log, on_line=seen.append)
    assert seen == ["https://***@host/x"]
    assert "secret" not in log.read_text() + shell.display(["git", "clone", "https://me:secret@host/x"])


def test_a_password_of_the_environment_is_not_shown_without_its_url_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:s3cr%40et@host/simple")
    seen: list[str] = []
    shell.stream(["echo", "401 for s3cr@et"], log=tmp_path / "log", on_line=seen.append)
    assert seen == ["401 for ***"]
    with pytest.raises(shell.CommandFailed) as failed:
        shell.run(["sh", "-c", "echo 401 for s3cr@et >&2; exit 3"])
    assert "s3cr" not in str(failed.value)


def test_what_a_program_reads_is_not_altered() -> None:
    assert shell.run(["echo", "https://me:secret@host/x"]).stdout == "https://me:secret@host/x\n"


def test_a_password_that_a_terminal_gets_in_two_parts_is_not_shown(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from ftbuild.host import shell
        script = "printf 'https://me:sec'; sleep 0.7; printf 'ret@host/x\\nlast'"
        sys.exit(shell.stream_terminal(["sh", "-c", script], log=Path("log")))
    """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["https://***@host/x", "last"]
    assert (tmp_path / "log").read_text() == "https://***@host/x\nlast"


def test_a_stream_is_ended_by_an_event(tmp_path: Path) -> None:
    enough = Event()
    start = time.monotonic()
    code = shell.stream(
        ["sh", "-c", "echo begun; exec sleep 60"],
        log=tmp_path / "log",
        on_line=lambda line: enough.set(),
        until=enough,
    )
    assert code != 0
    assert time.monotonic() - start < 30
    assert shell.stream(["true"], log=tmp_path / "log", until=Event()) == 0


def test_a_stream_reaches_log_and_listener_and_gives_the_code(tmp_path: Path) -> None:
    seen: list[str] = []
    code = shell.stream(["sh", "-c", "echo a; echo b >&2; exit 5"], log=tmp_path / "log", on_line=seen.append)
    assert (code, seen, (tmp_path / "log").read_text()) == (5, ["a", "b"], "a\nb\n")


def written(file: Path) -> str:
    """What a program writes into a file, as soon as it has."""
    assert until(lambda: file.exists() and file.read_text().strip())
    return file.read_text().strip()


def ended(pid: str) -> bool:
    """Whether a process is gone in time, or waits for a parent that never collects it.

    A busy machine may take its time; the process itself would sleep for a minute.
    """
    stat = Path(f"/proc/{pid}/stat")

    def gone() -> bool:
        try:
            return stat.read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    return until(gone, 40)


@pytest.mark.parametrize("way", ["run", "stream", "stream_terminal"])
def test_ctrl_c_ends_the_whole_process_group(tmp_path: Path, way: str) -> None:
    options = "" if way == "run" else ", log=Path('log')"
    program = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from ftbuild.host import shell
        try:
            shell.{way}(["sh", "-c", "sleep 60 & echo $! > pid; wait"]{options})
        except KeyboardInterrupt:
            sys.exit(130)
    """)
    child = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    pid = written(tmp_path / "pid")
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130
    assert ended(pid)


def test_ctrl_c_while_a_command_is_being_started_ends_it(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import os, signal, subprocess, sys
        from ftbuild.host import shell
        shell._pdeathsig = lambda: ()  # which would end it with its parent
        start = subprocess.Popen.__init__
        def interrupted(process, *arguments, **options):
            start(process, *arguments, **options)
            open("pid", "w").write(str(process.pid))
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):  # Python calls handlers between two instructions
                pass
        subprocess.Popen.__init__ = interrupted
        try:
            shell.run(["sleep", "60"])
        except KeyboardInterrupt:
            sys.exit(130)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=30,
    )
    assert done.returncode == 130
    assert ended((tmp_path / "pid").read_text())


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv (util-linux)")
def test_what_a_killed_program_had_started_ends_too(tmp_path: Path) -> None:
    program = "from ftbuild.host import shell; shell.run(['sh', '-c', 'echo $$ > pid; exec sleep 60'])"
    child = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    pid = written(tmp_path / "pid")
    child.kill()
    child.wait(30)
    assert ended(pid)


def test_commands_of_several_threads_are_ended_together_and_no_other_begins() -> None:
    program = textwrap.dedent("""
        import signal, time
        from concurrent.futures import ThreadPoolExecutor
        from ftbuild import errors
        from ftbuild.host import shell
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(shell.run, ["sleep", "60"], check=False) for _ in range(2)]
            while len(shell._running) < 2:
                time.sleep(0.01)
            shell.interrupt()
            print([future.result(10).code for future in asked])
        try:
            shell.run(["sleep", "60"])
        except errors.Interrupted as refused:
            print(refused.exit_code)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.split("\n")[:2] == ["[-2, -2]", "130"]
