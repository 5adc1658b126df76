"""What the benchmark needs to know of a model of any family."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol

# The folder beside the weights with the model as transformers saves it.
CHECKPOINT = "checkpoint"


class Architecture(Protocol):
    """A model with random weights, both as FasterTransformer's files and as a model of transformers.

    A dataclass, whose fields are the numbers that decide its size. `family` is its key in models.yaml.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]
    family: ClassVar[str]

    @property
    def end(self) -> int:
        """Return the token that ends an answer, which no answer holds."""
        ...

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        ...

    @property
    def step(self) -> int:
        """Return the number of parameters that a step of decoding reads: at least once each."""
        ...

    def make(self, device: str) -> Any:
        """Return the model of transformers in fp16."""
        ...

    def fill(self, made: Any, folder: Path) -> None:
        """Write its weights into the new `folder` for FasterTransformer; they may be drawn only now."""
        ...

    def share(self, folder: Path, shared: Path, gpus: int) -> None:
        """Write the weights of `folder`, which `fill` has filled, into the new `shared` for several GPUs."""
        ...
