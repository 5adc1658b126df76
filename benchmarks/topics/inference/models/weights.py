"""Random weights, in the parameters of transformers and in FasterTransformer's files."""

from __future__ import annotations

import configparser
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ftbuild.models import config_ini

if TYPE_CHECKING:
    import torch

SEED = 20221
# GPT-2's own (transformers, GPT2Config.initializer_range). GPT-2 scales the last projections of a layer down;
# here they are not, so that the layers outweigh the embedding and answers do not merely repeat tokens.
STD = 0.02


def same(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as it is."""
    return tensor


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a matrix of torch's Linear, [out, in], as [in, out]."""
    return tensor.T


def in_three(tensor: torch.Tensor) -> torch.Tensor:
    """Return queries, keys and values that follow each other, [..., 3 * out], as [..., 3, out]."""
    return tensor.reshape(*tensor.shape[:-1], 3, -1)


def together(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return three matrices [out, in] as [in, 3, out]."""
    import torch

    return torch.stack([query, key, value]).permute(2, 0, 1)


# Of a file that GPUs share, the part of the first; and whose rows are shared.
_FIRST = ".0.bin"
_BY_ROWS = (
    *("attention.dense.weight", "mlp.dense_4h_to_h.weight"),
    *("Attention.o.weight", "DenseReluDense.wo.weight", "relative_attention_bias.weight"),
)


@dataclass(frozen=True)
class File:
    """A weight file: its size, and the parameters of transformers from which `layout` makes it."""

    name: str
    size: tuple[int, ...]
    parameters: tuple[str, ...]
    layout: Callable[..., torch.Tensor] = same

    @property
    def axis(self) -> int | None:
        """Return the axis along which GPUs share it, as upstream's converters do; None: each has all of it.

        Matrices that read what a layer's heads and inner neurons made are shared by rows (FT v5.3,
        huggingface_gpt_convert.py:53-88, huggingface_gptj_ckpt_convert.py:57-91,
        huggingface_t5_ckpt_convert.py:50-92, 128-133).
        """
        if not self.name.endswith(_FIRST):
            return None
        return 0 if self.name.removesuffix(_FIRST).endswith(_BY_ROWS) else len(self.size) - 1


class Drawn(ABC):
    """A model whose weights are drawn here, into transformers and into FasterTransformer's files.

    Its last token ends an answer. In the parameters `head` its row is zero, so its logit is zero: never the
    greatest.
    """

    hidden: int
    vocabulary: int
    head: ClassVar[tuple[str, ...]]

    @abstractmethod
    def files(self) -> Iterator[File]:
        """Yield all files for one GPU."""

    def share(self, folder: Path, shared: Path, gpus: int) -> None:
        """Write the files of `folder`, which are for one GPU, into the new `shared` for several."""
        import numpy as np

        write_config(self.config(), shared, gpus)
        for file in self.files():
            if file.axis is None:
                os.link(folder / file.name, shared / file.name)
                continue
            whole = np.fromfile(folder / file.name, np.float16).reshape(file.size)
            for gpu, part in enumerate(np.split(whole, gpus, file.axis)):
                np.ascontiguousarray(part).tofile(shared / f"{file.name.removesuffix(_FIRST)}.{gpu}.bin")

    @abstractmethod
    def config(self) -> Mapping[str, Mapping[str, object]]:
        """Return the sections of config.ini."""

    @property
    def end(self) -> int:
        """Return the end token."""
        return self.vocabulary - 1

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        return count(self.files())

    @property
    def step(self) -> int:
        """Return the number of all but the embedding, of which a step reads a row."""
        return self.parameters - self.vocabulary * self.hidden

    def fill(self, made: Any, folder: Path) -> None:
        """Draw all weights into the model `made` of transformers, and write them into the new `folder`."""
        write_config(self.config(), folder)
        draw(made, never=dict.fromkeys(self.head, self.end))
        write(made, list(self.files()), folder)


def count(files: Iterable[File]) -> int:
    """Return the number of parameters in files, of which several may hold the same ones."""
    seen: set[str] = set()
    total = 0
    for file in files:
        if not seen.issuperset(file.parameters):
            total += math.prod(file.size)
        seen.update(file.parameters)
    return total


def norm(file: str, parameter: str, size: int) -> Iterator[File]:
    """Yield the files of a norm with a scale and a shift."""
    for part in ("weight", "bias"):
        yield File(f"{file}.{part}.bin", (size,), (f"{parameter}.{part}",))


def draw(made: Any, *, never: Mapping[str, int], seed: int = SEED) -> None:
    """Draw all parameters of a model: about one in the scales of norms, else about zero.

    `never` names parameters with the row that becomes zero, that of the end token in the head: its logit is
    zero then, never the greatest. The same seed gives the same weights on the same kind of device.
    """
    import torch

    generator = torch.Generator(made.device).manual_seed(seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            scale = parameter.dim() == 1 and name.endswith("weight")
            drawn = torch.randn(parameter.shape, generator=generator, device=made.device) * STD + float(scale)
            if name in never:
                drawn[never[name]] = 0
            parameter.copy_(drawn)


def write(made: Any, files: Collection[File], folder: Path) -> None:
    """Write the files of a model into `folder`."""
    parameters = dict(made.named_parameters())  # a tied head counts once
    for file in files:
        laid = file.layout(*(parameters[name].detach() for name in file.parameters)).contiguous()
        assert laid.shape == file.size, file
        laid.cpu().numpy().tofile(folder / file.name)
    used = {name for file in files for name in file.parameters}
    assert used == parameters.keys(), f"transformers has more tensors: {parameters.keys() - used}"


def write_config(sections: Mapping[str, Mapping[str, object]], folder: Path, gpus: int = 1) -> None:
    """Write config.ini of weights for so many GPUs into the new `folder`."""
    folder.mkdir(parents=True)
    written = configparser.ConfigParser()
    written.read_dict(sections)
    for section in written.values():
        if "tensor_para_size" in section:
            section["tensor_para_size"] = str(gpus)
    with (folder / config_ini.FILE).open("w", encoding="utf-8") as file:
        written.write(file)


def made(kind: Callable[[Any], Any], described: Any, device: str) -> Any:
    """Return a model of transformers in fp16, whose weights are not drawn yet and whose answers never end.

    An end token costs transformers a check at every step, so it gets none, to its advantage.
    """
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        with torch.device(device):
            model = kind(described).eval()
    finally:
        torch.set_default_dtype(before)
    model.tie_weights()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = described.eos_token_id
    return model
