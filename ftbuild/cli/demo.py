"""The main job on the sample stack, from lock to an answer: what `./bootstrap demo` shows on a bare machine.

It goes through the very code of the real stack, with another configuration folder.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from ftbuild import pipeline
from ftbuild.build.run import BuildOptions
from ftbuild.cli.selection import Selection, plans
from ftbuild.client import server_container
from ftbuild.client.connection import Client
from ftbuild.client.server_container import Server
from ftbuild.config import loader
from ftbuild.errors import SmokeError
from ftbuild.host import shell
from ftbuild.host.paths import ca_bundle, cache_folder
from ftbuild.models.config_pbtxt import MODEL
from ftbuild.sources.lock import check_lock

TRITON = "22.12"
SM = "80"
REPOSITORIES = ".sample-upstream"
# Without weights the miniature GPT continues with (5 * last + 7) mod 258 (sample/README.md).
PROMPT = (1, 2, 3)
ANSWER = (22, 117, 76, 129)
INPUTS = ("input_ids", "input_lengths", "request_output_len")


def run(root: Path, work: Path, *, ca: str | None, progress: str) -> int:
    """Sample repositories, lock check, build, server, request; SmokeError when the answer is wrong."""
    start = time.monotonic()
    folder = root / "buildcfg" / "sample"
    sample_repositories(root)
    config = loader.load(folder)
    check_lock(config, cache_folder(), report=print)
    print(f"{config.lock_file} agrees with sources.yaml and with upstream")
    (plan,) = plans(config, Selection(folder, [TRITON], [SM]))
    options = BuildOptions(cache_folder(), work, ca=ca_bundle(ca), progress=progress)
    (outcome,) = pipeline.build_cells([plan], options)
    if outcome.error:
        return outcome.exit_code
    with server_container.serve(plan.tag("runtime"), model_repository(work / "demo")) as running:
        print(f"server ready, model {MODEL}: {list(PROMPT)} -> {ask(running)}")
    print(f"demo finished in {time.monotonic() - start:.0f} s: {plan.tag('runtime')}")
    return 0


def sample_repositories(root: Path) -> None:
    """Make the miniature upstreams' git repositories; their commits are the same on every machine."""
    shell.run([sys.executable, str(root / "sample" / "make_repositories.py"), str(root / REPOSITORIES)])


def model_repository(folder: Path) -> Path:
    """A model repository with a GPT that has no weights, and so answers by the sample's rule."""
    model = folder / MODEL
    (model / "1").mkdir(parents=True, exist_ok=True)
    inputs = ", ".join(f'{{ name: "{name}" data_type: TYPE_UINT32 dims: [ -1 ] }}' for name in INPUTS)
    parameters = {
        "model_type": "GPT",
        "tensor_para_size": "1",
        "pipeline_para_size": "1",
        "data_type": "fp32",
    }
    (model / "config.pbtxt").write_text(
        f'name: "{MODEL}"\nbackend: "{MODEL}"\nmax_batch_size: 8\ninput [ {inputs} ]\n'
        'output [ { name: "output_ids" data_type: TYPE_UINT32 dims: [ -1, -1 ] } ]\n'
        "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
        + "".join(
            f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
            for key, value in parameters.items()
        )
    )
    return folder


def ask(running: Server) -> list[int]:
    """One greedy request; the tokens it answers, or SmokeError when they are wrong."""
    values = {"input_ids": PROMPT, "input_lengths": (len(PROMPT),), "request_output_len": (len(ANSWER),)}
    client = Client(running.http, "http")
    outputs = client.infer(MODEL, {name: np.array([data], np.uint32) for name, data in values.items()})
    client.close()
    tokens = outputs["output_ids"].ravel().tolist()
    expected = [*PROMPT, *ANSWER]
    if tokens != expected:
        raise SmokeError(f"the server answered {tokens}, expected {expected}", where=running.url)
    return tokens
