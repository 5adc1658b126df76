"""The job of the suite, a pytest process of its own: image, models, GPUs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ftbuild.config.families import Tensors, Vectors
from ftbuild.gates.smoke.models import WEIGHTS
from ftbuild.models import config_ini

# Those that every family is compared in.
DTYPES = ("fp32", "fp16")
# Only some releases and GPUs compute in it.
BF16 = "bf16"
# Weights of int8, computed with in fp16.
INT8 = "int8"
# How the names of files begin that the load test writes, one for each variant.
LOADS = "smoke-load-"


@dataclass(frozen=True)
class Variant:
    """One way of serving a model, by one server: a family's own, or an extra one (models.yaml)."""

    model: str
    dtype: str = "fp32"
    tensor_para: int = 1
    pipeline_para: int = 1
    decoupled: bool = False

    def __str__(self) -> str:
        split = {"tp": self.tensor_para, "pp": self.pipeline_para}
        parts = [self.model, self.dtype, *(f"{how}{number}" for how, number in split.items() if number > 1)]
        return "-".join([*parts, *(["streamed"] if self.decoupled else [])])

    @property
    def gpus(self) -> int:
        """The number of GPUs that it is served on."""
        return self.tensor_para * self.pipeline_para


@dataclass(frozen=True)
class Model:
    """A model under test: its tensors, whether its answers stream, whether bf16 and int8 weights are tested.

    One that answers with vectors has none, and `vectors`. An extra model has a `family`, and only the tests
    that ask for extra models are about it.
    """

    tensors: Tensors | None
    streams: bool
    vectors: Vectors | None = None
    bf16: bool = False
    int8: bool = False
    family: str | None = None


@dataclass(frozen=True)
class Job:
    """The image under test, the folder of prepared models, the GPUs; `style` is None on CPUs.

    `replays`: whether the release replays the steps of a request as CUDA graphs.
    """

    image: str
    prepared: Path
    models: Mapping[str, Model]
    style: str | None
    gpus: Sequence[str]
    replays: bool = False

    def names(self, *, vectors: bool = False, extra: bool = False) -> tuple[str, ...]:
        """Return the families that answer with tokens, or with vectors, or the extra models that do."""
        return tuple(
            name
            for name, model in self.models.items()
            if (model.vectors is not None) == vectors and (model.family is not None) == extra
        )

    def family(self, variant: Variant) -> str:
        """Return the family of a variant's model."""
        return self.models[variant.model].family or variant.model

    def lacks(self, variant: Variant) -> str | None:
        """Return why a variant cannot be tested here, or None."""
        if self.style and variant.gpus > len(self.gpus):
            return f"needs {variant.gpus} GPUs, {len(self.gpus)} is there"
        if variant.decoupled and not self.models[variant.model].streams:
            return f"this release does not stream {variant.model}"
        stages = variant.pipeline_para
        if stages > 1 and (layers := config_ini.read(self.weights(variant)).layers) % stages:
            return f"its {layers} layers cannot be split over {stages} stages"
        return None

    def weights(self, variant: Variant) -> Path:
        """Return the folder of a variant's converted weights."""
        return self.prepared / variant.model / WEIGHTS / f"{variant.tensor_para}-gpu"

    def variants(self, names: Iterable[str], dtypes: Iterable[str], **options: Any) -> list[Variant]:
        """Return the variants of models in each data type, in bf16 and int8 where they have them."""
        return [
            Variant(name, dtype, **options)
            for name in names
            for dtype in dtypes
            if {BF16: self.models[name].bf16, INT8: self.models[name].int8}.get(dtype, True)
        ]

    def write(self, file: Path) -> None:
        """Write the job into a file."""
        record: dict[str, Any] = {
            **asdict(self),
            "prepared": str(self.prepared),
            "models": {
                name: {
                    **asdict(m),
                    "tensors": m.tensors.model_dump() if m.tensors else None,
                    "vectors": m.vectors.model_dump() if m.vectors else None,
                }
                for name, m in self.models.items()
            },
        }
        file.write_text(json.dumps(record, indent=2) + "\n")


def load_file(job: Path, variant: Variant) -> Path:
    """Return where the suite writes what came of a variant's load: beside the job."""
    return job.parent / f"{LOADS}{variant}.json"


def read(file: Path) -> Job:
    """Read a job that `Job.write` wrote."""
    record = json.loads(file.read_text())
    models = {
        name: Model(
            **{
                **m,
                "tensors": Tensors(**m["tensors"]) if m["tensors"] else None,
                "vectors": Vectors(**m["vectors"]) if m["vectors"] else None,
            }
        )
        for name, m in record["models"].items()
    }
    return Job(**{**record, "prepared": Path(record["prepared"]), "models": models})
