"""One model over several nodes, an MPI rank on each: what of it can work, and the program that starts it.

Rank 0 has the endpoints and hands each batch to the others. Those compute while their server still loads the
model, and never get beyond, so that they have no endpoint (BE v1.4 libfastertransformer.cc:1292, :1933).
"""

from __future__ import annotations

from pathlib import Path

from ftbuild.errors import ConfigError
from ftserve import node_group
from ftserve.image_choice import Image
from ftserve.requirements import Needs, Weights

SCRIPT = Path(node_group.__file__).read_text(encoding="utf-8")
SCRIPT_NAME = "node_group.py"
# Where the first node hands out the daemons of the others.
PORT = 8004
# With as many ranks FasterTransformer exchanges memory between GPUs 0 to 7 of its own node, whatever
# enable_custom_all_reduce says (FT v5.3 custom_ar_comm.cc:129-157, custom_ar_kernels.h:29).
ONE_NODE_GPUS = 8
# Debian 13 has Open MPI 5, whose daemon is another one (libopenmpi40 in bases.yaml).
OTHER_DAEMON = frozenset({"open-trixie", "open-trixie-arm64"})


def require(needs: Needs, nodes: int, device: str) -> None:
    """Raise ConfigError unless the repository is for one model that can be spread over that many nodes."""
    if device != "gpu":
        raise ConfigError(
            "the backend of this stack computes on the CPU, in one process", hint="leave out --nodes"
        )
    if not needs.models:
        raise ConfigError(
            "several nodes serve one model, which must be known",
            hint="--model-repo DIR, a copy to read here",
        )
    names = ", ".join(weights.model for weights in needs.weights)
    if len(needs.weights) != 1:
        # Their requests would be broadcast over the same communicator by different threads.
        raise ConfigError(
            f"several nodes serve one model of FasterTransformer, not {names or 'none'}",
            hint="a repository with one, and the models around it",
        )
    (weights,) = needs.weights
    if weights.instances != 1:
        raise ConfigError(
            f"{weights.model}: {weights.instances} instances over several nodes; the backend takes one",
            hint="invoke model-repo --instances 1",
        )
    if weights.gpus % nodes:
        raise ConfigError(
            f"{weights.model}: {_split(weights)} is {weights.gpus} GPUs, not a multiple of {nodes} nodes",
            hint="invoke model-repo --pipeline with the number of nodes, and --gpus with the GPUs of one",
        )
    if weights.gpus == ONE_NODE_GPUS:
        raise ConfigError(
            f"{weights.model}: {_split(weights)} is {ONE_NODE_GPUS} GPUs, which FasterTransformer "
            "expects in one node",
            hint="one node, or another number of GPUs",
        )


def require_image(image: Image) -> None:
    """Raise ConfigError for an image, as far as its labels say, whose mpirun cannot be started so."""
    if image.base in OTHER_DAEMON:
        raise ConfigError(
            f"{image.name}: several nodes need Open MPI 4, and the base {image.base} has 5",
            hint="an image on another base, for instance invoke build --base open",
        )


def require_gpus(weights: Weights, nodes: int, gpus: int) -> None:
    """Raise ConfigError unless all GPUs of all nodes are used (BE v1.4 libfastertransformer.cc:378-391)."""
    if gpus * nodes != weights.gpus:
        raise ConfigError(
            f"{weights.model}: {nodes} nodes with {gpus} GPUs each, and {_split(weights)} is {weights.gpus}",
            hint=f"{weights.gpus // nodes} GPUs in each node",
        )


def _split(weights: Weights) -> str:
    return f"tensor_para_size {weights.tensor_para} x pipeline_para_size {weights.pipeline_para}"
