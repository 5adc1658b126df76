"""Commands on the sample stack, and changes to a copy of its configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from ftbuild.cli.selection import Selection, plans
from ftbuild.config import loader
from ftbuild.plan import Plan
from testing import ROOT

SAMPLE = ROOT / "buildcfg" / "sample"
SMALL_BASE = ROOT / "testing" / "small-base.Dockerfile"
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


def copy_of_sample(parent: Path, image: str = "") -> Path:
    """Copy the sample configuration and its patches below `parent`, for a test to change.

    With an `image`, its images get that name, and builds leave those of the sample stack alone.
    """
    folder = parent / "buildcfg"
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "sample" / "patches", parent / "patches")
    for file in SAMPLE.glob("*.yaml"):
        text = file.read_text().replace("../../sample/patches", "../patches").replace("../../", f"{ROOT}/")
        (folder / file.name).write_text(text)
    if image:
        rename_images(folder, image)
    return folder


def copy_of_real(parent: Path, image: str) -> Path:
    """Copy the configuration of the real sources below `parent`, with another name for its images."""
    folder = parent / "buildcfg"
    shutil.copytree(ROOT / "buildcfg", folder, ignore=shutil.ignore_patterns(SAMPLE.name))
    for named in ("dockerfiles", "patches", "ftbuild"):
        (parent / named).symlink_to(ROOT / named)
    rename_images(folder, image)
    return folder


def rename_images(folder: Path, image: str) -> None:
    """Give the images of a copied configuration another name."""
    matrix = folder / "matrix.yaml"
    matrix.write_text(re.sub(r"(?m)^image: .*$", f"image: {image}", matrix.read_text()))


def use_small_base(folder: Path) -> None:
    """Let a copied configuration stand on a base of a quarter of the size; see SMALL_BASE.

    Of Debian's packages it locks the system's alone: the others are in the images that it is made from. The
    copy has no other base, and only the releases that stand on it.
    """
    base = sample_plan().base
    assert base.debian is not None
    file = folder / "bases.yaml"
    content = yaml.safe_load(file.read_text())
    requested = {**content["bases"][base.name]["local"]["debian"], "packages": {}}
    system = {
        "snapshot": base.debian.snapshot,
        "requested": requested,
        "sets": {"os": list(base.debian.sets["os"])},
    }
    (folder / "debian.lock.yaml").write_text(yaml.safe_dump({"bases": {base.name: system}}, width=1000))
    small = {
        "dockerfile": str(SMALL_BASE),
        "debian": requested,
        "arguments": {"SERVING": base.serving, "DEVEL": base.devel},
    }
    content["bases"] = {base.name: {**content["bases"][base.name], "local": small}}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    matrix = folder / "matrix.yaml"
    described = yaml.safe_load(matrix.read_text())
    described["releases"] = {
        name: release for name, release in described["releases"].items() if release["base"] == base.name
    }
    matrix.write_text(yaml.safe_dump(described, sort_keys=False))


def only_gpt(folder: Path, **changed: str) -> None:
    """Leave one family, served in two ways, in a copied configuration, and change values of models.yaml."""
    file = folder / "models.yaml"
    content = yaml.safe_load(file.read_text())
    gpt = content["families"]["gpt"]
    del gpt["streams"]
    for converter in gpt["converters"]:
        converter["dtypes"] = ["fp32"]
    file.write_text(yaml.safe_dump({**content, "families": {"gpt": gpt}, **changed}, sort_keys=False))


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


def wrong_token() -> str:
    """Return a diff that lets the miniature always take the second best token; no compiler cache has it."""
    return f"""\
--- a/src/fastertransformer/layers/DynamicDecodeLayer.cc
+++ b/src/fastertransformer/layers/DynamicDecodeLayer.cc
@@ -56,2 +56,2 @@
-    const uint32_t token = order[param_.beam_width > 1 ? beam_ : draw(probabilities, sum)];
+    const uint32_t token = order[1 + 0 * {time.time_ns()}];
     const double log_prob = logits[token] - all;
"""
