"""What a model needs that an image may be built without (`ftbuild.features`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftbuild.errors import ConfigError
from ftbuild.features import LeftOut
from ftbuild.models import config_ini
from ftbuild.models.config_ini import ConvertedModel

# Those that generate: encoders have no kernels of the decoder's attention.
_GENERATING = frozenset({"gpt", "gptj", "gptneox", "t5"})


@dataclass(frozen=True)
class Needed:
    """What a model needs: weights of int8, experts, kernels for heads of a size (None: unknown, or any)."""

    int8: bool = False
    experts: bool = False
    head_size: int | None = None


def of_weights(model: ConvertedModel, *, int8: bool) -> Needed:
    """Return what converted weights need; ConfigError where config.ini has no number for it."""
    generates = model.family in _GENERATING
    return Needed(
        int8,
        model.family == "gpt" and config_ini.has_experts(model),
        model.number("size_per_head") if generates else None,
    )


def refusals(left_out: LeftOut, needed: Needed) -> Iterator[str]:
    """Yield why an image that leaves this out does not serve the model, by the name of each feature."""
    if needed.int8 and "int8" in left_out.features:
        yield "it is built without int8, and the weights are kept as int8"
    if needed.experts and "experts" in left_out.features:
        yield "it is built without experts, and the model has a mixture of experts"
    if needed.head_size is not None and not left_out.has_heads(needed.head_size):
        sizes = " and ".join(map(str, left_out.head_sizes))
        yield f"it is built for heads of {sizes}, and the model has heads of {needed.head_size}"


def require(left_out: LeftOut, needed: Needed, image: str, where: str) -> None:
    """Raise ConfigError where an image does not serve a model, with every reason."""
    if reasons := list(refusals(left_out, needed)):
        raise ConfigError(
            f"{image} cannot serve this model: {'; '.join(reasons)}",
            where=where,
            hint="take an image that leaves less out: invoke build with other --without and --head-sizes",
        )
