"""Tables that the configuration decides: `python -m tests.unit.docs.tables` prints them."""

from __future__ import annotations

from ftbuild.config import loader
from ftbuild.config.families import Family
from ftbuild.config.schema import Config
from testing import ROOT


def models(config: Config) -> str:
    """Return the table of the README with the models of each release."""
    families = config.models.families
    header = ["Triton", *(family.title or name for name, family in families.items())]
    rows = [
        [release, *(_served(family, config.version(release, "ft")) for family in families.values())]
        for release in config.sources.releases
    ]
    lines = [f"| {' | '.join(row)} |\n" for row in [header, *rows]]
    return "".join([lines[0], "|---" * len(header) + "|\n", *lines[1:]])


def _served(family: Family, version: str) -> str:
    if family.converter(version):
        return "yes"
    return "original JAX checkpoint only" if family.converter(version, "jax") else "no"


if __name__ == "__main__":
    print(models(loader.load(ROOT / "buildcfg")), end="")
