"""Steps replayed as a CUDA graph: long answers are, to the bit, those of kernels launched one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from ftbuild.client import golden
from ftbuild.client.tensors import LOG_PROB, Tokens
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke.job import BF16, DTYPES, INT8, Job
from ftbuild.gates.smoke.served import Served, prompts, serving

# patches/ft/0450.
LAUNCHED = {"FT_STEP_GRAPHS": "0"}
NOT_CAPTURED = b"are launched kernel by kernel"
# With the prompt more than 256 tokens: the attention kernel is launched in another way below 32, and a graph
# ends at 256 (patches/ft/0450). A model with fewer positions gets as many as it has.
LONGEST = 280
BEAM_LENGTH, SEED = 60, 7


@pytest.mark.variants(dtypes=(*DTYPES, BF16, INT8))
def test_replayed_steps_are_those_launched_one_by_one(served: Served, task: Job) -> None:
    if not task.replays:
        pytest.skip("this release launches kernel by kernel, or there is no GPU")
    with serving(task, served.variant, environment=LAUNCHED) as launched:
        for question in questions(served):
            if answer(served, question) != answer(launched, question):
                raise SmokeError(
                    f"{question.what}: replayed steps give other answers than launched ones",
                    hint="what changes from step to step, besides the length of the cache? patches/ft/0450",
                )
    if any(NOT_CAPTURED in log for log in served.server.container.get_logs()):
        raise SmokeError(
            "some steps could not be captured, and were launched one by one",
            hint="does something in them wait, allocate or copy? The lines before in the log say more",
        )


@dataclass(frozen=True)
class Question:
    """A question: its name, prompts, number of tokens, options."""

    what: str
    prompts: list[Tokens]
    length: int
    options: Mapping[str, Any]


def answer(served: Served, question: Question) -> tuple[list[list[int]], bytes]:
    """Return the tokens, and the bits of the sums of their log-probabilities."""
    outputs = served.outputs(question.prompts, question.length, **question.options)
    tokens = served.dialect.answers(outputs, question.prompts, question.length, served.expected.end_id)
    return tokens, outputs[LOG_PROB].tobytes() if LOG_PROB in outputs else b""


def questions(served: Served) -> Iterator[Question]:
    """Yield the questions: greedy with one prompt and with eight, sampled by a seed, and with beams."""
    scored = {"is_return_log_probs": True} if served.dialect.takes("is_return_log_probs") else {}
    eight = prompts("eight")
    max_length = min(LONGEST, (served.expected.max_length or 2 * LONGEST) - max(map(len, eight)))
    yield Question("one prompt", prompts("one"), max_length, {"runtime_top_k": 1, **scored})
    yield Question("eight prompts", eight, max_length, {"runtime_top_k": 1, **scored})
    if served.dialect.takes("random_seed"):
        yield Question("samples", eight, max_length, {"runtime_top_k": 8, "random_seed": SEED, **scored})
    if served.searches_with_beams:
        yield Question("beams", eight, min(BEAM_LENGTH, max_length), {"beam_width": golden.BEAMS})
