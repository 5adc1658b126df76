"""Tasks that are done together, and end together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results, in order; the first failure is raised and ends the others."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await end(tasks)


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    ended = list(tasks)
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)
