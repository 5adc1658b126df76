"""A tiny embedding model on a running server, queried and compared with its reference."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild.client import golden
from ftbuild.client import vectors as requests
from ftbuild.client.connection import Client
from ftbuild.client.golden import ExpectedVectors
from ftbuild.client.tensors import Tokens
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke import models, served
from ftbuild.gates.smoke.job import Job, Variant
from ftbuild.models import config_pbtxt, ensemble, repository
from ftbuild.models.repository import RepositoryOptions

if TYPE_CHECKING:
    import numpy as np


@dataclass
class Embedder(served.Connected):
    """An embedding model of one family, with the models around it."""

    expected: ExpectedVectors

    def ask(self, prompts: Sequence[Tokens], *, client: Client | None = None) -> np.ndarray[Any, Any]:
        """Return the vectors of a batch of prompts, over HTTP by default."""
        outputs = (client or self.clients["http"]).infer(ensemble.ENSEMBLE, requests.request(prompts))
        return requests.answer(outputs)

    def check(self, case: str, vectors: np.ndarray[Any, Any]) -> None:
        """Raise SmokeError unless the vectors are those of the reference."""
        tolerance = golden.VECTOR_TOLERANCE[self.variant.dtype]
        if wrong := golden.vector_mismatch(self.expected.cases[case], vectors.tolist(), tolerance):
            raise SmokeError(
                f"{self.variant} answers {case!r} wrong: {wrong}",
                hint="a kernel, the converter, or embedding and pooling are wrong: does it show in fp32? "
                "Checkpoint, weights and the reference's embeddings lie in the cell's work folder, in smoke/",
            )


@contextlib.contextmanager
def embedding(task: Job, variant: Variant) -> Iterator[Embedder]:
    """Serve a variant as `invoke model-repo` writes it; SmokeError when the server does not get ready."""
    prepared = task.prepared / variant.model
    with tempfile.TemporaryDirectory(prefix="ftbuild-models-") as folder:
        options = RepositoryOptions(
            family=task.family(variant),
            weights=task.weights(variant),
            out=Path(folder) / "models",
            dtype=variant.dtype,
            vectors=task.models[variant.model].vectors,
        )
        made = repository.make({config_pbtxt.MODEL: (prepared / models.CONFIG).read_text()}, options)
        with served.start(task, variant, made.folder, options=()) as running:
            expected = golden.expected_vectors(prepared / models.ANSWERS)
            embedder = Embedder(variant, running, task, expected)
            yield embedder
            embedder.close()
