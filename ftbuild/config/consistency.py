"""Contradictions between the files of a buildcfg folder, each with the keys of where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from packaging.specifiers import SpecifierSet

from ftbuild.config.families import Family
from ftbuild.config.schema import Config


class Contradiction(NamedTuple):
    """A file, the keys that lead to the wrong value in it, and what is wrong."""

    file: str
    keys: tuple[str | int, ...]
    message: str


def contradictions(config: Config) -> Iterator[Contradiction]:
    """Yield every contradiction."""
    yield from _releases(config)
    yield from _patched_sms(config)
    yield from _sources(config)
    yield from _bases(config)
    yield from _families(config)


def _releases(config: Config) -> Iterator[Contradiction]:
    known = set(config.matrix.sms)
    for name, release in config.matrix.releases.items():
        named = {
            ("default_sms",): release.default_sms,
            ("sms", "builds"): release.sms.builds,
            ("sms", "patched"): tuple(release.sms.patched),
        }
        for keys, sms in named.items():
            for sm in sorted(set(sms) - known):
                message = f"release {name} names SM {sm}, which `sms` does not describe"
                yield Contradiction("matrix.yaml", ("releases", name, *keys), message)
        if name not in config.sources.releases:
            message = f"release {name} of matrix.yaml has no sources"
            yield Contradiction("sources.yaml", ("releases",), message)


def _patched_sms(config: Config) -> Iterator[Contradiction]:
    """Yield every SM that is said to be made possible by a patch that its release does not get."""
    for name, release in config.matrix.releases.items():
        for sm, patched in release.sms.patched.items():
            keys = ("releases", name, "sms", "patched", str(int(sm)), "patch")
            component, _, entry = patched.patch.partition("/")
            meant = config.patches.ranges.get(component, {}).get(entry)
            if meant is None:
                message = f"SM {sm} of release {name} needs {patched.patch}, which patches.yaml does not list"
                yield Contradiction("matrix.yaml", keys, message)
                continue
            version = config.version(name, component) if name in config.sources.releases else ""
            if version and SpecifierSet(meant.versions).contains(version, prereleases=True):
                continue
            message = (
                f"SM {sm} of release {name} needs {patched.patch}, which patches.yaml gives to {component} "
                f"{meant.versions} only; {name} has {version or 'none'}"
            )
            yield Contradiction("matrix.yaml", keys, message)


def _sources(config: Config) -> Iterator[Contradiction]:
    for name, sources in config.sources.releases.items():
        places: dict[str, str] = {}
        for repository in sources:
            described = config.sources.repositories.get(repository)
            keys = ("releases", name, repository)
            if described is None:
                message = f"release {name} uses repository {repository!r}, which is not described"
                yield Contradiction("sources.yaml", keys, message)
                continue
            # A tree may lie inside of another one, in the folder of a submodule.
            if (other := places.setdefault(described.path.casefold(), repository)) != repository:
                message = f"release {name} has {other} and {repository} at the same path {described.path!r}"
                yield Contradiction("sources.yaml", keys, message)
    for component in config.patches.ranges:
        if component not in config.sources.repositories:
            message = f"component {component!r} is not a repository in sources.yaml"
            yield Contradiction("patches.yaml", ("ranges", component), message)


def _bases(config: Config) -> Iterator[Contradiction]:
    bases = config.bases
    if bases.default not in bases.bases:
        message = f"the default base {bases.default!r} is not described"
        yield Contradiction("bases.yaml", ("default",), message)
    for name, base in bases.bases.items():
        if (base.image is None) == (base.local is None):
            message = f"base {name} needs exactly one of `image` and `local`"
            yield Contradiction("bases.yaml", ("bases", name), message)
        for missing in sorted(set(base.releases) - set(config.matrix.releases)):
            message = f"base {name} names release {missing}, which matrix.yaml does not describe"
            yield Contradiction("bases.yaml", ("bases", name, "releases"), message)


def _families(config: Config) -> Iterator[Contradiction]:
    for name, family in config.models.families.items():
        keys = ("families", name)
        if family.served_as not in (None, *config.models.families):
            message = f"{name} is served as {family.served_as!r}, which is not a family"
            yield Contradiction("models.yaml", (*keys, "served_as"), message)
        for place, fact in _unknown_facts(family):
            message = f"{name} uses the fact {fact!r}, which nothing defines"
            yield Contradiction("models.yaml", (*keys, *place), message)


def _unknown_facts(family: Family) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield place and name of what formulas, files, splits and arguments use and nothing defines."""
    for fact in sorted(set(family.checkpoint.splits) - set(family.checkpoint.facts)):
        yield ("checkpoint", "splits"), fact
    for number, converter in enumerate(family.converters):
        known = set(converter.fixed if converter.format == "jax" else family.checkpoint.facts) | {"gpus"}
        used = {
            "facts": set(converter.facts),
            "fixed": {*converter.fixed, *_names(converter.fixed.values())},
            "files": {*_names(converter.files.values()), *_names(converter.files, r"{(\w+)}")},
            # Every converter is called with the number of layers.
            "arguments": {"layers"},
        }
        for key, names in used.items():
            for fact in sorted(names - known):
                yield ("converters", number, key), fact


def _names(texts: Iterable[object], pattern: str = r"[^ *]+") -> set[str]:
    """Return the names in formulas (or what `pattern` finds), without the numbers."""
    found = {name for text in texts for name in re.findall(pattern, str(text))}
    return {name for name in found if not name.isdigit()}
