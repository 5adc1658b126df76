"""Contradictions between the files of a buildcfg folder, each with the keys of where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from packageurl import PackageURL
from packaging.specifiers import SpecifierSet

from ftbuild.config import holes
from ftbuild.config.families import REQUEST_FACTS, Family
from ftbuild.config.schema import Config


class Contradiction(NamedTuple):
    """A file, the keys that lead to the wrong value in it, and what is wrong."""

    file: str
    keys: tuple[str | int, ...]
    message: str


def contradictions(config: Config) -> Iterator[Contradiction]:
    """Yield every contradiction."""
    yield from _releases(config)
    yield from _sources(config)
    yield from _patched_sms(config)
    yield from _bases(config)
    yield from _families(config)
    yield from _holes(config)


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
        if wrong := _default_base(config, name, release.base):
            yield Contradiction("matrix.yaml", ("releases", name, "base"), wrong)
        if name not in config.sources.releases:
            message = f"release {name} of matrix.yaml has no sources"
            yield Contradiction("sources.yaml", ("releases",), message)


def _default_base(config: Config, release: str, name: str) -> str | None:
    """Return what is wrong with the base that the cells of a release stand on, if none is asked for."""
    base = config.bases.bases.get(name)
    if base is None:
        return f"the base {name!r} of release {release} is not described in bases.yaml"
    return None if release in base.releases else f"base {name} carries no image for release {release}"


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
    if bases.not_built and getattr(bases.bases.get(bases.not_built.libraries), "cuda", None) is None:
        message = f"{bases.not_built.libraries!r} is no base with a CUDA of its own"
        yield Contradiction("bases.yaml", ("not_built", "libraries"), message)
    for name, base in bases.bases.items():
        if (base.image is None) == (base.local is None):
            message = f"base {name} needs exactly one of `image` and `local`"
            yield Contradiction("bases.yaml", ("bases", name), message)
        for release in base.releases if base.local and base.local.compiles_server else ():
            if not _has_server(config, release):
                message = f"base {name} compiles the server of release {release}, which has no sources of one"
                yield Contradiction("bases.yaml", ("bases", name, "releases"), message)
        for missing in sorted(set(base.releases) - set(config.matrix.releases)):
            message = f"base {name} names release {missing}, which matrix.yaml does not describe"
            yield Contradiction("bases.yaml", ("bases", name, "releases"), message)


def _has_server(config: Config, release: str) -> bool:
    repositories = config.sources.repositories
    sources = config.sources.releases.get(release, {})
    return any(repositories[name].server for name in sources if name in repositories)


def _families(config: Config) -> Iterator[Contradiction]:
    for name, family in config.models.families.items():
        keys = ("families", name)
        if family.served_as not in (None, *config.models.families):
            message = f"{name} is served as {family.served_as!r}, which is not a family"
            yield Contradiction("models.yaml", (*keys, "served_as"), message)
        for place, fact in _unknown_facts(family):
            message = f"{name} uses the fact {fact!r}, which nothing defines"
            yield Contradiction("models.yaml", (*keys, *place), message)
        written = {pattern for converter in family.converters for pattern in converter.files}
        yield from _loading(name, family)
        for place, what, files in _named_files(family):
            for file in files:
                if file not in written:
                    message = f"{name} {what} {file!r}, which no converter writes"
                    yield Contradiction("models.yaml", (*keys, *place), message)


def _loading(name: str, family: Family) -> Iterator[Contradiction]:
    """Yield facts and files that what the backend reads of a family names, and that nothing defines."""
    for number, part in enumerate(family.loading.parts if family.loading else ()):
        place = ("families", name, "loading", "parts", number)
        known = {*part.facts, "gpus", "int8_mode"}
        tables = [part.files, part.more, *(other.files for other in part.instead)]
        sizes = [size for table in (*tables, part.rows) for size in table.values()]
        conditions = [*part.only_if.values(), *part.optional.values(), *(o.when for o in part.instead)]
        conditions += [condition for condition in part.asks.values() if condition != "undescribed"]
        used = _names([*sizes, *conditions]) | _names(
            (file for table in tables for file in table), r"{(\w+)}"
        )
        unread = {pattern for pattern in part.files if pattern.startswith(tuple(part.unread))}
        used -= {name for pattern in unread for name in _names([pattern], r"{(\w+)}")} - known
        used -= {name for pattern in unread for name in _names([part.files[pattern]])} - known
        for fact in sorted((used | set(part.texts)) - known):
            yield Contradiction("models.yaml", place, f"{name} uses the fact {fact!r}, which nothing defines")
        named = {
            *part.only_if,
            *part.optional,
            *part.spare,
            *(file for o in part.instead for file in o.replaces),
        }
        there = {file for table in tables for file in table}
        for file in sorted((named | {*part.rows, *(f for o in part.instead for f in o.types)}) - there):
            yield Contradiction("models.yaml", place, f"{name} names {file!r}, which is none of its files")
        for key in sorted({*part.words} - {*part.keys, *part.more_keys}):
            yield Contradiction(
                "models.yaml", place, f"{name} has words for {key!r}, which is none of its keys"
            )


def _named_files(family: Family) -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """Yield place, what is said of them, and names of weight files, wherever a family names some."""
    if family.int8:
        yield ("int8", "files"), "keeps as int8", family.int8.files
    if family.vectors and family.vectors.embedding:
        yield ("vectors", "embedding"), "looks up", family.vectors.files
    if family.gpu_memory:
        yield ("gpu_memory", "unread"), "does not load", family.gpu_memory.unread


def _holes(config: Config) -> Iterator[Contradiction]:
    """Yield holes of what is not described, and versions that their component cannot be compared with."""
    for name, hole in config.holes.holes.items():
        keys = ("holes", name)
        if hole.bulletin not in config.holes.bulletins:
            message = f"{name} names the bulletin {hole.bulletin!r}, which is not described"
            yield Contradiction(holes.FILE, (*keys, "bulletin"), message)
        for patch in hole.cured_by:
            series, _, entry = patch.partition("/")
            # The sample stack patches other components, and shares what is known of holes.
            if entry not in config.patches.ranges.get(series, {entry: None}):
                message = f"{name} is cured by {patch}, which patches.yaml does not list"
                yield Contradiction(holes.FILE, (*keys, "cured_by"), message)
        component = config.holes.components.get(hole.component)
        if component is None:
            message = f"{name} is about {hole.component!r}, which is not described"
            yield Contradiction(holes.FILE, (*keys, "component"), message)
            continue
        for key, written in (("introduced", hole.introduced), ("fixed", hole.fixed)):
            if written is None:
                continue
            if component.versions and written not in component.versions:
                message = f"{name} names version {written} of {hole.component}, which `versions` lacks"
                yield Contradiction(holes.FILE, (*keys, key), message)
            elif PackageURL.from_string(component.purl).type == "deb":
                message = f"{name}: versions of Debian packages are a database's to know; leave out {key}"
                yield Contradiction(holes.FILE, (*keys, key), message)


def _unknown_facts(family: Family) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield place and name of what formulas, files, splits and arguments use and nothing defines."""
    described = family.checkpoint
    for key, named in (
        ("splits", set(described.splits)),
        ("at_most", set(described.at_most)),
        ("equal", set(described.equal)),
        ("multiples", {*described.multiples, *_names(described.multiples.values())}),
    ):
        for fact in sorted(named - set(described.facts)):
            yield ("checkpoint", key), fact
    if family.gpu_memory:
        known = set(family.checkpoint.facts) | REQUEST_FACTS
        for key in ("weights", "cache", "buffers", "words"):
            for fact in sorted(_names(getattr(family.gpu_memory, key).values()) - known):
                yield ("gpu_memory", key), fact
    if family.int8:
        used_by_int8 = {*_names(family.int8.scales.values()), *family.int8.multiples}
        for fact in sorted(used_by_int8 - set(family.checkpoint.facts)):
            yield ("int8",), fact
    for number, converter in enumerate(family.converters):
        known = set(family.checkpoint.facts) | {"gpus"}
        used = {
            "facts": set(converter.facts),
            "fixed": {*converter.fixed, *_names(converter.fixed.values())},
            "files": {*_names(converter.files.values()), *_names(converter.files, r"{(\w+)}")},
            "config": _names((v for keys in converter.config.values() for v in keys.values()), r"{(\w+)}"),
            # Every converter is called with the number of layers.
            "arguments": {"layers"},
        }
        for key, names in used.items():
            for fact in sorted(names - known - (set(described.reals) if key == "config" else set())):
                yield ("converters", number, key), fact


def _names(texts: Iterable[object], pattern: str = r"[^ *]+") -> set[str]:
    """Return the names in formulas (or what `pattern` finds), without the numbers."""
    found = {name for text in texts for name in re.findall(pattern, str(text))}
    return {name for name in found if not name.isdigit()}
