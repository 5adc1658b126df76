"""Converters: which release converts which family, and the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from ftbuild.config.checkpoints import CheckpointFormat, Converter
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError

# Where the SDK image has FasterTransformer's examples (dockerfiles/triton-ft.Dockerfile, stage sdk).
TREE = "/opt/ftbuild/FasterTransformer"
PYTHON = "python3"
# Where a container has scripts of our own.
SCRIPTS = "/convert/scripts"
_REAL = re.compile(r"{(\w+)}")
_FORMATS: Mapping[CheckpointFormat, str] = {
    "huggingface": "a Hugging Face checkpoint",
    "jax": "a checkpoint of Mesh Transformer JAX",
}


def find_converter(
    config: Config, release: str, family: str, kind: CheckpointFormat = "huggingface"
) -> Converter:
    """Return the converter of a family's checkpoints in a release; ConfigError when the release has none."""
    if converter := _find(config, release, family, kind):
        return converter
    known = [name for name in config.models.families if _find(config, release, name, kind)]
    others = converting_releases(config, family, kind)
    hint = f"it converts {', '.join(known) or 'none'}"
    raise ConfigError(
        f"{release} converts no {family} from {_FORMATS[kind]}",
        where=str(config.folder / "models.yaml"),
        hint=hint + (f"; {family} is converted by {', '.join(others)}" if others else ""),
    )


def converting_releases(config: Config, family: str, kind: CheckpointFormat = "huggingface") -> list[str]:
    """Return the releases that convert a family's checkpoints, in the order of sources.yaml."""
    return [release for release in config.sources.releases if _find(config, release, family, kind)]


def other_release(config: Config, release: str, able: Sequence[str]) -> str | None:
    """Return the options that choose a release of `able`, in place of `release`; None without one.

    One that the same bases carry needs no other base; any other is on its own, which the options name.
    """
    bases = {name: set(base.releases) for name, base in config.bases.bases.items()}
    here = [name for name, carried in bases.items() if release in carried]
    for other in reversed(able):
        if all(other in bases[name] for name in here):
            return f"--triton {other}"
    for other in reversed(able):
        if other in config.matrix.releases:
            return f"--triton {other} --base {config.matrix.releases[other].base}"
    return None


def with_reals(converter: Converter, reals: Mapping[str, float]) -> Converter:
    """Return the converter with a checkpoint's `reals` in the values of config.ini that it does not write."""
    config = {
        section: {key: _REAL.sub(lambda name: _real(name, reals), value) for key, value in values.items()}
        for section, values in converter.config.items()
    }
    return converter.model_copy(update={"config": config})


def command_line(
    converter: Converter,
    *,
    checkpoint: str,
    out: str,
    tensor_para: int,
    layers: int,
    dtype: str = "fp32",
    jobs: int = 1,
    files: Sequence[str] = (),
    scripts: str = SCRIPTS,
) -> list[str]:
    """Return the converter's command line inside the SDK image; it writes `out`/<tensor_para>-gpu.

    A script of the project is in the folder `scripts`, and gets the names of the weight `files`.
    """
    values = {
        "checkpoint": checkpoint,
        "out": out,
        "tensor_para": tensor_para,
        "layers": layers,
        "dtype": dtype,
        "jobs": jobs,
    }
    arguments = [argument.format(**values) for argument in converter.arguments]
    if converter.own_script:
        return [PYTHON, f"{scripts}/{PurePosixPath(converter.own_script).name}", *arguments, *files]
    return [PYTHON, f"{TREE}/{converter.script}", *arguments]


def _real(name: re.Match[str], reals: Mapping[str, float]) -> str:
    return repr(reals[name[1]]) if name[1] in reals else name[0]


def _find(config: Config, release: str, family: str, kind: CheckpointFormat) -> Converter | None:
    if family not in config.models.families:
        return None
    return config.models.families[family].converter(config.version(release, "ft"), kind)
