"""The sides of the comparison: FasterTransformer behind its server, transformers in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ftbuild.client.connection import Client
from ftbuild.client.tensors import ANSWER
from ftbuild.models.config_pbtxt import MODEL

if TYPE_CHECKING:
    import numpy as np

    from ftbuild.config.families import Tensors

    Prompts = np.ndarray[Any, np.dtype[np.uint32]]

ANSWER_SECONDS = 300.0


class Side(Protocol):
    """A side: it continues prompts of equal length greedily."""

    name: str

    @property
    def prompt(self) -> int | None:
        """Return the only length of prompts that it gets; None: any."""
        ...

    def answer(self, prompts: Prompts, length: int) -> list[list[int]]:
        """Return the `length` tokens after each prompt, in host memory."""
        ...


class FasterTransformer:
    """A client of the server, end to end: gRPC, Triton, backend. `tensors` are those of the family."""

    prompt = None

    def __init__(self, name: str, address: str, tensors: Tensors) -> None:
        """Connect to the gRPC endpoint `address` (`host:port`)."""
        self.name = name
        self.client = Client(address, "grpc", seconds=ANSWER_SECONDS)
        self._tensors = tensors

    def answer(self, prompts: Prompts, length: int) -> list[list[int]]:
        """Send one request with all prompts."""
        import numpy as np

        batch, prompt_length = prompts.shape
        named = self._tensors
        values = {named.prompt_length: prompt_length, named.answer_length: length, "runtime_top_k": 1}
        rows = {name: np.full((batch, 1), value, np.uint32) for name, value in values.items()}
        outputs = self.client.infer(MODEL, {named.prompt: prompts, **rows})
        start = prompt_length if named.repeats_prompt else 0
        tokens: list[list[int]] = outputs[ANSWER][:, 0, start : start + length].tolist()
        return tokens


class Transformers:
    """`generate` of transformers, with its key-value cache; no server, no network."""

    prompt: int | None = None

    def __init__(self, name: str, model: Any) -> None:
        self.name = name
        self.model = model

    def answer(self, prompts: Prompts, length: int) -> list[list[int]]:
        """Make one call with all prompts."""
        import numpy as np
        import torch

        batch, prompt_length = prompts.shape
        ids = torch.as_tensor(prompts.astype(np.int64), device=self.model.device)
        with torch.inference_mode():
            made = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=length,
                do_sample=False,
                **self._options(batch),
            )
        # An encoder's prompt is not in the answer, but the token that the decoder starts with is.
        start = 1 if self.model.config.is_encoder_decoder else prompt_length
        tokens: list[list[int]] = made[:, start:].tolist()
        return tokens

    def _options(self, batch: int) -> dict[str, Any]:
        return {"use_cache": True}


class Compiled(Transformers):
    """The same, compiled: a cache of fixed size lets `generate` use torch.compile and CUDA graphs.

    The cache is kept between calls, since its addresses are part of the graphs (transformers' guide
    "Optimizing inference"). Each batch size and each length of a cache would be compiled separately, for
    some 40 seconds: there is one length, for prompts of `prompt` tokens and answers of `longest`.
    """

    def __init__(self, name: str, model: Any, prompt: int, longest: int) -> None:
        super().__init__(name, model)
        self.prompt: int = prompt
        self._longest = longest
        self._caches: dict[int, Any] = {}

    def _options(self, batch: int) -> dict[str, Any]:
        from transformers import CompileConfig

        if batch not in self._caches:
            self._caches[batch] = self._cache()
        else:
            self._caches[batch].reset()
        return {"past_key_values": self._caches[batch], "compile_config": CompileConfig(dynamic=False)}

    def _cache(self) -> Any:
        from transformers import EncoderDecoderCache, StaticCache

        config = self.model.config
        if config.is_encoder_decoder:
            lengths = (self._longest + 1, self.prompt)  # of the decoder, and what it sees of the prompt
            return EncoderDecoderCache(*(StaticCache(config=config, max_cache_len=size) for size in lengths))
        return StaticCache(config=config, max_cache_len=self.prompt + self._longest)
