"""Models with random weights, by family."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.topics.inference.models import gpt, gptj, gptneox, llama, t5
from benchmarks.topics.inference.models.architecture import Architecture

FAMILIES: Mapping[str, type[Architecture]] = {
    module.Shape.family: module.Shape for module in (gpt, gptj, gptneox, t5, llama)
}
