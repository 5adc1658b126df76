"""The command: `python -m ftserve.front --triton HOST:PORT --tokenizer FOLDER --name NAME`."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ftserve.front import keys, limits, origins, settings
from ftserve.front.errors import FtbuildError, HostError
from ftserve.front.settings import Settings

# What the extra `front` brings, and the project's own dependencies among the front's.
_PACKAGES = (
    "grpc",
    "h2",
    "jinja2",
    "numpy",
    "pydantic",
    "starlette",
    "tokenizers",
    "tritonclient",
    "uvicorn",
)
# Seconds that a connection may be kept between two requests; longer than clients keep them, so that no
# request meets its end.
_KEEP_SECONDS = 75
_MAX = 2**31 - 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m ftserve.front", description=__doc__, allow_abbrev=False)
    option = made.add_argument
    option("--triton", required=True, type=_address, metavar="HOST:PORT", help="Triton's gRPC endpoint")
    option("--tokenizer", required=True, type=Path, metavar="FOLDER", help="the checkpoint's tokenizer")
    option("--name", required=True, help="what clients call the model")
    option("--triton-model", default=settings.MODEL, help="Triton's model of token ids (%(default)s)")
    option(
        "--end-id",
        type=_whole(0, _MAX),
        help="the token that ends an answer (default: the tokenizer's)",
    )
    option(
        "--context",
        type=_whole(1, _MAX),
        help="maximum tokens of prompt and answer (default: the server decides)",
    )
    option("--listen", default=settings.LOOPBACK, help="address to listen on (%(default)s)")
    option("--port", type=_whole(1, 65535), default=settings.PORT, help="port to listen on (%(default)s)")
    option(
        "--api-key-file",
        type=Path,
        help=f"file with API keys, one per line; also: the variable {keys.KEY_VARIABLE}",
    )
    option(
        "--max-bytes",
        "--most-bytes",  # the former name, as below
        dest="max_bytes",
        type=_whole(1, _MAX),
        default=settings.MAX_BYTES,
        help="largest body of a request (%(default)s)",
    )
    option(
        "--max-requests",
        "--most-requests",
        dest="max_requests",
        type=_whole(1, _MAX),
        default=settings.MAX_REQUESTS,
        help="maximum requests at once, with those whose client left (%(default)s)",
    )
    option(
        "--origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="origin of web pages that may call it (CORS), such as https://chat.example.com; repeatable",
    )
    option(
        "--cancel-calls",
        choices=("yes", "no"),
        help="cancel calls of clients that leave (default: yes for server 2.70 or later, as the patch is)",
    )
    option(
        "--seconds", type=_seconds, default=settings.SECONDS, help="time limit of one answer (%(default)s)"
    )
    return made


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C; 2 for a wrong option, 4 without the packages."""
    options = parser().parse_args(arguments)
    # Processes are started beside gRPC's threads, and are other programs at once.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    try:
        _require_packages()
        text = settings.read_text(options.tokenizer, options.end_id)
        decided = Settings(
            triton=options.triton,
            triton_model=options.triton_model,
            name=options.name,
            folder=options.tokenizer,
            tokenizer=text.tokenizer,
            has_template=text.has_template,
            end_id=text.end_id,
            context=options.context,
            keys=keys.read(options.api_key_file),
            origins=tuple(origins.read(each, "--origin") for each in options.origin),
            special=text.special,
            max_bytes=options.max_bytes,
            max_requests=options.max_requests,
            seconds=options.seconds,
            cancels=None if options.cancel_calls is None else options.cancel_calls == "yes",
        )
    except FtbuildError as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return wrong.exit_code
    import uvicorn

    from ftserve.front import app, connections

    # No proxy is trusted with the addresses of clients; running answers may end when the service does.
    uvicorn.run(
        app.make(decided),
        host=options.listen,
        port=options.port,
        http=connections.protocol(connections.max_connections()),
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_SECONDS,
        timeout_graceful_shutdown=30,
        h11_max_incomplete_event_size=limits.HEAD_BYTES,
    )
    return 0


def _require_packages() -> None:
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise HostError(
            f"the OpenAI front needs packages that are not here: {', '.join(missing)}",
            hint="pip install ftserve/front",
        )


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or len(text) > 10 or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {low} to {high}")
        return int(text)

    return read


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port[:6]) < 65536:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not HOST:PORT")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of seconds")
    return seconds


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
