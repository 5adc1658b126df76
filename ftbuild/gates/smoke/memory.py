"""How much of a GPU a server under test may take from all others."""

from __future__ import annotations

from ftbuild.errors import SmokeError

# That requests may leave in use, in bytes. Servers of the suite's models took up to 12 GB on an H100;
# one took 77 GiB, as it read a length from where there was none. Whatever a server takes it keeps.
MAX_BYTES = 16 * 2**30
# That the second of two equal loads may leave: the first has grown the buffers to the largest request.
SLACK_BYTES, SLACK_SHARE = 16 * 2**20, 0.01


def check_memory(before: int, used: int, cause: str) -> None:
    """Raise SmokeError when the GPU memory in use, in bytes, has grown by more than a server should keep."""
    if used - before > MAX_BYTES:
        raise SmokeError(
            f"{(used - before) >> 30} GiB more of the GPU are in use after {cause}",
            hint="a request took memory that the server has not given back: patches/backend/0203",
        )


def check_flat(before: int, used: int, cause: str) -> None:
    """Raise SmokeError when the GPU memory in use, in bytes, has grown from one load to its repetition."""
    more = used - before
    if more > max(SLACK_BYTES, SLACK_SHARE * before):
        raise SmokeError(
            f"{cause}: {more >> 20} MiB more than {before >> 20} MiB are in use",
            hint="a request leaves memory behind: patches/backend, patches/ft",
        )
