"""Files that FasterTransformer reads from a folder `<n>-gpu`, with their sizes, by the values of config.ini.

models.yaml describes them for each family (`loading`). Pure: nothing is read here; `proof` compares a folder.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ftbuild.config.checkpoints import Fact
from ftbuild.config.families import Instead, LoadedPart
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, formula, untrusted
from ftbuild.models.weights import GPUS, MAX_FILES

# How converters that copy config.json write its null.
ABSENT = "None"
INT8_MODE, UNDESCRIBED = "int8_mode", "undescribed"
LAYER, GPU = "layer", "gpu"
ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
# FasterTransformer looks for them in this order, anywhere in the value (FT v5.3 cuda_utils.cc:373-386).
_DATA_TYPES = ("fp32", "fp16", "bf16")
_COUNTER = re.compile(r"{(\w+)}")
TASK = "task"
_NUMBERS = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class ExpectedFile:
    """A file that is read: its bytes, how they were counted, and whether it must be there.

    `row` are the bytes of a row of a table that may have more of them; 0: it must be as large as said.
    """

    size: int
    reason: str
    required: bool = True
    row: int = 0


@dataclass
class Numbers:
    """The facts of a part, read from config.ini's values by section.key on demand.

    `overrides` are those that config.ini does not decide. `missing` names the keys that config.ini lacks,
    `keys` those of the others.
    """

    part: LoadedPart
    values: Mapping[str, str]
    overrides: Mapping[str, int]
    missing: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    _known: dict[str, int | None] = field(default_factory=dict)

    def __getitem__(self, fact: str) -> int:
        """Return a number; KeyError when config.ini has none, which `missing` then says."""
        if fact in self.overrides:
            return self.overrides[fact]
        if fact not in self._known:
            self._known[fact] = self._read(fact, self.part.facts[fact])
        value = self._known[fact]
        if value is None:
            raise KeyError(fact)
        return value

    def text(self, key: str) -> str | None:
        """Return what config.ini has for a key, by this or another name; None without one."""
        section = key.partition(".")[0]
        texts = (self.values.get(f"{section}.{name}", ABSENT) for name in names_of(self.part, key))
        return next((written for written in texts if written != ABSENT), None)

    def or_zero(self, fact: str) -> int:
        """Return a number, 0 where config.ini has none."""
        try:
            return self[fact]
        except KeyError:
            return 0

    def value(self, size: str | int) -> int:
        """Return the value of a formula, 0 with a switch that is off; KeyError where a number is missing."""
        names = str(size).split(" * ")
        if any(self[name] == 0 for name in names if is_switch(self.part, name)):
            return 0
        return formula.value(size, self.__getitem__)

    def reason(self, size: str) -> str:
        """Return how a formula was counted: `hidden * inner, gpt.inter_size = 64`."""
        named = dict.fromkeys(name for name in size.split(" * ") if name in self.keys)
        shown = (f"{self.keys[name]} = {self[name]}" for name in named)
        return ", ".join([size, *shown])

    def _read(self, fact: str, source: Fact) -> int | None:
        alternatives = source if isinstance(source, tuple) else (source,)
        for alternative in alternatives:
            try:
                number = formula.value(alternative, lambda key: self._number(fact, key))
            except KeyError:
                continue
            except ValueError as broken:
                self.missing.append(f"{config_ini.FILE}: {broken}")
                return None
            if isinstance(alternative, str):
                self.keys[fact] = alternative
            return number
        self.missing.append(f"{config_ini.FILE} has no {alternatives[0]}")
        return None

    def _number(self, fact: str, key: str) -> int:
        written = self.text(key)
        if written is None:
            raise KeyError(key)
        if (texts := self.part.texts.get(fact)) is not None:
            return texts.get(written.lower(), 0)
        try:
            number = config_ini.number(written)
        except ValueError:
            number = -1
        if not 0 <= number <= untrusted.MAX:
            raise ValueError(f"{key} is {untrusted.shown(written)}, not a whole number up to {untrusted.MAX}")
        return number


@dataclass(frozen=True)
class Files:
    """The files of a pattern of models.yaml: one for each of its layers and each GPU.

    `task` is what a learned prompt is for, which may have any name.
    """

    pattern: str
    file: ExpectedFile
    layers: Sequence[int]
    task: str = ""

    def names(self, gpus: int) -> Iterator[str]:
        """Yield the names."""
        counters = [name for name in dict.fromkeys(_COUNTER.findall(self.pattern)) if name != TASK]
        ranges = [range(gpus) if counter == GPUS else self.layers for counter in counters]
        for counts in itertools.product(*ranges):
            yield self.pattern.format(**dict(zip(counters, counts, strict=True)), **{TASK: self.task})


def read_files(part: LoadedPart) -> dict[str, str]:
    """Return the `files` of a part without those that it does not read."""
    return {name: size for name, size in part.files.items() if not name.startswith(tuple(part.unread))}


def names_of(part: LoadedPart, key: str) -> tuple[str, ...]:
    """Return the names of a key of config.ini, its own first, without the section."""
    return (key.partition(".")[2], *part.keys.get(key, ()), *part.more_keys.get(key, ()))


def first_key(part: LoadedPart, fact: str) -> str:
    """Return where a fact is looked for first: a key of config.ini, or a product of keys."""
    source = part.facts[fact]
    return str(source[0] if isinstance(source, tuple) else source)


def is_switch(part: LoadedPart, fact: str) -> bool:
    """Return whether a fact has a default: it is about files that not all models have."""
    source = part.facts.get(fact)
    return isinstance(source, tuple) and not isinstance(source[-1], str)


def layer_counter(pattern: str) -> str | None:
    """Return the fact that counts the layers in a pattern's names, None where they have none."""
    return next((counter for counter in _COUNTER.findall(pattern) if counter not in (GPUS, TASK)), None)


def expression(pattern: str) -> re.Pattern[str]:
    """Return what the names of a pattern's files match, with groups `layer` and `gpu` for its counters."""
    parts = re.split(r"{(\w+)}", pattern)
    groups = {GPUS: f"(?P<{GPU}>[0-9]{{1,6}})", TASK: ".+"}
    counted = [groups.get(name, f"(?P<{LAYER}>[0-9]{{1,6}})") for name in parts[1::2]]
    texts = [re.escape(text) for text in parts[::2]]
    return re.compile("".join(text for pair in zip(texts, [*counted, ""], strict=True) for text in pair))


def data_type(part: LoadedPart, values: Mapping[str, str]) -> str | None:
    """Return the type as which the files of a part are read, or None where config.ini says none.

    What is none of the types counts as fp32 (FT v5.3 cuda_utils.cc:383-386).
    """
    written = values.get(part.data_type)
    if written is None:
        return None
    return next((known for known in _DATA_TYPES if known in written), _DATA_TYPES[0])


def numbers(part: LoadedPart, values: Mapping[str, str], gpus: int, int8_mode: int = 0) -> Numbers:
    """Return the facts of a part; `int8_mode` is config.pbtxt's."""
    return Numbers(part, values, {GPUS: gpus, INT8_MODE: int8_mode})


def expected(part: LoadedPart, known: Numbers, item_type: str) -> list[Files]:
    """Return the files that a part reads; those whose facts config.ini lacks are in `known.missing` instead.

    Raises ConfigError when there would be more files than of any model.
    """
    gpus = known.overrides[GPUS]
    tables = list(_tables(part, known))
    total = sum(len(layers) * (gpus if GPUS in _COUNTER.findall(name) else 1) for name, _, layers in tables)
    if total > MAX_FILES:
        layer_count = max(len(layers) for *_, layers in tables)
        raise ConfigError(
            (
                f"{layer_count} layers on {gpus} GPUs: {total} weight files, more than the {MAX_FILES} of "
                "any model"
            ),
            hint=f"check the numbers in {config_ini.FILE}",
        )
    types = {name: kind for other in part.instead for name, kind in other.types.items()}
    files = []
    for pattern, size, layers in tables:
        file = _expected_file(part, known, pattern, size, types.get(pattern, item_type))
        if file:
            files.append(Files(pattern, file, layers))
    return [*files, *_prompts(part, known, item_type)]


def left_out(part: LoadedPart, known: Numbers) -> Iterator[tuple[str, str]]:
    """Yield patterns of files that are not read with config.ini's switches, and the fact that says so.

    Converters do not write them for models without, so where they are there config.ini is wrong.
    """
    for pattern, size in (*read_files(part).items(), *part.more.items()):
        if pattern not in (*part.only_if, *part.optional, *part.spare):
            off = (name for name in size.split(" * ") if is_switch(part, name) and not known.or_zero(name))
            yield from ((pattern, fact) for fact in itertools.islice(off, 1))


def _tables(part: LoadedPart, known: Numbers) -> Iterator[tuple[str, str, Sequence[int]]]:
    """Yield pattern, size and layers of all files of a part, whether they are read or not."""
    without: dict[str, set[int]] = {}
    for other in part.instead:
        if not _applies(other, known):
            continue
        listed = _listed(known.values.get(other.layers, "")) if other.layers else None
        for pattern in other.replaces:
            # All layers of an unlikely model are too many for a set; `expected` refuses it.
            chosen = _layers(pattern, known)[: MAX_FILES + 1]
            without.setdefault(pattern, set()).update(chosen if listed is None else listed)
        for pattern, size in other.files.items():
            every = _layers(pattern, known)
            yield pattern, size, every if listed is None else sorted(n for n in listed if n in every)
    for pattern, size in (*read_files(part).items(), *part.more.items()):
        less, every = without.get(pattern), _layers(pattern, known)
        yield pattern, size, [n for n in every[: MAX_FILES + 1] if n not in less] if less else every


def _layers(pattern: str, known: Numbers) -> range:
    counter = layer_counter(pattern)
    return range(known.or_zero(counter) if counter else 1)


def _expected_file(
    part: LoadedPart, known: Numbers, pattern: str, size: str, item_type: str
) -> ExpectedFile | None:
    try:
        if not known.value(part.only_if.get(pattern, 1)) or not (values := known.value(size)):
            return None
        required = not known.value(part.optional.get(pattern, 0))
    except KeyError:
        return None
    gpus = known.overrides[GPUS] if GPUS in _COUNTER.findall(pattern) else 1
    split = f", a share of {gpus}" if gpus > 1 else ""
    reason = f"{known.reason(size)}, {item_type}{split}"
    row = known.value(part.rows.get(pattern, 0)) * ITEM_BYTES[item_type]
    return ExpectedFile(values // gpus * ITEM_BYTES[item_type], reason, required, row)


def _prompts(part: LoadedPart, known: Numbers, item_type: str) -> Iterator[Files]:
    if part.prompts is None:
        return
    tables = part.prompts.files.get(_of_key(known.values, part.prompts.kind), {})
    count = min(_of_key(known.values, part.prompts.count), MAX_FILES) if tables else 0
    for section in (f"task_{index}" for index in range(count)):
        name = known.values.get(f"{section}.task_name")
        if not untrusted.is_file_name(name):
            known.missing.append(f"{config_ini.FILE} has no {section}.task_name that a file can have")
            return
        length = _of_key(known.values, f"{section}.prompt_length")
        for pattern, size in tables.items():
            if length and (file := _expected_file(part, known, pattern, f"{length} * {size}", item_type)):
                yield Files(pattern, file, (), str(name))


def _applies(other: Instead, known: Numbers) -> bool:
    value = known.or_zero(other.when)
    return value != 0 if other.equals is None else value == other.equals


def _of_key(values: Mapping[str, str], key: str) -> int:
    try:
        return max(0, config_ini.number(values.get(key, "0")))
    except ValueError:
        return 0


def _listed(text: str) -> set[int]:
    """Return the numbers in a list, as FasterTransformer finds them (patches/ft/0460)."""
    return {int(number) for number in _NUMBERS.findall(text)[:MAX_FILES]}
