"""Facts of Triton Inference Server as our images run it: ports, folders, command line, limits, log."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from packaging.version import Version

# Its package URL (types/github). A version of it is a tag, such as v2.29.0.
PURL = "pkg:github/triton-inference-server/server"
HTTP_PORT, GRPC_PORT, METRICS_PORT = 8000, 8001, 8002
READY, LIVE = "/v2/health/ready", "/v2/health/live"
# Where a container has the model repository.
MODELS = "/models"
# What mpirun calls the machines after its own (ftserve/node_group.py).
NODE = "node{}"
# What no client of a model needs, and what can harm the others: files written where the client says, memory
# registered by name (docs/security.md). Models are not loaded by request: --model-control-mode is none. The
# options are those of server r24.10 command_line_parser.cc:499 and :614; r23.11, which is 2.40, has both.
CLOSED = "shared-memory,trace,logging"
CLOSED_FROM = Version("2.40")
# NCCL and the Python backend share memory; CUDA pins host memory (Triton 22.12 README, "Run Triton").
SHARED_MEMORY = "1g"
LIMITS = {"memlock": -1, "stack": 64 * 2**20}
# NCCL launches a kernel of a communicator once all its ranks in the process launch one, as in upstream's
# image (BE v1.4 docker/Dockerfile:69). By default each rank launches alone, and its kernel waits on the GPU
# for the other rank's. That one may never come: since CUDA 12.2 a kernel is loaded at its first launch, and
# loading waits for the GPU (CUDA Programming Guide, Lazy Loading). On H100s no model over two stages
# answered then.
LAUNCH_TOGETHER = {"NCCL_LAUNCH_MODE": "GROUP"}
# The first and the last of three stages exchange what the second has no part in, and would wait for it (NCCL
# 2.21 group.cc, doLaunches). So each launches alone, and all kernels are loaded when the server starts.
LAUNCH_ALONE = {"NCCL_LAUNCH_MODE": "PARALLEL", "CUDA_MODULE_LOADING": "EAGER"}
MAX_STAGES_TOGETHER = 2
# Between two requests to the readiness endpoint.
POLL_SECONDS = 0.2
SHOWN_LINES = 15
DIED_HINT = "the first error in the log names the cause; `invoke verify` finds missing libraries"
# Error lines of glog (`E1121 ...`), FasterTransformer, NCCL, the C++ runtime, a shell, Open MPI 5.
_CAUSE = re.compile(
    r"E\d{4} |error:|terminate called|\[FT\]\[ERROR\]|Failed, "
    r"|.*(?:No such file|Segmentation fault|PRTE ERROR)"
)


def _command(nodes: int) -> tuple[str, ...]:
    # `-n` counts hosts, not GPUs: one process serves all GPUs of one machine (BE v1.4 docs/gpt_guide.md).
    # Left to itself, Open MPI binds a lone process with all its threads to one core (mpirun(1), --bind-to).
    mpirun = ["mpirun", "-n", str(nodes), "--bind-to", "none", "--allow-run-as-root"]
    if nodes > 1:
        mpirun += ["--host", ",".join(["localhost", *(NODE.format(rank) for rank in range(1, nodes))])]
    return (*mpirun, "tritonserver", f"--model-repository={MODELS}")


COMMAND = _command(1)
# Open MPI 5 ends with "prte_session_dir failed" where a folder of its session is left, whose name has the
# host, the process and the user (PRRTE 3 session_dir.c:95). A container that was killed and starts again has
# the same three; its /tmp is the old one, also in a pod. Process 1 of this host is only an earlier life.
_FORGET = "rm -rf /tmp/prterun.`uname -n`.1.*"


def command(server: str | None, nodes: int = 1) -> tuple[str, ...]:
    """Return the command line of a server of this version (None: unknown), a process on each of the nodes.

    Where the server can, what `CLOSED` names answers only to a header whose name and value are random and
    secret. A shell makes them at each start; in backquotes, since Kubernetes takes `$(...)` for a
    variable of its own. Arguments that a platform appends go to the server all the same. What a killed server
    left of its session is removed first.
    """
    if server is None or Version(server) < CLOSED_FROM:
        return _command(nodes)
    random = "`cat /proc/sys/kernel/random/uuid`"
    options = [
        f"--{option}={CLOSED}:{random}={random}"
        for option in ("http-restricted-api", "grpc-restricted-protocol")
    ]
    return (
        "sh",
        "-c",
        f'{_FORGET}; exec {shlex.join(_command(nodes))} {" ".join(options)} "$@"',
        "tritonserver",
    )


def launching(stages: int) -> Mapping[str, str]:
    """Return the environment in which one process computes so many stages of a pipeline (1: all layers)."""
    return LAUNCH_TOGETHER if stages <= MAX_STAGES_TOGETHER else LAUNCH_ALONE


def _plain(line: str) -> str:
    """Return a line with everything escaped that a terminal would act on."""
    return "".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in line)


def log_excerpt(*logs: bytes) -> str:
    """Return the last error lines of a server's logs, or their last lines; indented for a message."""
    lines = [_plain(line) for log in logs for line in log.decode("utf-8", "replace").splitlines()]
    causes = [line for line in lines if _CAUSE.match(line)]
    return "\n    ".join((causes or lines)[-SHOWN_LINES:])
