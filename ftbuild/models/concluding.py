"""The config.ini of weights that another program converted, concluded key by key.

A value comes from an option, from config.ini under any of its names, from the sizes of the files, or from
config.pbtxt, in this order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ftbuild.config.families import LoadedPart, Loading
from ftbuild.models import config_ini, loading, solving, untrusted
from ftbuild.models.loading import ABSENT
from ftbuild.models.weights import GPUS

OPTION = "--ini"
FROM_SIZES = "sizes of the files"
_FROM_NAMES = "files that are there, or not"
_TYPES = {4: "fp32", 2: "fp16"}
# Keys with a name for people, which no answer depends on.
_NAMES = frozenset({"model_name", "_name_or_path"})


@dataclass(frozen=True)
class SourcedValue:
    """A value of config.ini, and what it was concluded from."""

    value: str
    source: str


@dataclass
class Sources:
    """What is known of a model besides its files: values of config.ini by section.key, parameters, options.

    `used` are the options that some key took.
    """

    values: Mapping[str, str]
    parameters: Mapping[str, str]
    options: Mapping[str, str]
    used: set[str] = field(default_factory=set)

    def of(self, part: LoadedPart, key: str) -> SourcedValue | None:
        """Return the value of a key from an option or config.ini, by any of its names."""
        name = key.partition(".")[2]
        for option in (key, name):
            if option in self.options:
                self.used.add(option)
                return SourcedValue(self.options[option], OPTION)
        section = self.section(key)
        for other in loading.names_of(part, key):
            written = self.values.get(f"{section}.{other}", ABSENT)
            if written != ABSENT:
                word = part.words.get(key, {}).get(written.lower(), written)
                return SourcedValue(word, f"config.ini, [{section}] {other} = {untrusted.plain(written)}")
        return None

    def of_server(self, part: LoadedPart, key: str) -> SourcedValue | None:
        """Return the value of a key from config.pbtxt: release 1.1's, which others copied to later ones."""
        for name in loading.names_of(part, key):
            if written := self.parameters.get(name):
                return SourcedValue(written, f"config.pbtxt, {name}")
        return None

    def section(self, key: str) -> str:
        """Return the section of config.ini in which a key is, or that stands for its section."""
        section = key.partition(".")[0]
        there = {other.partition(".")[0] for other in self.values}
        if section in there or section not in config_ini.SECTIONS:
            return section
        return next((name for name in config_ini.SECTIONS if name in there), section)


@dataclass(frozen=True)
class Conclusion:
    """What was concluded: keys with their values, and keys without a value, with what is known of them."""

    keys: Mapping[str, SourcedValue]
    missing: Mapping[str, str]

    def config(self, sources: Sources) -> dict[str, dict[str, str]]:
        """Return the config.ini to write, by section: these keys, and what else the old one has."""
        made: dict[str, dict[str, str]] = {key.partition(".")[0]: {} for key in self.keys}
        standing = {section: sources.section(section) for section in made}
        for key, value in sources.values.items():
            written, _, name = key.partition(".")
            # One section may stand for several, as [t5] does for an encoder and a decoder.
            sections = [section for section, other in standing.items() if other == written]
            if not sections and written not in config_ini.SECTIONS:
                sections = [written]
            for section in sections:
                made.setdefault(section, {})[name] = value
        for key, source in self.keys.items():
            section, _, name = key.partition(".")
            made[section][name] = source.value
        return made


def conclude(
    described: Loading, family: str, sizes: Mapping[str, int], gpus: int, sources: Sources
) -> Conclusion:
    """Conclude every key that the backend reads of a model whose files have these `sizes`, by name."""
    keys: dict[str, SourcedValue] = {}
    missing: dict[str, str] = {}
    for part in described.parts:
        known = _written(part, sources)
        facts = _solved(part, sizes, gpus, sources, known)
        known |= {key: value for key, value in _of_switches(part, facts) if key not in known}
        # Sizes first: config.pbtxt may have a tokenizer's vocabulary, where the table has more rows.
        known |= dict(_of_facts(part, facts, known))
        for key in part.keys:
            if key not in known and (value := sources.of_server(part, key)):
                known[key] = value
        known |= dict(_of_facts(part, facts, known))
        for key in part.keys:
            if key in known or not _is_needed(part, key, known):
                continue
            if key.partition(".")[2] in _NAMES:
                known[key] = SourcedValue(family, "a name, which changes nothing")
            else:
                missing[key] = _product(part, key, facts)
        missing |= dict(_open_questions(part, facts, known, undescribed=not sources.values))
        keys |= {key: known[key] for key in (*part.keys, *part.more_keys, *known) if key in known}
    return Conclusion(keys, missing)


def fitting(
    described: Loading, sizes: Mapping[str, int], gpus: int, concluded: Mapping[str, SourcedValue]
) -> list[str]:
    """Return `key=value` where the files contradict; none where they contradict each other."""
    sentences = []
    for part in described.parts:
        solutions = _solutions(part, sizes, gpus)
        if len(solutions) != 1:
            return []
        settings = {part.data_type: _TYPES[solutions[0].item]}
        for fact, value in solutions[0].facts.items():
            if fact in part.facts and fact not in part.texts and not loading.is_switch(part, fact):
                settings[loading.first_key(part, fact)] = str(value)
        same = {"bf16": "fp16"}  # of the same size
        sentences += [
            f"{key}={value}"
            for key, value in settings.items()
            if key in concluded and same.get(concluded[key].value, concluded[key].value) != value
        ]
    return sentences


def _written(part: LoadedPart, sources: Sources) -> dict[str, SourcedValue]:
    keys = dict.fromkeys((*part.keys, *part.more_keys, *_switches(part).values(), *part.asks))
    return {key: value for key in keys if (value := sources.of(part, key))}


def _switches(part: LoadedPart) -> dict[str, str]:
    """Return fact -> its key, of the facts that are about files that not all models have."""
    return {fact: loading.first_key(part, fact) for fact in part.facts if loading.is_switch(part, fact)}


def _solutions(part: LoadedPart, sizes: Mapping[str, int], gpus: int) -> list[solving.Solution]:
    return solving.solve(part, sizes, {GPUS: gpus, **dict(solving.absent_switches(part, sizes))})


def _solved(
    part: LoadedPart, sizes: Mapping[str, int], gpus: int, sources: Sources, known: dict[str, SourcedValue]
) -> dict[str, int]:
    """Return the facts that follow from the files, and add the type of the weights to `known`."""
    solutions = _solutions(part, sizes, gpus)
    values = {**sources.values, **{key: solution.value for key, solution in known.items()}}
    if len(solutions) > 1:
        hidden = loading.numbers(part, values, gpus).or_zero("hidden")
        item_type = loading.data_type(part, values)
        solutions = [solution for solution in solutions if hidden in (0, solution.facts.get("hidden"))]
        solutions = [
            solution
            for solution in solutions
            if item_type is None or loading.ITEM_BYTES[item_type] == solution.item
        ]
    if len(solutions) != 1:
        return {}
    known.setdefault(part.data_type, SourcedValue(_TYPES[solutions[0].item], FROM_SIZES))
    return dict(solutions[0].facts)


def _open_questions(
    part: LoadedPart, facts: Mapping[str, int], known: Mapping[str, SourcedValue], *, undescribed: bool
) -> Iterator[tuple[str, str]]:
    """Yield keys whose default is not a guess, with what is known of them."""
    numbers = loading.numbers(part, {key: value.value for key, value in known.items()}, 1)
    numbers.overrides = {**numbers.overrides, loading.UNDESCRIBED: int(undescribed)}
    for key, condition in part.asks.items():
        if key not in known and numbers.value(condition):
            yield key, ""
    for fact, key in _switches(part).items():
        texts = [text for text, number in part.texts.get(fact, {}).items() if number == facts.get(fact)]
        if key not in known and len(texts) > 1 and facts.get(fact):
            yield key, f"{' or '.join(texts)}, by the files that are there"


def _of_switches(part: LoadedPart, facts: Mapping[str, int]) -> Iterator[tuple[str, SourcedValue]]:
    """Yield the keys of switches that differ from their default, by the files that are there."""
    for fact, key in _switches(part).items():
        value = facts.get(fact)
        source = part.facts[fact]
        if value is None or not isinstance(source, tuple) or value == source[-1]:
            continue
        texts = part.texts.get(fact)
        alike = [str(value)] if texts is None else [text for text, number in texts.items() if number == value]
        if texts and not alike and "0" in texts:
            alike = ["1"]  # what 0 does not stand for
        if len(alike) == 1 or {"0", "1"} & set(alike):
            yield key, SourcedValue(alike[0], _FROM_NAMES)


def _of_facts(
    part: LoadedPart, facts: Mapping[str, int], known: Mapping[str, SourcedValue]
) -> Iterator[tuple[str, SourcedValue]]:
    """Yield the keys that follow from facts: a fact's own key, or the one unknown factor of a product."""
    for fact, value in facts.items():
        if fact not in part.facts or fact in part.texts or loading.is_switch(part, fact):
            continue
        keys = loading.first_key(part, fact).split(" * ")
        unknown = [key for key in keys if key not in known]
        if len(unknown) != 1 or not _is_read(part, fact, known):
            continue
        rest = 1
        for key in keys:
            with contextlib.suppress(ValueError):
                rest *= config_ini.number(known[key].value) if key in known else 1
        if rest > 0 and value % rest == 0:
            others = "".join(f", and {key}" for key in keys if key in known)
            yield unknown[0], SourcedValue(str(value // rest), f"{FROM_SIZES}{others}")


def _is_read(part: LoadedPart, fact: str, known: Mapping[str, SourcedValue]) -> bool:
    """Return whether a file whose size depends on a fact is read, with the switches that are known."""
    numbers = loading.numbers(part, {key: value.value for key, value in known.items()}, 1)
    tables = {**loading.read_files(part), **part.more}
    sized = [
        pattern
        for pattern, size in tables.items()
        if fact in (*size.split(" * "), loading.layer_counter(pattern))
    ]
    return any(numbers.value(part.only_if.get(pattern, 1)) for pattern in sized)


def _is_needed(part: LoadedPart, key: str, known: Mapping[str, SourcedValue]) -> bool:
    """Return whether a model with these switches cannot do without a key."""
    facts = [fact for fact in part.facts if key in loading.first_key(part, fact).split(" * ")]
    return not facts or any(_is_read(part, fact, known) for fact in facts)


def _product(part: LoadedPart, key: str, facts: Mapping[str, int]) -> str:
    """Return what the files say about a key that enters with another one; nothing for any other key."""
    for fact in part.facts:
        first = loading.first_key(part, fact)
        if " * " in first and key in first.split(" * ") and fact in facts:
            return f"the files tell {first} = {facts[fact]}"
    return ""
