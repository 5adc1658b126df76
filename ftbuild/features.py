"""What a cell may be built without: features of FasterTransformer that cost a build the most time.

Pure. A cell leaves nothing out unless it is asked to; its id, and so its tags, say what it leaves out. The
sources are then compiled with FT_WITHOUT and FT_HEAD_SIZES (patches.yaml: `leaves_out`), and the backend
refuses by name what needs what is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ftbuild.errors import ConfigError

# By feature, what an image without it refuses.
FEATURES: Mapping[str, str] = {
    "beams": "requests with a beam_width above 1",
    "experts": "GPT models with a mixture of experts (moe_layers in config.ini)",
    "int8": "models with int8_mode 1 or 2 (invoke model-repo --int8)",
}
# What patches.yaml calls the sizes of heads.
HEADS = "heads"
# Those that the decoder's attention has kernels for: FT v5.3 decoder_masked_multihead_attention.cu:32-71, and
# 112 by patches/ft/0497.
HEAD_SIZES = (32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256)
_SUFFIX = re.compile(r"(?:-without-(?P<without>[a-z0-9_]+))?(?:-heads-(?P<heads>\d+(?:_\d+)*))?")


@dataclass(frozen=True, order=True)
class LeftOut:
    """The features that a cell leaves out, and the sizes of heads that it is built for (none named: all)."""

    features: tuple[str, ...] = ()
    head_sizes: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything is left out."""
        return bool(self.features or self.head_sizes)

    @property
    def suffix(self) -> str:
        """Return the end of the cell's id: `-without-beams_int8-heads-64_128`; "" if nothing is left out."""
        without = f"-without-{'_'.join(self.features)}" if self.features else ""
        return without + (f"-heads-{'_'.join(map(str, self.head_sizes))}" if self.head_sizes else "")

    def words(self) -> tuple[str, ...]:
        """Return the options of commands that say it: `--without beams,int8 --head-sizes 64,128`."""
        without = ("--without", ",".join(self.features)) if self.features else ()
        sizes = ("--head-sizes", ",".join(map(str, self.head_sizes))) if self.head_sizes else ()
        return (*without, *sizes)

    def record(self) -> dict[str, list[str] | list[int]]:
        """Return it as plain data; what leaves nothing out has none."""
        sizes: dict[str, list[str] | list[int]] = (
            {"head_sizes": list(self.head_sizes)} if self.head_sizes else {}
        )
        return {**({"without": list(self.features)} if self.features else {}), **sizes}

    def short(self) -> tuple[str, ...]:
        """Return it in words: `without beams and int8`, `for heads of 64 and 128`."""
        without = [f"without {' and '.join(self.features)}"] if self.features else []
        sizes = " and ".join(map(str, self.head_sizes))
        return (*without, *([f"for heads of {sizes}"] if sizes else []))

    @property
    def all(self) -> tuple[str, ...]:
        """Return what patches of the sources must be able to leave out: features, and `heads`."""
        return (*self.features, *((HEADS,) if self.head_sizes else ()))

    def refused(self) -> tuple[str, ...]:
        """Return what an image of the cell refuses, a line for each thing that it leaves out."""
        lines = [FEATURES[name] for name in self.features]
        if self.head_sizes:
            sizes = " or ".join(map(str, self.head_sizes))
            lines.append(f"models that generate with heads of another size than {sizes}")
        return tuple(lines)

    def has_heads(self, size: int) -> bool:
        """Return whether a model can generate with heads of `size`."""
        return not self.head_sizes or size in self.head_sizes

    def labels(self, prefix: str) -> dict[str, str]:
        """Return the labels of an image that leaves this out; one that has everything has none."""
        written = {"without": ",".join(self.features), "head-sizes": ",".join(map(str, self.head_sizes))}
        return {f"{prefix}.{name}": value for name, value in written.items() if value}


NOTHING = LeftOut()


def parse(without: Iterable[str], head_sizes: Iterable[str]) -> LeftOut:
    """Return what options say, each value with commas or without; ConfigError for what does not exist."""
    named = sorted({name.strip() for text in without for name in text.split(",")})
    for name in named:
        if name not in FEATURES:
            raise ConfigError(
                f"--without {name!r}: no such feature",
                hint=f"features that can be left out: {', '.join(FEATURES)}",
            )
    sizes = sorted({_size(text.strip()) for value in head_sizes for text in value.split(",")})
    return LeftOut(tuple(named), () if set(sizes) == set(HEAD_SIZES) else tuple(sizes))


def of_labels(labels: Mapping[str, str], prefix: str) -> LeftOut:
    """Return what labels say that an image leaves out; features that are not known here count, too."""
    without = labels.get(f"{prefix}.without", "").split(",")
    sizes = labels.get(f"{prefix}.head-sizes", "").split(",")
    return LeftOut(
        tuple(filter(None, without)),
        tuple(int(size) for size in sizes if size.isascii() and size.isdecimal()),
    )


def _size(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and int(text) in HEAD_SIZES):
        known = ", ".join(map(str, HEAD_SIZES))
        raise ConfigError(
            f"--head-sizes {text!r}: FasterTransformer has no kernels for such heads", hint=f"sizes: {known}"
        )
    return int(text)


def split_id(text: str) -> tuple[str, LeftOut]:
    """Return a cell's id without what it leaves out, and that; ConfigError for what does not exist.

    The order in which an id names features is free, as that of SMs.
    """
    for position in sorted({text.find("-without-"), text.find("-heads-")} - {-1}):
        if suffix := _SUFFIX.fullmatch(text[position:]):
            without, heads = suffix["without"], suffix["heads"]
            return text[:position], parse(
                without.split("_") if without else (), heads.split("_") if heads else ()
            )
    return text, NOTHING
