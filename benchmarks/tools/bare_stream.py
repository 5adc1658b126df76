"""A stream of events by FastAPI alone: `python -m benchmarks.tools.bare_stream PORT SECONDS`.

The upper limit for a front: it asks no server and makes no text.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

_EVENT = "data: " + '{"text": "' + "z" * 150 + '"}' + "\n\n"
app = FastAPI()


@app.post("/v1/completions")
async def completions(body: dict[str, Any]) -> StreamingResponse:
    """Send as many events as tokens are requested."""

    async def events() -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for number in range(1, body["max_tokens"] + 1):
            await asyncio.sleep(max(start + number * float(sys.argv[2]) - loop.time(), 0))
            yield _EVENT

    return StreamingResponse(events(), media_type="text/event-stream")


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), access_log=False)
