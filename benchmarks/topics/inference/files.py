"""The files of a model with random weights: FasterTransformer's, and a checkpoint for other engines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.topics.inference.measure import progress
from benchmarks.topics.inference.models.architecture import CHECKPOINT
from ftbuild.models.weights import folder_name

if TYPE_CHECKING:
    from benchmarks.topics.inference.models.architecture import Architecture

WEIGHTS_FOLDER = "weights"


def weights(folder: Path, gpus: int = 1) -> Path:
    """Return where below `folder` FasterTransformer's files for so many GPUs are."""
    return folder / WEIGHTS_FOLDER / folder_name(gpus)


def checkpoint(folder: Path) -> Path:
    """Return where below `folder` the model is as transformers saves it."""
    return folder / WEIGHTS_FOLDER / CHECKPOINT


def write(shape: Architecture, device: str, folder: Path, *, other_engines: bool) -> Any:
    """Make the model on `device`, write its files for one GPU, and a checkpoint for others; return it."""
    start = time.monotonic()
    model = shape.make(device)
    progress(f"model of {shape.parameters:,} parameters on {device}: {time.monotonic() - start:.1f} s")
    shape.fill(model, weights(folder))
    if other_engines and not checkpoint(folder).exists():
        model.save_pretrained(checkpoint(folder))
    progress(f"weights: {time.monotonic() - start:.1f} s")
    return model
