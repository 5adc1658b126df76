"""Where a record is from: the commit of the checkout, and the measured cells, by input key and image.

Imports little: the inference benchmark runs on machines without the project's own packages.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftbuild.errors import HostError
from ftbuild.host.git import git
from testing import ROOT

# The commit of a copy of the checkout that lacks `.git`, as on a lent machine.
COMMIT = "FTBUILD_COMMIT"
# What the commands at whose start-up the benchmark looks are made of.
PROGRAM = ("ftbuild", "ftserve", "tasks.py")
# Benchmarks write these themselves: they make no other checkout of it.
_WRITTEN = (":!benchmarks/results", ":!benchmarks/README.md")
_DIGITS = 12
_LABELS = ("io.ftbuild.cell", "io.ftbuild.key")


@dataclass(frozen=True)
class Measured:
    """A measured cell: its input key, empty if unknown, and the ids of the images that ran, by product."""

    cell: str
    key: str = ""
    images: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """The checkout, and what it measured.

    `commit` is empty if unknown, `changed` whether files differed from it; `program` is the digest of
    PROGRAM's files, which is what a record without cells measured.
    """

    commit: str
    changed: bool
    program: str
    cells: tuple[Measured, ...] = ()

    @classmethod
    def here(cls, cells: Iterable[Measured] = ()) -> Origin:
        """Return this checkout with the measured cells."""
        commit, changed = checkout(ROOT)
        return cls(commit, changed, program(ROOT), tuple(cells))

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Origin:
        """Return an origin from its plain data."""
        return cls(**{**values, "cells": tuple(Measured(**cell) for cell in values["cells"])})


def checkout(root: Path) -> tuple[str, bool]:
    """Return the commit, and whether files differ from it; of a copy without git what FTBUILD_COMMIT says."""
    trusted = ("-c", f"safe.directory={root}", "-C", str(root))
    try:
        head = git(*trusted, "rev-parse", "HEAD", check=False)
        if head.code or not (root / ".git").exists():  # a repository around the copy is another one
            return os.environ.get(COMMIT, ""), False
        status = git(*trusted, "status", "--porcelain", "--", ".", *_WRITTEN, check=False)
    except HostError:  # no git
        return os.environ.get(COMMIT, ""), False
    return head.stdout.strip(), bool(status.stdout.strip())


def program(root: Path) -> str:
    """Return the digest of PROGRAM's files, by path and content."""
    files = [file for name in PROGRAM for file in (root / name, *(root / name).rglob("*"))]
    made = re.compile(r"__pycache__|.+\.egg-info")
    digest = hashlib.sha256()
    for file in sorted(file for file in files if file.is_file() and not any(map(made.fullmatch, file.parts))):
        digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:_DIGITS]


def labelled(labels: Mapping[str, str], product: str, image: str) -> Measured | None:
    """Return the cell of an image by the labels that a build gives it; None for one that it did not make."""
    cell, key = (labels.get(name, "") for name in _LABELS)
    return Measured(cell, key, {product: image}) if cell else None


def named(text: str) -> Measured:
    """Return the cell that `CELL`, `CELL@KEY` or `CELL@KEY@IMAGE` names, for argparse."""
    cell, *rest = text.split("@", 2)
    if not cell or not all(rest):
        raise argparse.ArgumentTypeError(f"{text!r} is no cell, as 22.12-sm90-open@e51d443926a0 is one")
    key, image = (*rest, "", "")[:2]
    return Measured(cell, key, {"runtime": image} if image else {})


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--cell`, for files that do not say what was measured."""
    described = (
        "what was measured, CELL[@KEY[@IMAGE ID]] (repeatable): without its key the record's age is unknown"
    )
    parser.add_argument("--cell", action="append", default=[], type=named, metavar="CELL@KEY", help=described)
