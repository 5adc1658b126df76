"""A Triton server with a FasterTransformer model, as one of two servers that are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ftbuild.client import model_metadata, tensors
from ftbuild.client.comparing.answers import Answer, Choices
from ftbuild.client.comparing.prompts import Prompt
from ftbuild.client.connection import Client, Protocol, Refused, Unanswered
from ftbuild.client.model_metadata import ModelMetadata
from ftbuild.client.tensors import TensorSchema, Tokens
from ftbuild.config.families import ModelsConfig, Tensors
from ftbuild.errors import ConfigError
from ftbuild.models import config_pbtxt
from ftbuild.text import terminal

# Release 1.1 knows 1, 2, 3, 4 and some larger numbers (patches/backend/0163).
_BEAMS = 4


class TritonServer:
    """A connection to one; see `servers.Server`."""

    def __init__(self, url: str, model: str | None, models: ModelsConfig, seconds: float) -> None:
        """`url` is http://host:port, or host:port for gRPC; `models` are the families that there are."""
        protocol: Protocol = "http" if url.startswith("http://") else "grpc"
        self._client = Client(url, protocol, seconds=seconds)
        try:
            self._model = model_metadata.read(self._client.config(model or config_pbtxt.MODEL))
        except Refused as refused:
            self._client.close()
            refused.hint = (
                f"is this Triton's {protocol} endpoint, and its model called {model or config_pbtxt.MODEL}? "
                "An address of OpenAI's API ends with its path, for instance http://host:8000/v1"
            )
            raise
        except BaseException:
            self._client.close()
            raise
        self._tensors = _tensors(self._model, models)
        self._schema = TensorSchema(self._tensors, self._model.data_types)
        if self._model.decoupled and protocol == "http":
            self._client.close()
            raise ConfigError(
                "a model that streams its answers needs gRPC",
                where=url,
                hint="host:port of the gRPC endpoint, without http://",
            )

    @property
    def title(self) -> str:
        """Where and what it is."""
        known = self._model.parameters
        facts = [known[name] for name in ("model_type", "data_type") if name in known]
        described = f" ({', '.join(facts)})" if facts else ""
        where = f"{self._client.address} ({self._client.protocol})"
        return terminal.printable(f"{where}, Triton, model {self._model.name}{described}")

    def answer(self, prompt: Prompt, length: int) -> Answer:
        """Return up to `length` greedy tokens; raise Refused, Unanswered."""
        outputs = self._ask(prompt.tokens, length)
        start = len(prompt.tokens) if self._tensors.repeats_prompt else 0
        row = [int(token) for token in outputs[tensors.ANSWER].reshape(-1)]
        stop = min(start + length, len(row))
        if tensors.ANSWER_LENGTH in outputs and outputs[tensors.ANSWER_LENGTH].size:
            stop = min(stop, max(start, int(outputs[tensors.ANSWER_LENGTH].reshape(-1)[0])))
        tokens, end_id = row[start:stop], self._end_id(row, stop)
        if end_id in tokens:
            return Answer(tuple(tokens[: tokens.index(end_id)]), True, end_id)
        return Answer(tuple(tokens), False)

    def choices(self, prompt: Prompt, answer: Answer, step: int) -> Choices:
        """Return the best tokens at a place with their log-probabilities.

        They are the first tokens of a beam search: those of sampling are among the tokens that may be drawn,
        which is 0 for the best (FT v5.3 sampling_topk_kernels.cu:293-300). Where that is refused, and for
        encoders with decoders, which cannot continue the beginning of an answer, the sums of two greedy
        answers tell about the server's own token.
        """
        best_tokens: Choices = {}
        if self._tensors.repeats_prompt and self._schema.takes("beam_width"):
            best_tokens = self._unless_refused(lambda: self._beams((*prompt.tokens, *answer.tokens[:step])))
        return best_tokens or self._unless_refused(lambda: self._own(prompt.tokens, answer, step))

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _beams(self, prompt: Tokens) -> dict[int, float]:
        outputs = self._ask(prompt, 1, _BEAMS)
        rows = outputs[tensors.ANSWER]
        if tensors.LOG_PROB not in outputs or rows.size != _BEAMS * (len(prompt) + 1):
            return {}
        tokens = map(int, rows.reshape(_BEAMS, -1)[:, len(prompt)])
        return dict(zip(tokens, map(float, outputs[tensors.LOG_PROB].reshape(-1)), strict=False))

    def _own(self, prompt: Tokens, answer: Answer, step: int) -> dict[int, float]:
        own, sums = answer.at(step), [self._sum(prompt, length) for length in (step, step + 1)]
        known = [each for each in sums if each is not None]
        return {own: known[1] - known[0]} if own is not None and len(known) == len(sums) else {}

    @staticmethod
    def _unless_refused(ask: Callable[[], Choices]) -> Choices:
        """Return what the server answers, nothing where it refuses; Unanswered when it is away."""
        try:
            return ask()
        except Unanswered:
            raise
        except Refused:
            return {}

    def _sum(self, prompt: Tokens, length: int) -> float | None:
        """Return the sum of the log-probabilities of a greedy answer, None if it is not returned."""
        if length == 0:
            return 0.0
        sums = self._ask(prompt, length).get(tensors.LOG_PROB)
        return None if sums is None or not sums.size else float(sums.reshape(-1)[0])

    def _ask(self, prompt: Tokens, length: int, beams: int | None = None) -> dict[str, tensors.Array]:
        extra = model_metadata.options(self._model, self._model.parameters, 1)
        wide: dict[str, Any] = {} if beams is None else {"beam_width": beams}
        request = {**extra, **self._schema.request([prompt], length, **wide)}
        if self._model.decoupled:
            responses = list(self._client.stream(self._model.name, request))
            outputs = responses[-1] if responses else {}
        else:
            outputs = self._client.infer(self._model.name, request)
        if tensors.ANSWER not in outputs:
            raise Refused(
                f"there is no {tensors.ANSWER} in the answer, but {sorted(outputs)}",
                where=self._client.address,
            )
        return outputs

    def _end_id(self, row: Tokens, stop: int) -> int | None:
        """Return the token that ends answers: what fills a row, or what config.pbtxt says."""
        if stop < len(row):
            return row[stop]
        named = self._model.parameters.get("end_id", "")
        return int(named) if named.isdecimal() else None


def _tensors(model: ModelMetadata, models: ModelsConfig) -> Tensors:
    """Return the tensors of the families that the model is of."""
    known = [family.tensors for family in models.families.values() if family.tensors is not None]
    for each in known:
        if {each.prompt, each.prompt_length, each.answer_length} <= model.inputs.keys():
            return each
    raise ConfigError(
        f"the model {model.name} does not generate tokens: it takes {', '.join(sorted(model.inputs))}",
        hint="compare answers the models of GPT's kind and T5",
    )
