"""Log-probabilities of tokens of a prompt or of an answer: how a model rates each after those before it.

The backend returns none of a prompt's log-probabilities (FasterTransformer's GPT alone has their sum,
ParallelGpt.cc:402, for an input that upstream's config.pbtxt lack), and of an answer's only a sum among all
tokens (FT v5.3 sampling_topk_kernels.cu:293-300; `output_log_probs` are among those that may be drawn, so 0
for the best one). So each token is asked for: one token after all before it, the best one, with its
log-probability. A token that is not the best is asked for again, where all others are banned. Its odds
against the best one follow from the probability of that; a temperature keeps rare tokens from vanishing in
it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ftserve.front import limits, tensors
from ftserve.front.failures import broken, unsupported
from ftserve.front.tensors import Array, Ask, Facts
from ftserve.front.together import together
from ftserve.front.triton import Server

# Widths of a beam search that every release computes up to the best tokens wanted
# (FT v5.3 ParallelGptTritonModelInstance.cc:190).
_WIDTHS = (1, 2, 3, 4, 8, 16, 32)
# Odds of e**-40 are e**-2.5 at this temperature, which a float of 32 bits holds to 1e-5.
_TEMPERATURE = 16.0
# For what is never chosen: JSON has no infinity.
LOWEST = -9999.0
_NEEDED = ("runtime_top_k", tensors.WITH_LOG_PROB)
_NEEDED_TO_FORCE = (tensors.BAD_WORDS, "temperature")


@dataclass(frozen=True)
class Rated:
    """A token and its log-probability (None: it is the first), and the best tokens with theirs."""

    token: int
    log_prob: float | None
    top: tuple[tuple[int, float], ...] = ()


def require_ratings(facts: Facts, param: str, *, any_token: bool) -> None:
    """Raise Failure (400) unless the model can rate tokens: `any_token`, or the best ones alone."""
    if not facts.repeats_prompt:
        raise unsupported(param, "an encoder-decoder cannot continue the beginning of an answer")
    lacking = [
        name for name in (*_NEEDED, *(_NEEDED_TO_FORCE if any_token else ())) if name not in facts.inputs
    ]
    if lacking:
        raise unsupported(param, f"this model has no input {lacking[0]}")
    if any_token and facts.vocabulary is None:
        raise unsupported(
            param,
            (
                "the model repository does not state the size of the vocabulary; invoke model-repo writes "
                "it again"
            ),
        )


class Rater:
    """Asks a server for the log-probabilities of tokens."""

    def __init__(self, server: Server, end_id: int | None) -> None:
        self._server = server
        self._end_id = end_id
        self._free = asyncio.Semaphore(limits.RATED_AT_ONCE)

    async def rated(self, row: Sequence[int] | Array, start: int, top: int) -> list[Rated]:
        """Return the ratings of the tokens of a row from `start` on, each with the `top` best ones.

        Failure as the server's.
        """
        facts = await self._server.facts()
        ids = [int(token) for token in row]
        return await together(self._rate(facts, ids, place, top) for place in range(start, len(ids)))

    async def _rate(self, facts: Facts, ids: Sequence[int], place: int, top: int) -> Rated:
        token = ids[place]
        if place == 0:
            return Rated(token, None)
        async with self._free:
            best = await self._best(facts, ids[:place], max(top, 1))
            known = dict(best)
            if token not in known:
                known[token] = await self._forced(facts, ids[:place], token, best[0])
        return Rated(token, known[token], best[:top])

    async def _best(self, facts: Facts, before: Sequence[int], top: int) -> tuple[tuple[int, float], ...]:
        """Return the best tokens after a text, with their log-probabilities, the best one first."""
        width = next(width for width in _WIDTHS if width >= top)
        if width > 1 and "beam_width" not in facts.inputs:
            raise unsupported("top_logprobs", "this model has no input beam_width")
        options: dict[str, float] = {tensors.WITH_LOG_PROB: True}
        options |= {"runtime_top_k": 1} if width == 1 else {"beam_width": width}
        outputs = await self._server.outputs(Ask(before, 1, self._end_id, options))
        tokens, rates = self._read(outputs, len(before), width)
        return tuple(sorted(zip(tokens, rates, strict=True), key=lambda each: -each[1]))

    async def _forced(
        self, facts: Facts, before: Sequence[int], token: int, best: tuple[int, float]
    ) -> float:
        """Return the log-probability of any token, by its odds against the best one."""
        require_ratings(facts, "logprobs", any_token=True)
        assert facts.vocabulary is not None
        if token >= facts.vocabulary:
            return LOWEST
        odds = await self._odds(facts.vocabulary, before, token, best[0])
        if tensors.NEVER_BANNED not in (token, best[0]):
            odds -= await self._odds(facts.vocabulary, before, tensors.NEVER_BANNED, best[0])
        return max(best[1] + _TEMPERATURE * math.log(odds), LOWEST) if odds > 0 else LOWEST

    async def _odds(self, vocabulary: int, before: Sequence[int], token: int, best: int) -> float:
        """Return the odds, at the temperature, of a token and the never banned one to the best one."""
        others = np.arange(vocabulary, dtype=np.int32)
        others = others[(others != token) & (others != best) & (others != tensors.NEVER_BANNED)]
        options = {tensors.WITH_LOG_PROB: True, "runtime_top_k": 1, "temperature": _TEMPERATURE}
        outputs = await self._server.outputs(Ask(before, 1, self._end_id, options, bans=others))
        _, (rate,) = self._read(outputs, len(before), 1)
        return math.expm1(-rate)

    @staticmethod
    def _read(outputs: dict[str, memoryview], before: int, width: int) -> tuple[list[int], list[float]]:
        rows, rates = outputs.get(tensors.ANSWER), outputs.get(tensors.LOG_PROB)
        if rows is None or rates is None or len(rows) != width * (before + 1) or len(rates) < width:
            raise broken()
        log_probs = [float(each) for each in rates[:width]]
        if any(map(math.isnan, log_probs)):
            raise broken()
        tokens = [int(each) for each in rows[before :: before + 1]]
        return tokens, [max(each, LOWEST) for each in log_probs]
