"""What is shown of a server's log."""

from __future__ import annotations

from ftbuild import triton

# Triton 2.70 writes the first line at each start.
LOG = b"""\
E1124 08:20:02.092744 9 server.cc:248] "CudaDriverHelper has not been initialized."
I1124 08:20:02.100000 9 server.cc:300] "Waiting for in-flight requests to complete."
[fa88d5d00317:00001] PRTE ERROR: Exists in file ../3rd-party/prrte/src/util/session_dir.c at line 172
"""


def test_the_excerpt_of_a_log_names_why_open_mpi_did_not_start() -> None:
    first, last = triton.log_excerpt(LOG).splitlines()
    assert "CudaDriverHelper" in first
    assert "PRTE ERROR: Exists" in last
