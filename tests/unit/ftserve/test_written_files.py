"""What is written for each platform, word for word, as somebody gets it who keeps these files in git.

`FTBUILD_RECORD=1 python -m pytest tests/unit/ftserve/test_written_files.py` writes the folder `written` anew,
whose difference is then read like that of any other source. The programs that all platforms share are
shortened: they have tests of their own.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ftserve import health, several_nodes, stored
from ftserve.deployment import Deployment, Options, Ports, decide
from ftserve.front_options import Front
from ftserve.image_choice import Image
from ftserve.requirements import Needs, Weights
from ftserve.targets import apptainer, compose, kserve, kubernetes
from ftserve.targets.kserve import Service
from ftserve.targets.kubernetes import Cluster

WRITTEN = Path(__file__).parent / "written"
MODELS = Path("/models of $us")
FRONT = Front(
    "triton_with_ft:openai",
    "gpt",
    end_id=50256,
    context=1024,
    keys=Path("/keys $1"),
    origins=("https://chat.example",),
    cancels=True,
)
_WEIGHTS = Weights(
    "fastertransformer", "GPT", "fp16", False, 2, 1, 1, "fastertransformer/1/2-gpu", True, (2,)
)


def deployed(weights: Weights = _WEIGHTS, *, models: Path | None = MODELS, nodes: int = 1) -> Deployment:
    options = Options(
        models, ports=Ports(18000, 18001, 18002, openai=18003), shared_memory=2**31, nodes=nodes
    )
    needs = Needs((weights.model,), (weights,), size=5 * 2**30)
    return decide(options, needs, Image("triton_with_ft:22.12-sm80"), "gpu")


def on_cpu() -> Deployment:
    options = Options(MODELS, ports=Ports(listen="::1"))
    needs = Needs(("fastertransformer",), (replace(_WEIGHTS, split=(), exists=True, request_seconds=0),))
    return decide(options, needs, Image("triton_with_ft:22.12-sm80"), "cpu")


def with_front() -> Deployment:
    return replace(deployed(), front=FRONT)


def of_vectors() -> Deployment:
    front = Front(
        "triton_with_ft:openai", "bert", embeds=True, tokenizer="embedding/1/tokenizer", cancels=False
    )
    return replace(deployed(), front=front)


def on_nodes() -> Deployment:
    pipeline = replace(
        _WEIGHTS, tensor_para=1, pipeline_para=2, split=(1,), folder="fastertransformer/1/1-gpu"
    )
    return deployed(pipeline, nodes=2)


BUCKET = stored.parse("s3://models/gptj", "registry.example.com/rclone:1.71", "https://minio.example.com")
REGISTRY = stored.parse(f"oci://registry.example.com/team/gptj@sha256:{'a' * 64}")
CLUSTER = Cluster(
    claim="models",
    replicas=2,
    secret="openai-keys",
    max_replicas=5,
    pending=3,
    isolated=True,
    monitoring="watching",
    node_key="f00d",
)
FILES: Mapping[str, Callable[[], str]] = {
    "compose.yaml": lambda: compose.render(deployed()),
    "compose-cpu.yaml": lambda: compose.render(on_cpu()),
    "compose-cdi.yaml": lambda: compose.render(replace(deployed(), access="cdi")),
    "compose-front.yaml": lambda: compose.render(with_front()),
    "compose-vectors.yaml": lambda: compose.render(of_vectors()),
    "compose-stored.yaml": lambda: compose.render(deployed(models=None), BUCKET),
    "kubernetes.yaml": lambda: kubernetes.render(deployed()),
    "kubernetes-cpu.yaml": lambda: kubernetes.render(on_cpu()),
    "kubernetes-operated.yaml": lambda: kubernetes.render(with_front(), CLUSTER),
    "kubernetes-vectors.yaml": lambda: kubernetes.render(of_vectors(), Cluster(isolated=True)),
    "kubernetes-nodes.yaml": lambda: kubernetes.render(on_nodes(), CLUSTER),
    "kubernetes-nodes-alone.yaml": lambda: kubernetes.render(on_nodes(), Cluster(node_key="f00d")),
    "kubernetes-stored.yaml": lambda: kubernetes.render(
        deployed(models=None), Cluster(stored=BUCKET, storage_secret="storage")
    ),
    "kubernetes-registry.yaml": lambda: kubernetes.render(
        with_front(), Cluster(stored=REGISTRY, secret="openai-keys")
    ),
    "kserve.yaml": lambda: kserve.render(deployed(models=None), Service("pvc://models/gpt", 2, 4)),
    "apptainer.txt": lambda: joined(apptainer.render(deployed())),
    "apptainer-archive.txt": lambda: joined(apptainer.render(on_cpu(), archive=True)),
    "apptainer-nodes.txt": lambda: joined(apptainer.render(on_nodes())),
    "apptainer-stored.txt": lambda: joined(apptainer.render(deployed(models=None), stored=BUCKET)),
}


def joined(files: Mapping[str, str]) -> str:
    return "".join(f"==> {name}\n{text}" for name, text in files.items())


PROGRAMS = {"health": health.SCRIPT, "nodes": several_nodes.SCRIPT, "fetch": stored.SCRIPT}


def shortened(text: str) -> str:
    """Leave out the programs, as they stand and as YAML or Compose writes them."""
    for name, script in PROGRAMS.items():
        for shown in (script, script.replace("$", "$$")):
            for depth in (0, 4, 6, 8, 10):
                text = text.replace(
                    textwrap.indent(shown, " " * depth), f"{' ' * depth}<the program {name}>\n"
                )
    return text


@pytest.mark.parametrize("name", FILES)
def test_what_is_written_is_what_has_been_read(name: str) -> None:
    text, file = shortened(FILES[name]()), WRITTEN / name
    if os.environ.get("FTBUILD_RECORD"):
        file.write_text(text)
    assert text == file.read_text()


def test_no_file_is_left_of_a_platform_that_is_gone() -> None:
    assert {file.name for file in WRITTEN.iterdir()} == set(FILES)
