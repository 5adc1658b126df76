"""Conversions on this machine: what `conversion_run.convert` does in an SDK image, with its command lines."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ftbuild.models import config_ini, conversion_run, converters, weights
from ftbuild.models.conversion import Conversion
from ftbuild.models.vector_models import Pooling
from testing import ROOT

Array = np.ndarray[Any, Any]
Tensors = Mapping[str, Array]
WORKER = Path(__file__).with_name("torch_worker.py")


class TorchWorker:
    """A process with torch and transformers, which does what torch_worker.py says."""

    def __init__(self, python: str) -> None:
        environment = {"PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [python, str(WORKER)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *command: str) -> str:
        """What a command says; fails unless it ends well."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        code, said = json.loads(self._process.stdout.readline())
        assert code == 0, said[-4000:]
        return str(said)

    def close(self) -> None:
        self._process.communicate()


def carry_out(planned: Conversion, worker: TorchWorker, tree: Path, out: Path) -> Path:
    """What `conversion_run.convert` does in the SDK image, here."""
    here = {
        converters.TREE: str(tree),
        "/convert/checkpoint": str(planned.checkpoint.folder),
        "/convert/out": str(out),
        converters.SCRIPTS: str(ROOT / "ftbuild/models"),
    }
    for argv in planned.commands():
        for inside, path in here.items():
            argv = [argument.replace(inside, path) for argument in argv]
        said = worker("run", str(tree), *argv[1:])
        assert [mark for mark in conversion_run.LOST if mark in said] == []
    made = out / weights.folder_name(planned.request.gpus)
    if added := weights.added_config(planned.converter, planned.checkpoint.facts):
        config_ini.add(made, added)
    return made


def expected_vectors(
    checkpoint: Path, prompts: Sequence[Sequence[int]], worker: TorchWorker, out: Path, pooling: Pooling
) -> Array:
    """What transformers and a pooling by hand make of the prompts; `out` keeps the states."""
    worker("states", str(checkpoint), json.dumps(prompts), str(out))
    states = np.load(out)
    rows = [states[str(number)] for number in range(len(prompts))]
    found = np.stack([row[0] if pooling.kind == "cls" else row.mean(0) for row in rows])
    # Without a word of the checkpoint's, vectors have length 1.
    return found if pooling.normalized is False else found / np.linalg.norm(found, axis=1, keepdims=True)
