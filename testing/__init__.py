"""Helpers that tests and benchmarks share: the sample stack, registries, faults, recorded runs."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = ROOT / "dockerfiles" / "steps"
