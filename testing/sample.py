"""Commands on the sample stack, and changes to a copy of its configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ftbuild.cli.selection import Selection, plans
from ftbuild.config import loader
from ftbuild.plan import Plan
from testing import ROOT

SAMPLE = ROOT / "buildcfg" / "sample"
Invoke = Callable[..., "subprocess.CompletedProcess[str]"]
Derive = Callable[..., str]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "invoke", *arguments]


def environment(work: Path, **extra: str) -> dict[str, str]:
    return {**os.environ, "FTBUILD_WORK": str(work), "PYTHONUNBUFFERED": "1", **extra}


def build_arguments(folder: Path, *more: str) -> tuple[str, ...]:
    return ("build", "--config", str(folder), "--sm", "80", "--triton", "22.12", "--progress", "plain", *more)


def sample_plan(folder: Path = SAMPLE, sm: str = "80") -> Plan:
    (plan,) = plans(loader.load(folder), Selection(folder, ["22.12"], [sm]))
    return plan


def copy_of_sample(parent: Path) -> Path:
    """Copy the sample configuration with its patches below `parent`, for a test to change."""
    folder = parent / "buildcfg"
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "sample" / "patches", parent / "patches")
    for file in SAMPLE.glob("*.yaml"):
        text = file.read_text().replace("../../sample/patches", "../patches").replace("../../", f"{ROOT}/")
        (folder / file.name).write_text(text)
    return folder


def only_gpt(folder: Path, **changed: str) -> None:
    """Remove every family but GPT from a copied configuration, and change values of models.yaml."""
    file = folder / "models.yaml"
    text = file.read_text()
    text = text[: text.index("  gptj:")]
    for key, value in changed.items():
        text = re.sub(rf"^{key}: .*", f"{key}: {value}", text, flags=re.M)
    file.write_text(text)


def add_patch(folder: Path, component: str, name: str, diff: str) -> None:
    """Append a patch to the series of a copied sample configuration."""
    header = "Description: made by a test\nAuthor: ftbuild\nForwarded: no\nLast-Update: 2026-01-01\n\n"
    series = folder.parent / "patches" / component
    (series / name).write_text(header + diff)
    with (series / "series").open("a") as file:
        file.write(f"{name}\n")
    ranges = folder / "patches.yaml"
    lines = ranges.read_text().splitlines()
    at = lines.index(f"  {component}:") + 1
    ranges.write_text("\n".join([*lines[:at], f'    "{name}": {{versions: ">=1"}}', *lines[at:]]) + "\n")
