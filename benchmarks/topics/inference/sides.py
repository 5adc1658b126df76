"""The sides of the comparison: FasterTransformer behind its server, transformers in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ftbuild.client.connection import Client
from ftbuild.models.config_pbtxt import MODEL

if TYPE_CHECKING:
    import numpy as np

    Prompts = np.ndarray[Any, np.dtype[np.uint32]]

ANSWER_SECONDS = 300.0


class Side(Protocol):
    """A side: it continues prompts of equal length greedily."""

    name: str

    def answer(self, prompts: Prompts, length: int) -> list[list[int]]:
        """Return the `length` tokens after each prompt, in host memory."""
        ...


class FasterTransformer:
    """A client of the server, end to end: gRPC, Triton, backend."""

    def __init__(self, name: str, address: str) -> None:
        """Connect to the gRPC endpoint `address` (`host:port`)."""
        self.name = name
        self.client = Client(address, "grpc", seconds=ANSWER_SECONDS)

    def answer(self, prompts: Prompts, length: int) -> list[list[int]]:
        """Send one request with all prompts, which `output_ids` repeats (BE v1.4 docs/gpt_guide.md)."""
        import numpy as np

        batch, given = prompts.shape
        values = {"input_lengths": given, "request_output_len": length, "runtime_top_k": 1}
        rows = {name: np.full((batch, 1), value, np.uint32) for name, value in values.items()}
        outputs = self.client.infer(MODEL, {"input_ids": prompts, **rows})
        tokens: list[list[int]] = outputs["output_ids"][:, 0, given : given + length].tolist()
        return tokens


class Transformers:
    """`generate` of transformers, with its key-value cache; no server, no network."""

    def __init__(self, name: str, model: Any) -> None:
        self.name = name
        self.model = model

    def answer(self, prompts: Prompts, length: int) -> list[list[int]]:
        """Make one call with all prompts."""
        import numpy as np
        import torch

        batch, given = prompts.shape
        ids = torch.as_tensor(prompts.astype(np.int64), device=self.model.device)
        with torch.inference_mode():
            made = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=length,
                do_sample=False,
                **self._options(batch, given, length),
            )
        tokens: list[list[int]] = made[:, given:].tolist()
        return tokens

    def _options(self, batch: int, given: int, length: int) -> dict[str, Any]:
        return {"use_cache": True}


class Compiled(Transformers):
    """The same, compiled: a cache of fixed size lets `generate` use torch.compile and CUDA graphs.

    The cache is kept between calls, since its addresses are part of the graphs (transformers' guide
    "Optimizing inference"), and each batch size is compiled separately.
    """

    def __init__(self, name: str, model: Any) -> None:
        super().__init__(name, model)
        self._caches: dict[tuple[int, int], Any] = {}

    def _options(self, batch: int, given: int, length: int) -> dict[str, Any]:
        from transformers import CompileConfig, StaticCache

        key = (batch, given + length)
        if key not in self._caches:
            self._caches[key] = StaticCache(config=self.model.config, max_cache_len=given + length)
        else:
            self._caches[key].reset()
        return {"past_key_values": self._caches[key], "compile_config": CompileConfig(dynamic=False)}
