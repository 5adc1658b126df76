"""Helpers that tests and benchmarks share: the sample stack, registries, faults, recorded runs."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = ROOT / "dockerfiles" / "steps"
PRODUCTS = ("ftbuild", "ftserve")


def sources() -> list[Path]:
    """Return the modules of both products."""
    files = (file for name in PRODUCTS for file in (ROOT / name).rglob("*.py"))
    # What pip leaves of a package that it builds.
    return sorted(file for file in files if "build/lib/" not in file.as_posix())
