"""Facts of Triton Inference Server as our images run it: ports, folders, command line, limits, log."""

from __future__ import annotations

import re

HTTP_PORT, GRPC_PORT, METRICS_PORT = 8000, 8001, 8002
READY, LIVE = "/v2/health/ready", "/v2/health/live"
# Where a container has the model repository.
MODELS = "/models"
# `-n` counts hosts, not GPUs: one process serves all GPUs of one machine (BE v1.4 docs/gpt_guide.md).
# Left to itself, Open MPI binds a lone process with all its threads to one core (mpirun(1), --bind-to).
MPIRUN = ("mpirun", "-n", "1", "--bind-to", "none", "--allow-run-as-root")
COMMAND = (*MPIRUN, "tritonserver", f"--model-repository={MODELS}")
# NCCL and the Python backend share memory; CUDA pins host memory (Triton 22.12 README, "Run Triton").
SHARED_MEMORY = "1g"
LIMITS = {"memlock": -1, "stack": 64 * 2**20}
# Between two requests to the readiness endpoint.
POLL_SECONDS = 0.2
SHOWN_LINES = 15
DIED_HINT = "the first error in the log names the cause; `invoke verify` finds missing libraries"
# Error lines of glog (`E1121 ...`), FasterTransformer, NCCL, the C++ runtime and a shell.
_CAUSE = re.compile(
    r"E\d{4} |error:|terminate called|\[FT\]\[ERROR\]|Failed, |.*(?:No such file|Segmentation fault)"
)


def log_excerpt(*logs: bytes) -> str:
    """Return the last error lines of a server's logs, or their last lines; indented for a message."""
    lines = [line for log in logs for line in log.decode("utf-8", "replace").splitlines()]
    causes = [line for line in lines if _CAUSE.match(line)]
    return "\n    ".join((causes or lines)[-SHOWN_LINES:])
