"""The job of the suite, a pytest process of its own: image, models, GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ftbuild.config.families import Tensors

DTYPES = ("fp32", "fp16")


@dataclass(frozen=True)
class Variant:
    """One way of serving a family, by one server."""

    family: str
    dtype: str = "fp32"
    tensor_para: int = 1
    decoupled: bool = False

    def __str__(self) -> str:
        parts = [self.family, self.dtype, *([f"tp{self.tensor_para}"] if self.tensor_para > 1 else [])]
        return "-".join([*parts, *(["streamed"] if self.decoupled else [])])


@dataclass(frozen=True)
class Model:
    """A family under test: its tensors, and whether this release streams its answers."""

    tensors: Tensors
    streams: bool


@dataclass(frozen=True)
class Job:
    """The image under test, the folder of prepared models, the GPUs; `style` is None on CPUs."""

    image: str
    prepared: Path
    models: Mapping[str, Model]
    style: str | None
    gpus: Sequence[str]

    def lacks(self, variant: Variant) -> str | None:
        """Return why a variant cannot be tested here, or None."""
        if self.style and variant.tensor_para > len(self.gpus):
            return f"needs {variant.tensor_para} GPUs, {len(self.gpus)} is there"
        if variant.decoupled and not self.models[variant.family].streams:
            return f"this release does not stream {variant.family}"
        return None

    def write(self, file: Path) -> None:
        """Write the job into a file."""
        record: dict[str, Any] = {
            **asdict(self),
            "prepared": str(self.prepared),
            "models": {
                name: {"tensors": m.tensors.model_dump(), "streams": m.streams}
                for name, m in self.models.items()
            },
        }
        file.write_text(json.dumps(record, indent=2) + "\n")


def read(file: Path) -> Job:
    """Read a job that `Job.write` wrote."""
    record = json.loads(file.read_text())
    models = {name: Model(Tensors(**m["tensors"]), m["streams"]) for name, m in record["models"].items()}
    return Job(**{**record, "prepared": Path(record["prepared"]), "models": models})
