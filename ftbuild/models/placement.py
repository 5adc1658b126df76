"""On which GPUs a checkpoint fits, and split over how many of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ftbuild import matrix
from ftbuild.config.checkpoints import Converter
from ftbuild.config.families import GpuMemory, Int8
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.features import NOTHING, LeftOut
from ftbuild.models import checkpoint, config_pbtxt, conversion, int8, obstacles, repository
from ftbuild.models import left_out as lacks
from ftbuild.models.gpu_memory import (
    COMPUTES_INT8,
    DATA_TYPES,
    SLOT_TOKENS,
    Footprint,
    Load,
    footprint,
    on_gpu,
    rules,
)
from ftbuild.plan import Plan
from ftbuild.sm import FIRST, Sm
from ftbuild.text.tables import render

NO_IMAGE, NO_TYPE, TOO_BIG = "no image", "no such type", "too big"
INT8 = "int8"
# What a model is served as, with its weights in that type or as int8: the columns of the tables.
SERVED = (*DATA_TYPES, INT8)


@dataclass(frozen=True)
class GpuKind:
    """GPUs of one kind: memory of each in bytes; of those in this machine, `count` is their number."""

    name: str
    sm: Sm
    memory: int
    count: int | None = None


@dataclass(frozen=True)
class Fit:
    """A kind of GPU with, for each data type, the smallest number that holds the model, or why none does.

    `slots` are the sessions of full length that a server holds on so many of them at once by default; none of
    a model without slots.
    """

    gpu: GpuKind
    gpus: Mapping[str, int | str]
    slots: Mapping[str, int]

    def cell(self, data_type: str) -> str:
        """Return what the table says of a data type."""
        slots = f" ({self.slots[data_type]})" if data_type in self.slots else ""
        return f"{self.gpus[data_type]}{slots}"


@dataclass(frozen=True)
class Placement:
    """A checkpoint, what it takes on each of N GPUs, and the GPUs that have so much.

    `slot_tokens` are the tokens of a slot; 0: the model has none.
    """

    family: str
    release: str
    folder: Path
    facts: Mapping[str, int]
    load: Load
    impossible: Mapping[int, str]
    footprints: Mapping[tuple[int, str], Footprint]
    fits: Sequence[Fit]
    source: str
    slot_tokens: int

    def as_dict(self) -> dict[str, object]:
        """Return everything, as JSON holds it; sizes in bytes, on each GPU."""
        return {
            "family": self.family,
            "release": self.release,
            "checkpoint": str(self.folder),
            "facts": dict(self.facts),
            "load": asdict(self.load),
            "session_tokens": self.slot_tokens or None,
            "memory": [
                {"gpus": gpus, "data_type": data_type, **asdict(footprint), "total": footprint.total}
                for (gpus, data_type), footprint in self.footprints.items()
            ],
            "impossible": [{"gpus": gpus, "why": why} for gpus, why in self.impossible.items()],
            "gpus": [
                {
                    **asdict(fit.gpu),
                    "needed": {t: n if isinstance(n, int) else None for t, n in fit.gpus.items()},
                    "why": {t: why for t, why in fit.gpus.items() if isinstance(why, str)},
                    "slots": dict(fit.slots),
                }
                for fit in self.fits
            ],
            "source": self.source,
        }

    def _advice(self) -> Iterator[str]:
        """Yield what to do with more GPUs than needed (docs/ftserve/serving.md, "Over several GPUs")."""
        if self.slot_tokens and any(1 in fit.gpus.values() for fit in self.fits):
            yield ""
            yield "On several GPUs that hold it each, model-repo --instances answers the most requests, and"
            yield "convert --gpus a few of them sooner where layers are wide: GPT-J 6B's, not T5-3B's."

    def render(self) -> str:
        """Describe the placement for people."""
        load = self.load
        answers = f", answers of {load.output_len}" if load.output_len else ""
        beams = f", {load.beams} beams" if load.beams > 1 else ""
        facts = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        sizes = [
            (str(gpus), data_type, *(f"{size / 1e9:.2f}" for size in _parts(footprint)))
            for (gpus, data_type), footprint in self.footprints.items()
        ]
        kinds = [
            (
                f"{fit.gpu.name} (here)" if fit.gpu.count else fit.gpu.name,
                str(int(fit.gpu.sm)),
                f"{fit.gpu.memory / 1e9:.0f}",
                *map(fit.cell, SERVED),
            )
            for fit in self.fits
        ]
        return "\n".join(
            [
                f"{self.family}, release {self.release}: {facts}",
                f"{load.batch} x {load.input_len} tokens at once{answers}{beams}",
                "",
                "GB on each GPU; in all: while the last weight is loaded, or in a request",
                "(as FasterTransformer allocates, at most; the reserve for CUDA itself is that of an H200)",
                render(
                    ("GPUs", "type", "weights", "cache", "buffers", "loading", "reserve", "in all"), sizes
                ),
                *(f"not {gpus}: {why}" for gpus, why in self.impossible.items()),
                "",
                "GPUs of one kind that the model needs (tensor parallel)"
                + (
                    f"; in brackets, the sessions of {self.slot_tokens} tokens that it holds there at once:"
                    if self.slot_tokens
                    else ":"
                ),
                render(("GPU", "SM", "GB", *SERVED), kinds),
                *self._advice(),
            ]
        )


def load_of(
    config: Config, family: str, batch: int, input_len: int, output_len: int | None, beams: int | None
) -> Load:
    """Return what a model of the family is to compute at once; None: 512 tokens of an answer, one beam.

    Raises ConfigError for tokens or beams of an answer that is a vector.
    """
    if not config.models.families[family].vectors:
        return Load(batch, beams or Load.beams, input_len, output_len or Load.output_len)
    for option, value in (("--output-len", output_len), ("--beams", beams)):
        if value is not None:
            raise ConfigError(f"{family} returns embeddings", hint=f"leave out {option}")
    return Load(batch, input_len=input_len, output_len=0)


def place(
    config: Config,
    release: str,
    family: str,
    folder: Path,
    load: Load,
    max_gpus: int,
    here: Sequence[GpuKind],
    ignored: Sequence[str] = (),
    slot_tokens: int = 0,
    left_out: LeftOut = NOTHING,
) -> Placement:
    """Return where the checkpoint in `folder` fits, over at most `max_gpus` GPUs; `here` are this machine's.

    `ignored` are keys of its config.json that change nothing. `left_out` is what the image is built without.
    `slot_tokens` are the tokens of a slot, see
    `tokens_of_a_slot`; slots have no more than the model has positions. Raises ConfigError as
    `conversion.convertible`, and when the family has no `gpu_memory` in models.yaml or its positions are
    fewer than the tokens of a request.
    """
    _require_beams(load, left_out)
    allocated = _rules(config, family)
    request = conversion.ConversionRequest(family, folder, out=folder, ignored=tuple(ignored))
    converter, source = conversion.convertible(config, release, request)
    vectors = config.models.families[family].vectors
    _require_positions(source, load, vectors.longest if vectors else None)
    lacking = _lacking(config, family, source, left_out)
    reasons = {
        n: [*conversion.reasons_against(config, release, replace(request, gpus=n), source), *lacking]
        for n in range(1, max_gpus + 1)
    }
    backend, loaded = config.version(release, "backend"), on_gpu(config.models, family, converter)
    types, quantized = _data_types(allocated, backend), int8.rules(config.models.families[family], backend)
    quantized = None if "int8" in left_out.features else quantized
    slot_tokens = min(slot_tokens, source.facts.get("positions", slot_tokens))
    footprints = {
        (gpus, data_type): _footprint(
            loaded, allocated, source.facts, gpus, data_type, load, quantized, slot_tokens
        )
        for gpus, reason in reasons.items()
        if not reason
        for data_type in (*types, *_int8(quantized, source.facts, gpus))
    }
    sms = _sms(config, release)
    return Placement(
        family=family,
        release=release,
        folder=folder,
        facts=source.facts,
        load=load,
        impossible={gpus: "; ".join(reason) for gpus, reason in reasons.items() if reason},
        footprints=footprints,
        fits=[_fit(kind, footprints, sms) for kind in (*here, *known(config))],
        source=allocated.source,
        slot_tokens=slot_tokens,
    )


def tokens_of_a_slot(config: Config, family: str, plan: Plan, slot_tokens: int | None) -> int:
    """Return the tokens of a slot that a model of a family gets; None: by default. 0: it has no slots.

    Raises ConfigError where some are requested and the model has none.
    """
    loading = config.models.families[config.models.template(family)].loading
    has_slots = loading is not None and loading.model_type in config_pbtxt.IN_FLIGHT_TYPES
    if has_slots and plan.takes("backend", repository.IN_FLIGHT):
        return slot_tokens or SLOT_TOKENS
    if slot_tokens is not None:
        raise ConfigError(f"{family} has no slots in {plan.cell.triton}", hint="leave out --session-tokens")
    return 0


def known(config: Config) -> list[GpuKind]:
    """Return the GPUs of matrix.yaml."""
    return [
        GpuKind(name, Sm(sm), memory * 10**9)
        for sm, fact in config.matrix.sms.items()
        for name, memory in fact.gpus.items()
    ]


def _rules(config: Config, family: str) -> GpuMemory:
    if memory := rules(config.models, family):
        return memory
    able = [name for name in config.models.families if rules(config.models, name)]
    raise ConfigError(
        f"the GPU memory that {family} takes is unknown",
        where=str(config.folder / "models.yaml"),
        hint=f"families: {', '.join(able)}" if able else "its backend computes on the CPU",
    )


def _require_positions(source: checkpoint.Checkpoint, load: Load, longest: int | None) -> None:
    tokens, positions = load.input_len + load.output_len, source.facts.get("positions", longest)
    if positions is not None and tokens > positions:
        raise ConfigError(
            f"{load.input_len} and {load.output_len} tokens are more than the model takes: {positions}",
            where=str(source.folder),
            hint=f"--input-len and --output-len of {positions} together at most",
        )


def _footprint(
    converter: Converter,
    allocated: GpuMemory,
    facts: Mapping[str, int],
    gpus: int,
    data_type: str,
    load: Load,
    quantized: Int8 | None,
    slot_tokens: int,
) -> Footprint:
    if data_type == INT8:
        return footprint(converter, allocated, facts, gpus, COMPUTES_INT8, load, quantized, slot_tokens)
    return footprint(converter, allocated, facts, gpus, data_type, load, None, slot_tokens)


def _require_beams(load: Load, left_out: LeftOut) -> None:
    if load.beams > 1 and "beams" in left_out.features:
        raise ConfigError(
            f"the image is built without beams, and a row is to have {load.beams}",
            where="--beams",
            hint="leave it out, or beams out of --without",
        )


def _lacking(
    config: Config, family: str, source: checkpoint.Checkpoint, left_out: LeftOut
) -> tuple[str, ...]:
    """Return why an image that leaves this out cannot serve the checkpoint."""
    size = obstacles.head_size(source.facts) if config.models.families[family].tensors else None
    return tuple(lacks.refusals(left_out, lacks.Needed(head_size=size)))


def _int8(quantized: Int8 | None, facts: Mapping[str, int], gpus: int) -> tuple[str, ...]:
    return (INT8,) if quantized and not any(int8.obstacles(quantized, facts, gpus)) else ()


def _data_types(allocated: GpuMemory, backend: str) -> tuple[str, ...]:
    able = allocated.computes_bf16(backend)
    return tuple(data_type for data_type in DATA_TYPES if data_type != "bf16" or able)


def _sms(config: Config, release: str) -> set[Sm]:
    """Return the SMs for which some base has a cell of the release."""
    cells = matrix.make_matrix(config, *config.bases.bases).cells
    return {sm for cell in cells if cell.triton == release for sm in cell.sms}


def _fit(kind: GpuKind, footprints: Mapping[tuple[int, str], Footprint], sms: Iterable[Sm]) -> Fit:
    needed = _needed(kind, footprints, sms)
    held = {t: footprints[n, t] for t, n in needed.items() if isinstance(n, int)}
    return Fit(kind, needed, {t: each.slots(kind.memory) for t, each in held.items() if each.slot})


def _needed(
    kind: GpuKind, footprints: Mapping[tuple[int, str], Footprint], sms: Iterable[Sm]
) -> dict[str, int | str]:
    if not any(sm.runs_on(kind.sm) for sm in sms):
        return dict.fromkeys(SERVED, NO_IMAGE)
    gpus_needed: dict[str, int | str] = {}
    for data_type in SERVED:
        able = [(gpus, each.total) for (gpus, t), each in footprints.items() if t == data_type]
        if not able or kind.sm < FIRST.get(data_type, 0):
            gpus_needed[data_type] = NO_TYPE
            continue
        gpus_at_most = kind.count or max(gpus for gpus, _ in able)
        fitting = [gpus for gpus, total in able if total <= kind.memory and gpus <= gpus_at_most]
        gpus_needed[data_type] = min(fitting, default=TOO_BIG)
    return gpus_needed


def _parts(footprint: Footprint) -> tuple[int, ...]:
    return (
        footprint.weights,
        footprint.cache,
        footprint.buffers,
        footprint.loading,
        footprint.reserve,
        footprint.total,
    )
