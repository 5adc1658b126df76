"""Models with random weights, by family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.topics.inference.models import gpt, gptj, gptneox, llama, t5
from benchmarks.topics.inference.models.architecture import Architecture

_SHAPES: Sequence[type[Architecture]] = (gpt.Shape, gptj.Shape, gptneox.Shape, t5.Shape, llama.Shape)
FAMILIES: Mapping[str, type[Architecture]] = {shape.family: shape for shape in _SHAPES}
