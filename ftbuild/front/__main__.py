"""The command: `python -m ftbuild.front --triton HOST:PORT --tokenizer FOLDER --name NAME`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ftbuild.errors import FtbuildError
from ftbuild.front import settings
from ftbuild.front.settings import Settings


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m ftbuild.front", description=__doc__, allow_abbrev=False)
    option = made.add_argument
    option("--triton", required=True, metavar="HOST:PORT", help="the Triton server's gRPC endpoint")
    option("--tokenizer", required=True, type=Path, metavar="FOLDER", help="the checkpoint's tokenizer")
    option("--name", required=True, help="what clients call the model")
    option("--triton-model", default=settings.MODEL, help="Triton's model of token ids (%(default)s)")
    option("--end-id", type=_whole, help="the token that ends an answer (default: the tokenizer's)")
    option("--context", type=_whole, help="most tokens of prompt and answer (default: the server decides)")
    option("--listen", default=settings.LOOPBACK, help="address to listen on (%(default)s)")
    option("--port", type=_whole, default=settings.PORT, help="port to listen on (%(default)s)")
    option("--api-key-file", type=Path, help=f"keys, one a line; also: the variable {settings.KEY_VARIABLE}")
    option("--most-bytes", type=_whole, default=settings.MOST_BYTES, help="of a request (%(default)s)")
    option(
        "--most-requests",
        type=_whole,
        default=settings.MOST_REQUESTS,
        help="at once, also those whose client left (%(default)s)",
    )
    option("--seconds", type=float, default=settings.SECONDS, help="for one answer (%(default)s)")
    return made


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C; 2 for a wrong option."""
    given = parser().parse_args(arguments)
    try:
        text = settings.read_text(given.tokenizer, given.end_id)
        decided = Settings(
            triton=given.triton,
            triton_model=given.triton_model,
            name=given.name,
            tokenizer=text.tokenizer,
            template=text.template,
            end_id=text.end_id,
            context=given.context,
            keys=settings.read_keys(given.api_key_file),
            most_bytes=given.most_bytes,
            most_requests=given.most_requests,
            seconds=given.seconds,
        )
    except FtbuildError as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return wrong.exit_code
    import uvicorn

    from ftbuild.front import app

    # No proxy is trusted with the addresses of clients; running answers may end when the service does.
    uvicorn.run(
        app.make(decided),
        host=given.listen,
        port=given.port,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=30,
    )
    return 0


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number")
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
