"""Tables of the README that the configuration decides."""

from __future__ import annotations

from collections.abc import Iterable

from ftbuild import matrix
from ftbuild.config.bases import BaseConfig
from ftbuild.config.families import Family
from ftbuild.config.schema import Config
from ftbuild.matrix import Cell
from ftbuild.proven import NEVER, NEVER_BUILT, evidence

RAN, BUILT, POSSIBLE, IMPOSSIBLE = "●", "○", "·", " "


def releases(config: Config) -> str:
    """Return the grid of releases and bases by SMs: what ran, what was built, what can be."""
    sms = sorted(config.matrix.sms)
    cells = {(c.triton, c.base, int(c.sms[0])): c for c in matrix.overview(config).cells if len(c.sms) == 1}
    header = ["Triton", "FasterTransformer", "base", "driver from", *map(str, sms)]
    rows = [
        [
            release,
            config.version(release, "ft"),
            f"`{name}`",
            base.driver or config.matrix.releases[release].driver,
            *(_known(config, cells.get((release, name, int(sm)))) for sm in sms),
        ]
        for release in config.sources.releases
        for name, base in _own_first(config, release)
    ]
    return _table(header, rows, centred=len(sms))


def models(config: Config) -> str:
    """Return the table with the models of each release."""
    families = config.models.families
    header = ["Triton", *(family.title or name for name, family in families.items())]
    rows = [
        [release, *(_served(family, config.version(release, "ft")) for family in families.values())]
        for release in config.sources.releases
    ]
    return _table(header, rows)


def _own_first(config: Config, release: str) -> list[tuple[str, BaseConfig]]:
    own = config.matrix.releases[release].base
    found = [(name, base) for name, base in config.bases.bases.items() if release in base.releases]
    return sorted(found, key=lambda entry: entry[0] != own)


def _known(config: Config, cell: Cell | None) -> str:
    if cell is None:
        return IMPOSSIBLE
    (known,) = evidence(config, cell).values()
    return {NEVER_BUILT: POSSIBLE, NEVER: BUILT}.get(known, RAN)


def _served(family: Family, version: str) -> str:
    if family.converter(version):
        return "yes"
    return "original JAX checkpoint only" if family.converter(version, "jax") else "no"


def _table(header: list[str], rows: Iterable[list[str]], centred: int = 0) -> str:
    lines = [f"| {' | '.join(row)} |\n" for row in [header, *rows]]
    rule = "|---" * (len(header) - centred) + "|:-:" * centred + "|\n"
    return "".join([lines[0], rule, *lines[1:]])
