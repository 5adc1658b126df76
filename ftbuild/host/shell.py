"""Programs and their processes: argument lists, log files, timeouts, Ctrl-C for the whole process group.

Every child runs in a session of its own, so that an interrupt reaches its whole tree (git's helpers,
buildx's plugin) and nothing is left running behind the user's back. While one ends, its output is read on:
a program that cannot write does not end.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO

from ftbuild.errors import FtbuildError, HostError, Interrupted
from ftbuild.host import redaction, signals
from ftbuild.host.redaction import redact
from ftbuild.text import terminal

Environment = Mapping[str, str | None]
# What a program has, after each signal, to end; together less than a user waits after Ctrl-C.
_ENDINGS = ((signal.SIGINT, 2.0), (signal.SIGTERM, 1.0), (signal.SIGKILL, 0.5))
POLL_SECONDS = 0.2
_GONE_POLL_SECONDS = 0.02
_PROC = Path("/proc")
_running: set[subprocess.Popen[str]] = set()
_stopped = Event()
# Held while a command is started: `interrupt` ends it or prevents it, and never misses it.
_starting = Lock()


@dataclass(frozen=True)
class Result:
    """The exit code and decoded output of a finished command.

    `stdout` is what the command wrote, to be read by a program; `stderr` is redacted, to be shown.
    """

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str


class CommandFailed(FtbuildError):
    """A command ended with a non-zero code or ran out of time; carries the `Result`."""

    def __init__(self, result: Result, *, reason: str | None = None) -> None:
        output = (result.stderr.strip() or result.stdout.strip()).splitlines()[-5:]
        what = f"{result.argv[0]} {reason or ending(result.code)}"
        super().__init__(redact("\n    ".join([what, *output])), where=display(result.argv))
        self.result = result


def ending(code: int) -> str:
    """Return in words how a program ended: with an exit code, or by a signal, whose code is its negative."""
    if code < 0:
        return f"was ended by signal {-code} ({signal.strsignal(-code)})"
    return f"ended with code {code}"


def display(argv: Sequence[str]) -> str:
    """Return `argv` as one line to paste into a shell, without passwords and tokens."""
    return redact(shlex.join(argv))


def which(program: str) -> str:
    """Return the path of `program`; HostError when it is not installed."""
    path = shutil.which(program)
    if path is None:
        raise HostError(f"{program} is not installed", hint=f"install {program}, or run ./bootstrap")
    return path


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Environment | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
    check: bool = True,
) -> Result:
    """Run `argv` to its end and return its output.

    `env` is added to the process environment; a value of None takes the variable out of it.

    `timeout` is in seconds. Raises `CommandFailed` on a non-zero code (unless `check` is false) and on
    timeout, `HostError` when the program does not exist.
    """
    with _start(argv, cwd=cwd, env=env, stdin=stdin is not None, merge=False) as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired as late:
            _end(process)
            result = Result(tuple(argv), -1, "", "")
            raise CommandFailed(result, reason=f"did not answer within {timeout:g} s") from late
    result = Result(tuple(argv), process.returncode, stdout, redact(stderr))
    if check and result.code:
        raise CommandFailed(result)
    return result


def stream(
    argv: Sequence[str],
    *,
    log: Path,
    cwd: Path | None = None,
    env: Environment | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    until: Event | None = None,
) -> int:
    """Run `argv`, add its output (both streams) line by line to `log`, and return its exit code.

    It is ended as by Ctrl-C when `until` is set.
    """
    with (
        log.open("a", encoding="utf-8") as sink,
        _start(argv, cwd=cwd, env=env, merge=True) as process,
        _ended_by(until, process),
    ):
        assert process.stdout is not None
        for raw in process.stdout:
            line = redact(raw.rstrip("\n"))
            sink.write(line + "\n")
            sink.flush()
            on_line(line)
    return process.returncode


def stream_terminal(
    argv: Sequence[str], *, log: Path, cwd: Path | None = None, env: Environment | None = None
) -> int:
    """Run `argv` on a pseudo-terminal shown on this one, so that a program draws its own progress.

    `log` gets the same text without the terminal's control codes. Both get whole lines, since a password may
    come in two parts.
    """
    main_fd, child_fd = pty.openpty()
    with contextlib.suppress(termios.error):
        termios.tcsetwinsize(child_fd, termios.tcgetwinsize(sys.stdout.fileno()))
    with contextlib.ExitStack() as opened:
        opened.callback(os.close, main_fd)
        sink = opened.enter_context(log.open("a", encoding="utf-8"))
        process = opened.enter_context(_start(argv, cwd=cwd, env=env, tty=(main_fd, child_fd)))
        for line in _lines(_read_all(main_fd, process)):
            text = redact(line.decode("utf-8", "surrogateescape"))
            _write_all(sys.stdout.fileno(), text.encode("utf-8", "surrogateescape"))
            sink.write(terminal.clean(text.encode("utf-8", "replace").decode()))
    return process.returncode


def _read_all(fd: int, process: subprocess.Popen[str]) -> Iterator[bytes]:
    while True:
        ready, _, _ = select.select([fd], [], [], 0.2)
        if ready:
            try:
                chunk = os.read(fd, 65536)
            except OSError:  # Linux reports EIO once the last writer has closed the terminal
                return
            if not chunk:
                return
            yield chunk
        elif process.poll() is not None:
            return


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield what ends with a line feed or a carriage return (or both), and the rest at the end."""
    rest = b""
    for chunk in chunks:
        *lines, rest = re.split(rb"(?<=\n)|(?<=\r)(?=[^\n])", rest + chunk)
        yield from lines
    if rest:
        yield rest


def _write_all(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]


@contextlib.contextmanager
def _start(
    argv: Sequence[str],
    *,
    cwd: Path | None,
    env: Environment | None,
    stdin: bool = False,
    merge: bool = False,
    tty: tuple[int, int] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Start a program, and end it when the block raises; `tty` are the ends of a terminal, its last."""
    out: int | IO[str] = subprocess.PIPE if tty is None else tty[1]
    error = (subprocess.STDOUT if merge else subprocess.PIPE) if tty is None else tty[1]
    which(argv[0])
    variables = {k: v for k, v in {**os.environ, **(env or {})}.items() if v is not None}
    redaction.remember_environment(variables)
    with contextlib.ExitStack() as deferred:
        deferred.enter_context(signals.deferred())
        with _starting:
            require_uninterrupted(argv[0])
            try:
                process = subprocess.Popen(
                    [*_pdeathsig(), *argv],
                    cwd=cwd,
                    env=variables,
                    stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                    stdout=out,
                    stderr=error,
                    text=True,
                    encoding="utf-8",
                    errors="replace",
                    start_new_session=True,
                    umask=0o022,  # what children write ends up in images, whatever the user's is
                )
            finally:
                if tty is not None:
                    os.close(tty[1])
            _running.add(process)
        try:
            with process:
                try:
                    deferred.close()  # a Ctrl-C that came meanwhile is raised here, where it ends the child
                    yield process
                except BaseException:
                    read = [stream.fileno() for stream in (process.stdout, process.stderr) if stream]
                    _drain(read if tty is None else tty[:1])
                    _end(process)
                    raise
                process.wait()
        finally:
            _running.discard(process)


def interrupt() -> None:
    """End every running command, as Ctrl-C does, and start no other; for a program with threads.

    Their `run` and `stream` return as usual; a later one raises `Interrupted`.
    """
    with _starting:
        _stopped.set()
        running = tuple(_running)
    _end(*running)


def require_uninterrupted(what: str) -> None:
    """Raise Interrupted after `interrupt`, for threads that start what is no program of this machine."""
    if _stopped.is_set():
        raise Interrupted(f"{what} is no longer started")


def _kill() -> None:
    """Kill every running command and what it has started in its session."""
    for process in tuple(_running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


signals.on_forced_end(_kill)


@functools.cache
def _pdeathsig() -> tuple[str, ...]:
    """Return the command that ends a child when this process is killed, where there is one (prctl(2)).

    Otherwise the work of a killed run would go on beside that of the next one.
    """
    return ("setpriv", "--pdeathsig", "INT", "--") if shutil.which("setpriv") else ()


def _end(*processes: subprocess.Popen[str]) -> None:
    """Interrupt whole process groups, wait, then terminate and kill the rest.

    A child that a shell put into the background ignores interrupts (POSIX, Asynchronous Lists), so that a
    group may outlive its leader.
    """
    left = list(processes)
    for sign, seconds in _ENDINGS:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
        deadline = time.monotonic() + seconds
        while left := [process for process in left if not _is_gone(process)]:
            if time.monotonic() > deadline:
                break
            time.sleep(_GONE_POLL_SECONDS)
        if not left:
            return


def _drain(descriptors: Iterable[int]) -> None:
    """Read and discard what still comes from a program, in threads: no other reader is left.

    They have copies of the descriptors, which their owner may close.
    """
    for descriptor in descriptors:
        Thread(target=_discard, args=(os.dup(descriptor),), daemon=True).start()


def _discard(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # that of a terminal whose last writer has gone
        while os.read(descriptor, 65536):
            pass
    os.close(descriptor)


@contextlib.contextmanager
def _ended_by(event: Event | None, process: subprocess.Popen[str]) -> Iterator[None]:
    """End a command when `event` is set, unless the context has ended before."""
    if event is None:
        yield
        return
    done = Event()

    def wait() -> None:
        while not (done.is_set() or event.wait(POLL_SECONDS)):
            pass
        if not done.is_set():
            _end(process)

    waiting = Thread(target=wait)
    waiting.start()
    try:
        yield
    finally:
        done.set()
        waiting.join()


def _is_gone(process: subprocess.Popen[str]) -> bool:
    """Return whether nothing runs in the process group that a program leads."""
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return True
    # Those that are not reaped do not count: a container may have no init that does.
    return process.returncode is not None and not any(_runs_in(stat, process.pid) for stat in _stats())


def _stats() -> Iterator[str]:
    """Yield what the kernel says of every process (proc(5), /proc/pid/stat)."""
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield (folder / "stat").read_text(errors="replace")


def _runs_in(stat: str, group: int) -> bool:
    state, _, leader = [*stat.rpartition(")")[2].split(), "", "", ""][:3]
    return leader == str(group) and state not in "ZX"
