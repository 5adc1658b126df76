"""Weights compared with their config.ini: every file that FasterTransformer will read, and its size.

A server warns of a missing or short file, and goes on with random weights (FT v5.3 memory_utils.cu:300-336);
of one that is too long it reads the beginning. Files are not opened: a model of 7B takes some milliseconds.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ftbuild.config.families import LoadedPart, Loading
from ftbuild.models import config_ini, loading, rotation, untrusted
from ftbuild.models.loading import LAYER, ExpectedFile, Numbers

# A message shows so many files.
_SHOWN = 3


@dataclass(frozen=True)
class _Checked:
    """A file, what it should be, and its bytes or what else it is; None where there is none."""

    name: str
    expected: ExpectedFile
    has: int | str | None

    @property
    def is_right(self) -> bool:
        if not isinstance(self.has, int):
            return False
        further = self.has - self.expected.size
        return further == 0 or (further > 0 and self.expected.row > 0 and further % self.expected.row == 0)

    def __str__(self) -> str:
        shown = untrusted.plain(self.name)
        if self.has is None:
            return f"{shown} is missing: {self.expected.size} bytes ({self.expected.reason})"
        if isinstance(self.has, str):
            return f"{shown} is {self.has}"
        return f"{shown} has {self.has} bytes, not {self.expected.size} ({self.expected.reason})"


def contradictions(
    folder: Path,
    described: Loading,
    gpus: int,
    *,
    int8_mode: int = 0,
    inside: Path | None = None,
    otherwise: Mapping[str, str] | None = None,
    data_type: str | None = None,
) -> list[str]:
    """Return what the backend would read wrong in `folder`, which is `<gpus>-gpu`; none: all is there.

    `int8_mode` is config.pbtxt's, and so is `data_type`; None: any that gives right answers. A link may lead
    elsewhere within `inside`, by default nowhere. `otherwise` are the parameters of config.pbtxt, which
    backend 1.1 takes without a config.ini (BE v1.1 libfastertransformer.cc:212-279; the weights are fp32
    then, FT v5.0 cuda_utils.h:536-539). Raises ConfigError when config.ini cannot be read, or counts more
    files than any model has.
    """
    file = folder / config_ini.FILE
    if file.is_file():
        values = config_ini.all_values(file)
    elif otherwise and "head_num" in otherwise:
        values = dict(_as_values(described, otherwise))
    else:
        return [f"{config_ini.FILE} is missing"]
    return of_values(folder, described, gpus, values, int8_mode=int8_mode, inside=inside, data_type=data_type)


def of_values(
    folder: Path,
    described: Loading,
    gpus: int,
    values: Mapping[str, str],
    *,
    int8_mode: int = 0,
    inside: Path | None = None,
    data_type: str | None = None,
) -> list[str]:
    """Return the same for the values of a config.ini, by section.key, that is not written yet."""
    there = sizes(folder, inside)
    problems: list[str] = []
    files_by_name: dict[tuple[str, int], ExpectedFile] = {}
    for part in described.parts:
        item_type = loading.data_type(part, values)
        if item_type is None:
            problems.append(_without_type(part, values))
            continue
        known = loading.numbers(part, values, gpus, int8_mode)
        files = loading.expected(part, known, item_type)
        files_by_name |= {
            (name, group.file.size): group.file for group in files for name in group.names(gpus)
        }
        problems += [*known.missing, *_miscounted(part, known, there)]
        problems += _unread(part, known, there)
    checked = [_Checked(name, file, there.get(name)) for (name, _), file in files_by_name.items()]
    types = {part.data_type: str(values.get(part.data_type)) for part in described.parts}
    return [
        *dict.fromkeys(problems),
        *_misrotated(described, values, data_type),
        *_differences([file for file in checked if file.has is not None or file.expected.required], types),
    ]


def _as_values(described: Loading, parameters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for part in described.parts:
        section = part.data_type.partition(".")[0]
        yield from ((f"{section}.{name}", value) for name, value in parameters.items())
        yield part.data_type, "fp32"


def _misrotated(described: Loading, values: Mapping[str, str], data_type: str | None) -> Iterator[str]:
    heads = rotation.of_values(described, values)
    if heads is None:
        return
    wrong = rotation.fault(*heads, data_type) if data_type else rotation.fault_of_all(*heads)
    if wrong:
        yield wrong


def _without_type(part: LoadedPart, values: Mapping[str, str]) -> str:
    section = part.data_type.partition(".")[0]
    sections = sorted({key.partition(".")[0] for key in values})
    if section in sections:
        return f"{config_ini.FILE} has no {part.data_type}"
    there = ", ".join(f"[{untrusted.plain(name)}]" for name in sections[:_SHOWN])
    return f"{config_ini.FILE} has no section [{section}]" + (f", but {there}" if there else "")


def _differences(checked: Sequence[_Checked], types: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong: what all files have in common, or the first few and how many more."""
    wrong = [file for file in checked if not file.is_right]
    if not wrong:
        return
    if all(file.has is None for file in checked):
        yield f"none of the {len(checked)} weight files is there, for instance {wrong[0].name}"
    elif guess := _of_another_type(checked):
        written = ", ".join(f"{key} = {untrusted.plain(kind)}" for key, kind in types.items())
        yield f"all {len(checked)} files have {guess}, but {config_ini.FILE} has {written}"
    else:
        yield from map(str, wrong[:_SHOWN])
        if len(wrong) > _SHOWN:
            yield f"and {len(wrong) - _SHOWN} more of {len(checked)} files"


def _of_another_type(checked: Sequence[_Checked]) -> str | None:
    sizes = [(file.has if isinstance(file.has, int) else 0, file.expected.size) for file in checked]
    if all(2 * has == size for has, size in sizes):
        return "half of the bytes: they look like fp16"
    if all(has == 2 * size for has, size in sizes):
        return "twice the bytes: they look like fp32"
    return None


def _miscounted(part: LoadedPart, known: Numbers, sizes: Mapping[str, int | str]) -> Iterator[str]:
    """Yield what is said of another number of layers than config.ini's: more files would be left unread."""
    there: dict[str, int] = {}
    for pattern in loading.read_files(part):
        counter, expression = loading.layer_counter(pattern), loading.expression(pattern)
        if counter:
            layers = (int(match[LAYER]) + 1 for name in sizes if (match := expression.fullmatch(name)))
            there[counter] = max([there.get(counter, 0), *layers])
    for counter, count in there.items():
        if (layers_of_config := known.or_zero(counter)) and count and layers_of_config != count:
            key = known.keys.get(counter, counter)
            yield f"there are files of {count} layers, but {config_ini.FILE} has {key} = {layers_of_config}"


def _unread(part: LoadedPart, known: Numbers, there: Mapping[str, int | str]) -> Iterator[str]:
    """Yield what is said of files that the switches of config.ini leave out, once for each switch."""
    facts = set()
    for pattern, fact in loading.left_out(part, known):
        expression = loading.expression(pattern)
        if fact not in facts and (name := next((name for name in there if expression.fullmatch(name)), None)):
            facts.add(fact)
            key = loading.first_key(part, fact)
            written = known.text(key)
            value = f"{key} = {untrusted.plain(written)}" if written is not None else f"no {key}"
            yield f"{untrusted.plain(name)} is there, but {config_ini.FILE} has {value}: it is not read"


def sizes(folder: Path, inside: Path | None = None) -> dict[str, int | str]:
    """Return name -> bytes of the plain files of a folder, and of the rest what it is."""
    files: dict[str, int | str] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                files[entry.name] = status.st_size
            elif entry.is_symlink():
                files[entry.name] = _through_link(Path(entry.path), inside)
            else:
                files[entry.name] = "not a regular file"
    return files


def _through_link(link: Path, inside: Path | None) -> int | str:
    try:
        real = link.resolve()
        status = real.stat()
    except (OSError, RuntimeError):
        return "a dangling link"
    if inside is None or not real.is_relative_to(inside.resolve()):
        return "a link that leads out of the folder"
    return status.st_size if stat.S_ISREG(status.st_mode) else "not a regular file"
