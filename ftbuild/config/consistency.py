"""Contradictions between the files of a buildcfg folder."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ftbuild.config.families import Family
from ftbuild.config.schema import Config


def contradictions(config: Config) -> Iterator[tuple[str, str]]:
    """Yield file and message of every contradiction."""
    known = set(config.matrix.sms)
    for name, release in config.matrix.releases.items():
        for sm in {*release.default_sms, *release.sms.builds, *release.sms.patched} - known:
            yield "matrix.yaml", f"release {name} names SM {sm}, which `sms` does not describe"
        if name not in config.sources.releases:
            yield "sources.yaml", f"release {name} of matrix.yaml has no sources"
    for name, sources in config.sources.releases.items():
        for repository in set(sources) - set(config.sources.repositories):
            yield "sources.yaml", f"release {name} uses repository {repository!r}, which is not described"
    if config.bases.default not in config.bases.bases:
        yield "bases.yaml", f"the default base {config.bases.default!r} is not described"
    for name, base in config.bases.bases.items():
        if (base.image is None) == (base.local is None):
            yield "bases.yaml", f"base {name} needs exactly one of `image` and `local`"
        for missing in set(base.releases) - set(config.matrix.releases):
            yield "bases.yaml", f"base {name} names release {missing}, which matrix.yaml does not describe"
    for component in set(config.patches.ranges) - set(config.sources.repositories):
        yield "patches.yaml", f"component {component!r} is not a repository in sources.yaml"
    for name, family in config.models.families.items():
        if family.served_as not in (None, *config.models.families):
            yield "models.yaml", f"{name} is served as {family.served_as!r}, which is not a family"
        for fact in sorted(_unknown_facts(family)):
            yield "models.yaml", f"{name} uses the fact {fact!r}, which nothing defines"


def _unknown_facts(family: Family) -> set[str]:
    """Return the names that formulas, files and splits use and nothing defines."""
    unknown = set(family.checkpoint.splits) - set(family.checkpoint.facts)
    for converter in family.converters:
        known = set(converter.fixed if converter.format == "jax" else family.checkpoint.facts) | {"gpus"}
        formulas = [*map(str, converter.fixed.values()), *converter.files.values()]
        factors = {factor for formula in formulas for factor in formula.split(" * ")}
        counters = {name for file in converter.files for name in re.findall(r"{(\w+)}", file)}
        used = {*converter.facts, *converter.fixed, *counters, *(f for f in factors if not f.isdigit())}
        unknown |= used - known
    return unknown
