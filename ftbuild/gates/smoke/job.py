"""The job of the suite, a pytest process of its own: image, models, GPUs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ftbuild.config.families import Tensors, Vectors
from ftbuild.features import NOTHING, LeftOut
from ftbuild.gates.smoke.models import CONFIG, WEIGHTS
from ftbuild.models import config_ini, config_pbtxt, left_out

# Those that every family is compared in.
DTYPES = ("fp32", "fp16")
# Only some releases and GPUs compute in it.
BF16 = "bf16"
# Weights of int8, computed with in fp16.
INT8 = "int8"
# Ways of a model over several GPUs: of a family's own, and of one whose layers and heads divide by four.
OVER_TWO: Sequence[Mapping[str, int]] = ({"tensor_para": 2}, {"pipeline_para": 2})
INSTANCES: Sequence[Mapping[str, int]] = ({"instances": 2}, {"instances": 4})
OVER_FOUR: Sequence[Mapping[str, int]] = (
    {"tensor_para": 4},
    {"tensor_para": 2, "pipeline_para": 2},
    {"pipeline_para": 4},
    *INSTANCES,
)
FOUR = "*-four"
# How the names of files begin that the load test writes, one for each variant.
LOADS = "smoke-load-"


@dataclass(frozen=True)
class Variant:
    """One way of serving a model, by one server: a family's own, or an extra one (models.yaml).

    `alone`: with no other server on its GPUs. One that is split over several always is: its processes wait
    for each other on all of them, and others would hold them up. Instances do not wait for each other.
    """

    model: str
    dtype: str = "fp32"
    tensor_para: int = 1
    pipeline_para: int = 1
    decoupled: bool = False
    instances: int = 1
    alone: bool = False

    def __str__(self) -> str:
        split = {"tp": self.tensor_para, "pp": self.pipeline_para, "x": self.instances}
        parts = [self.model, self.dtype, *(f"{how}{number}" for how, number in split.items() if number > 1)]
        return "-".join([*parts, *(["streamed"] if self.decoupled else [])])

    @property
    def gpus(self) -> int:
        """The number of GPUs that it is served on."""
        return self.parts * self.instances

    @property
    def parts(self) -> int:
        """The number of GPUs that one instance is split over."""
        return self.tensor_para * self.pipeline_para

    @property
    def is_alone(self) -> bool:
        """Whether no other server may use its GPUs."""
        return self.alone or self.parts > 1


@dataclass(frozen=True)
class Model:
    """A model under test: its tensors, whether its answers stream, whether bf16 and int8 weights are tested.

    An embedding model has none of these, and `vectors` is set. An extra model has a `family`, and is used
    only by the tests that ask for extra models.
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

    `replays`: whether the release replays the steps of a request as CUDA graphs. `indices` are the numbers of
    the GPUs, as CUDA counts those of a container; none: they are the first ones. `tells_processes`: whether a
    server's GPU memory is known apart from that of others. `place` is the number of the process that runs the
    tests, of those that do side by side: it decides on which GPUs its servers are. `left_out` is what the
    image is built without.
    """

    image: str
    prepared: Path
    models: Mapping[str, Model]
    style: str | None
    gpus: Sequence[str]
    replays: bool = False
    indices: Sequence[int] = ()
    tells_processes: bool = False
    place: int = 0
    left_out: LeftOut = NOTHING

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
            return (
                f"needs {variant.gpus} GPUs, {len(self.gpus)} {'is' if len(self.gpus) == 1 else 'are'} there"
            )
        if variant.decoupled and not self.models[variant.model].streams:
            return f"this release does not stream {variant.model}"
        if self.left_out:
            needed = left_out.of_weights(config_ini.read(self.weights(variant)), int8=variant.dtype == INT8)
            if reasons := list(left_out.refusals(self.left_out, needed)):
                return f"the image lacks it: {'; '.join(reasons)}"
        stages = variant.pipeline_para
        if stages > 1 and (layers := config_ini.read(self.weights(variant)).layers) % stages:
            return f"its {layers} layers cannot be split over {stages} stages"
        if variant.instances > 1 and not config_pbtxt.has_instances(self.template(variant)):
            return "a model of this release has one instance"
        return None

    def template(self, variant: Variant) -> str:
        """Return upstream's config.pbtxt of a variant's model."""
        return (self.prepared / variant.model / CONFIG).read_text()

    def devices(self, variant: Variant) -> Sequence[int]:
        """Return the GPUs that a variant is served on, by number; none on CPUs."""
        if self.style is None:
            return ()
        known = self.indices or range(max(len(self.gpus), variant.gpus))
        first = self.place % (len(known) // variant.gpus) * variant.gpus
        return known[first : first + variant.gpus]

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

    def served(self, test: str) -> str:
        """Return the variant that a test is about, as text, from the test's id in pytest; empty for none.

        It stands among the parameters, between `-`, as parts of it do.
        """
        names = "|".join(map(re.escape, sorted(self.models, key=len, reverse=True)))
        types = "|".join((*DTYPES, BF16, INT8))
        label = re.search(rf"[\[-]((?:{names})-(?:{types})(?:-(?:tp|pp|x)\d+)*(?:-streamed)?)(?=[\]-])", test)
        return label[1] if label else ""

    def has_too_few_gpus(self, test: str) -> bool:
        """Return whether a test, by its id in pytest, needs more GPUs than are there."""
        return bool(self.style) and self.needed_gpus(test) > len(self.gpus)

    def needed_gpus(self, test: str) -> int:
        """Return the number of GPUs that a test, by its id in pytest, is about."""
        return math.prod(map(int, re.findall(r"-(?:tp|pp|x)(\d+)", self.served(test))))

    def is_split(self, test: str) -> bool:
        """Return whether a test, by its id in pytest, is about a model that is split over several GPUs."""
        return bool(re.search(r"-(?:tp|pp)\d", self.served(test)))

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
    lacking = record.get("left_out", {})
    paths = {
        "prepared": Path(record["prepared"]),
        "indices": tuple(record.get("indices", ())),
        "left_out": LeftOut(tuple(lacking.get("features", ())), tuple(lacking.get("head_sizes", ()))),
    }
    return Job(**{**record, **paths, "models": models})
