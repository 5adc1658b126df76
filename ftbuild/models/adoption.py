"""Weights that another program converted: recognized, proven, and with a config.ini that serves them.

FauxPilot's converter writes GPT-J's files and a section [gpt] with the keys of config.json; those of FT 5.0
for Megatron and NeMo have the keys of these; others write no config.ini at all. The family is recognized by
the names of the files, the rest is concluded (`concluding`). Unknown values must be options, and
contradictions are refused.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ftbuild.config.checkpoints import Settings
from ftbuild.config.families import Loading, ModelsConfig
from ftbuild.errors import ConfigError
from ftbuild.models import (
    concluding,
    config_ini,
    config_pbtxt,
    loading,
    proof,
    recognition,
    solving,
    untrusted,
    weights,
)
from ftbuild.models.concluding import OPTION, Conclusion, SourcedValue, Sources
from ftbuild.text import units

# FOLDER may be a repository: model, version, <n>-gpu.
_DEPTH = 3
_MAX_FOLDERS = 1000
_NAMED = re.compile(r"([1-9][0-9]{0,3})-gpu")
_GIVEN = re.compile(r"((?:[A-Za-z0-9_-]+\.)?[A-Za-z0-9_]+)=([^\n]{1,200})")
_CHECKPOINT = "model_checkpoint_path"
# How Python writes what counts as null in config.json.
_EMPTY = ("{}", "[]", "")
_AGAIN = "copy or convert the weights again"


@dataclass(frozen=True)
class Adoption:
    """Weights in `folder`, what they are, and the config.ini to write for them: section -> key -> value."""

    folder: Path
    family: str
    gpus: int
    config: Mapping[str, Mapping[str, str]]
    concluded: Mapping[str, SourcedValue]
    because: str

    def render(self) -> str:
        """Describe for people what was concluded, and from what."""
        shown = {f"{key} = {untrusted.plain(value.value)}": value for key, value in self.concluded.items()}
        width = min(max(map(len, shown), default=0), 60)
        head = f"{self.folder}: {self.family}, split for {units.gpus(self.gpus)}, by the {self.because}"
        return "\n".join([head, *(f"  {text.ljust(width)}  {value.source}" for text, value in shown.items())])


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """Parse `KEY=VALUE` or `SECTION.KEY=VALUE` of the option; ConfigError for anything else."""
    options = {}
    for text in texts:
        if not (match := _GIVEN.fullmatch(text)):
            raise ConfigError(
                f"{OPTION} {untrusted.shown(text)} is not KEY=VALUE",
                hint=f"for instance {OPTION} head_num=16",
            )
        options[match[1]] = match[2].strip()
    return options


def adopt(
    folder: Path,
    models: ModelsConfig,
    *,
    family: str | None = None,
    gpus: int | None = None,
    options: Mapping[str, str] | None = None,
) -> Adoption:
    """Recognize the weights in `folder`, or below it, and conclude their config.ini.

    `family` is what the user says that they are served as, `options` are values of config.ini from the
    command line. Raises ConfigError when there are no weights, or several, when a value is unknown, and when
    the files contradict what is known.
    """
    place = _locate(folder, models, gpus)
    sizes = {name: size for name, size in proof.sizes(place).items() if isinstance(size, int)}
    file = place / config_ini.FILE
    values = config_ini.all_values(file) if file.is_file() else {}
    family, because = _family(place, sizes, values, models, family)
    described = models.families[family].loading
    assert described  # as of every family that is recognized
    count = _gpus(place, described, sizes)
    sources = Sources(values, _parameters(place, folder), options or {})
    concluded = concluding.conclude(described, family, sizes, count, sources)
    _refuse_unknown_options(described, family, sources)
    _refuse_missing(place, concluded)
    _refuse_other_computation(
        place, {**models.assumes, **models.families[family].checkpoint.assumes}, described, sources
    )
    config = concluded.config(sources)
    flat = {f"{section}.{key}": value for section, keys in config.items() for key, value in keys.items()}
    if wrong := proof.of_values(place, described, count, flat):
        fitting = concluding.fitting(described, sizes, count, concluded.keys)
        options_of_files = " ".join(f"{OPTION} {path}" for path in fitting)
        raise ConfigError(
            "\n    ".join([f"the files do not fit what is known of this {family} model:", *wrong]),
            where=str(place),
            hint=f"if the files are right: {options_of_files}" if fitting else _AGAIN,
        )
    return Adoption(place, family, count, config, concluded.keys, because)


def stage(adopted: Adoption, folder: Path) -> Path:
    """Make `<n>-gpu` below `folder` with the adopted weights, as links where it can be, and their config.ini.

    What was there before stays as it is. Raises ConfigError for links and other special files among them.
    """
    untrusted.require_plain(adopted.folder, "adopt a folder with the files themselves")
    place = folder / weights.folder_name(adopted.gpus)
    place.mkdir()
    for name in sorted(proof.sizes(adopted.folder)):
        if name.endswith(recognition.SUFFIX):
            config_pbtxt.link(adopted.folder / name, place / name)
    split = {"tensor_para_size": str(adopted.gpus)}
    config_ini.add(place, {section: {**keys, **split} for section, keys in adopted.config.items()})
    return place


def _locate(folder: Path, models: ModelsConfig, gpus: int | None) -> Path:
    if not folder.is_dir():
        raise ConfigError("the folder to adopt does not exist", where=str(folder), hint="check --adopt")
    patterns = [loading.expression(pattern) for pattern in recognition.patterns(models)]
    folders = [place for place in _folders(folder) if _has_weights(place, patterns)]
    fitting = [place for place in folders if gpus is None or place.name == weights.folder_name(gpus)]
    if len(fitting) == 1:
        return fitting[0]
    if folders:
        names = ", ".join(str(place.relative_to(folder)) for place in folders[:5])
        of_gpus = f"{len(fitting)} of them for {units.gpus(gpus)}" if gpus else "which?"
        raise ConfigError(
            f"there are {len(folders)} folders of weights, {of_gpus}: {names}",
            where=str(folder),
            hint="--adopt one of them, or choose with --gpus",
        )
    elsewhere = _parameters(folder, folder).get(_CHECKPOINT)
    raise ConfigError(
        "no weight files of FasterTransformer here, such as model.wte.bin or shared.weight_T.bin",
        where=str(folder),
        hint=f"config.pbtxt says that they are in {untrusted.plain(elsewhere)}: --adopt that folder"
        if elsewhere
        else "a checkpoint is converted with invoke convert; the folder to adopt has converted weights",
    )


def _folders(folder: Path) -> Iterator[Path]:
    for count, (inside, below, _) in enumerate(os.walk(folder)):
        if count == _MAX_FOLDERS:
            raise ConfigError(
                f"more than {_MAX_FOLDERS} folders",
                where=str(folder),
                hint="--adopt the weights' own folder",
            )
        depth = len(Path(inside).relative_to(folder).parts)
        below[:] = sorted(below) if depth < _DEPTH else []
        yield Path(inside)


def _has_weights(place: Path, patterns: Sequence[re.Pattern[str]]) -> bool:
    names = (name for name in proof.sizes(place) if name.endswith(recognition.SUFFIX))
    return any(pattern.fullmatch(name) for name in names for pattern in patterns)


def _parameters(place: Path, folder: Path) -> dict[str, str]:
    """Return the parameters of the config.pbtxt that the weights lie below; none where there is none."""
    for near in (place, place.parent, place.parent.parent, folder):
        file = near / config_pbtxt.CONFIG
        if file.is_file():
            with contextlib.suppress(ConfigError):  # what a broken one would tell is asked for
                parameters = config_pbtxt.read(file).parameters
                return {name: value.string_value for name, value in parameters.items()}
    return {}


def _family(
    place: Path,
    sizes: Mapping[str, int],
    values: Mapping[str, str],
    models: ModelsConfig,
    family: str | None,
) -> tuple[str, str]:
    """Return the family, and what it was recognized by."""
    families = recognition.best(sizes, models)
    if not families:
        nearest = recognition.fits(sizes, models)[0]
        missing = ", ".join(nearest.missing[:3])
        raise ConfigError(
            f"these are not all files of a family; {nearest.family} is nearest, but there is no {missing}",
            where=str(place),
            hint=f"{_AGAIN}: a file is missing, or no family here is this model's",
        )
    if family is not None:
        if family not in families:
            raise ConfigError(
                f"the names of the files are those of {' or '.join(families)}, not of {family}",
                where=str(place),
                hint="leave out --model",
            )
        return family, "names of the files, and --model"
    if len(families) == 1:
        return families[0], "names of the files"
    sections = {key.partition(".")[0] for key in values}
    named = [name for name in families if name in {config_ini.SECTIONS.get(section) for section in sections}]
    if len(named) != 1:
        raise ConfigError(
            f"the names of the files fit {' and '.join(families)}",
            where=str(place),
            hint=" or ".join(f"--model {name}" for name in families),
        )
    return named[0], "names of the files, and the section of config.ini"


def _gpus(place: Path, described: Loading, sizes: Mapping[str, int]) -> int:
    count = max(solving.gpus(part, sizes) for part in described.parts)
    named = _NAMED.fullmatch(place.resolve().name)
    if named and int(named[1]) != count:
        raise ConfigError(
            f"the folder's name has {named[1]} GPUs, the names of its files {count}",
            where=str(place),
            hint=f"{_AGAIN}: shares of some GPUs are missing, or left over",
        )
    return count


def _refuse_unknown_options(described: Loading, family: str, sources: Sources) -> None:
    if unknown := sorted(set(sources.options) - sources.used):
        keys = (key.partition(".")[2] for part in described.parts for key in (*part.keys, *part.more_keys))
        raise ConfigError(
            f"{OPTION} {untrusted.plain(unknown[0])}: {family} reads no such key",
            hint=f"it reads {', '.join(dict.fromkeys(keys))}",
        )


def _refuse_missing(place: Path, concluded: Conclusion) -> None:
    if concluded.missing:
        lines = [f"{key}: {known}" if known else key for key, known in concluded.missing.items()]
        raise ConfigError(
            "\n    ".join(["neither the files nor config.ini nor config.pbtxt tell:", *lines]),
            where=str(place),
            hint=" ".join(f"{OPTION} {key}=VALUE" for key in concluded.missing),
        )


def _refuse_other_computation(place: Path, assumes: Settings, described: Loading, sources: Sources) -> None:
    """Raise ConfigError for keys of config.json, as converters copy them, that FasterTransformer ignores."""
    part = described.parts[0]
    section = sources.section(part.data_type)
    facts = (key for fact in part.facts for key in loading.first_key(part, fact).split(" * "))
    keys = (*part.keys, *part.more_keys, *facts)
    read = {name for key in keys for name in loading.names_of(part, key)}
    for key, known in assumes.items():
        written = sources.values.get(f"{section}.{key}")
        if written is None or key in read:
            continue
        if written in _EMPTY or written.lower() in {str(value).lower() for value in known}:
            continue
        raise ConfigError(
            f"{key} is {untrusted.plain(written)}; FasterTransformer assumes "
            + " or ".join(str(value) for value in known if value is not None or len(known) == 1),
            where=str(place / config_ini.FILE),
            hint="FasterTransformer would compute something else, whatever config.ini says",
        )
