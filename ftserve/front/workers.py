"""Processes that render templates and tokenize (worker.py), with limits of time and memory for each request.

So the event loop is free meanwhile, and a template that runs for ever or takes all memory is the failure of
one request: its process is ended, and another takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ftserve.front import limits
from ftserve.front.errors import ConfigError
from ftserve.front.failures import Failure, unavailable
from ftserve.front.keys import KEY_VARIABLE
from ftserve.front.tensors import Array
from ftserve.front.together import end
from ftserve.front.worker import LENGTH

T = TypeVar("T")
LOG = logging.getLogger("uvicorn.error")
_PROCESSES = 2
# Until a process that does not start is tried again.
_AGAIN_SECONDS = 5
# Of an answer; more than the ids of a body's texts.
_LONGEST_ANSWER = 1 << 30


@dataclass(frozen=True)
class Tokens:
    """The token ids of texts, their `lengths` alone where one is too long, and of stop words."""

    rows: Sequence[Array]
    lengths: Sequence[int]
    words: Sequence[Sequence[int]]


class Workers:
    """Some processes for the tokenizer in `folder`, from `start` to `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._idle: asyncio.LifoQueue[_Process] = asyncio.LifoQueue()
        # One process stays free of long texts, which take seconds.
        self._long = asyncio.Semaphore(_PROCESSES - 1)
        self._all: set[_Process] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def start(self) -> None:
        """Start the processes, and return when the first one is there."""
        for _ in range(_PROCESSES):
            self._go_on(self._add())
        self._idle.put_nowait(await self._idle.get())

    async def texts(
        self,
        texts: Sequence[str],
        param: str,
        *,
        stops: Sequence[str] = (),
        limit: int | None = None,
        special: bool = True,
    ) -> Tokens:
        """Return the tokens of texts, with those that the tokenizer adds if `special`.

        Raises Failure (400) where they take too much time or memory.
        """
        size = sum(map(len, texts))
        request = {"texts": texts, "stops": stops, "max_tokens": limit, "special": special}
        return await self._ask(request, size, param)

    async def conversation(
        self, messages: Sequence[Mapping[str, str]], *, stops: Sequence[str] = (), limit: int | None = None
    ) -> Tokens:
        """Return the tokens of the prompt that the chat template makes of messages; Failure as `texts`."""
        size = sum(len(message["content"]) for message in messages)
        return await self._ask({"messages": messages, "stops": stops, "max_tokens": limit}, size, "messages")

    async def close(self) -> None:
        """End all processes, and what they do."""
        self._closed = True
        await end(self._tasks)
        for process in list(self._all):
            await self._end(process)

    async def _ask(self, request: Mapping[str, Any], size: int, param: str) -> Tokens:
        """Return what a process answers; it goes on where the client leaves, to be there for the next one."""
        long = self._long if size > limits.LARGE_TEXT else contextlib.nullcontext()
        async with long:
            try:
                async with asyncio.timeout(limits.START_SECONDS):
                    process = await self._living()
            except TimeoutError:
                raise unavailable("no tokenizer process is available; try again later") from None
            return await asyncio.shield(self._go_on(self._answer(process, request, param)))

    async def _living(self) -> _Process:
        """Return a process that waits; one that a machine without memory has ended is replaced."""
        while (process := await self._idle.get()).has_ended:
            self._go_on(self._replace(process))
        return process

    async def _replace(self, process: _Process) -> None:
        await self._end(process)
        if not self._closed:
            await self._add()

    async def _answer(self, process: _Process, request: Mapping[str, Any], param: str) -> Tokens:
        """Return what a process answers; without an answer it is replaced."""
        answered = False
        try:
            async with asyncio.timeout(limits.TEXT_SECONDS):
                head, ids = await process.ask(json.dumps(request).encode())
            answered = True
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as ended:
            much = (
                f"more than {limits.TEXT_SECONDS} s" if isinstance(ended, TimeoutError) else "too much memory"
            )
            raise Failure(400, f"{param}: tokenizing it takes {much}", param=param) from None
        finally:
            if answered:
                self._idle.put_nowait(process)
            else:
                await self._end(process)
                if not self._closed:
                    self._go_on(self._add())
        if "error" in head:
            raise Failure(400, head["error"], param=param)
        lengths: list[int] = head["lengths"]
        flat = np.frombuffer(ids, np.uint32)
        rows = np.split(flat, np.cumsum(lengths)[:-1]) if flat.size == sum(lengths) and lengths else []
        return Tokens(rows, lengths, head["words"])

    async def _add(self) -> None:
        """Start one more process, whenever that works."""
        while True:
            try:
                process, _ = await start(self._folder)
            except ConfigError as wrong:
                # It worked when the service started.
                LOG.error("a tokenizer process does not start: %s", wrong.what)
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self._all.add(process)
                self._idle.put_nowait(process)
                return

    def _go_on(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a task that does not end when its client leaves."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Retrieved here, as the client may have left: asyncio would warn.
            task.exception()

    async def _end(self, process: _Process) -> None:
        self._all.discard(process)
        await process.end()


class _Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.returncode is not None

    async def ask(self, sent: bytes) -> tuple[dict[str, Any], bytes]:
        """Return the head of the answer to a request, and what follows it."""
        assert self._process.stdin is not None
        self._process.stdin.write(LENGTH.pack(len(sent)) + sent)
        await self._process.stdin.drain()
        return await self.answer()

    async def answer(self) -> tuple[dict[str, Any], bytes]:
        """Return the next answer."""
        assert self._process.stdout is not None
        size = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))[0]
        if size > _LONGEST_ANSWER:
            raise ConnectionError("an answer that is too long")
        head, _, rest = (await self._process.stdout.readexactly(size)).partition(b"\n")
        return json.loads(head), rest

    async def end(self) -> None:
        """End the process, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        # Not `wait` alone, which never ends while what the process had written fills the reader: the end of a
        # pipe that is not read goes unnoticed (CPython 3.11 base_subprocess.py, _try_finish).
        await self._process.communicate()


async def start(folder: Path) -> tuple[_Process, bool]:
    """Start a process; return it, and whether the folder has a chat template.

    Raises ConfigError when tokenizer or template cannot be used.
    """
    process = _Process(
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ftserve.front.worker",
            str(folder),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(),
        )
    )
    try:
        async with asyncio.timeout(limits.START_SECONDS):
            state, _ = await process.answer()
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError) as ended:
        await process.end()
        what = "time" if isinstance(ended, TimeoutError) else "memory"
        raise ConfigError(
            f"tokenizer or chat template cannot be loaded: they take too much {what}",
            where=str(folder),
            hint="other files, of a checkpoint that you trust",
        ) from None
    except asyncio.CancelledError:
        await process.end()
        raise
    if "error" in state:
        await process.end()
        raise ConfigError(state["error"], where=str(folder), hint=state["hint"])
    return process, bool(state["template"])


def _environment() -> dict[str, str]:
    """Return the environment of a worker: it finds this package, and no API key."""
    variables = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
    places = [str(Path(__file__).parents[2]), variables.get("PYTHONPATH", "")]
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, places))}


def has_template(folder: Path) -> bool:
    """Return whether a tokenizer comes with a chat template; ConfigError when one of them cannot be used."""

    async def probe() -> bool:
        process, template = await start(folder)
        await process.end()
        return template

    return asyncio.run(probe())
