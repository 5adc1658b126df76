"""Mutated configurations, and what ftbuild makes of them: for a property test, and to repeat one by its seed.

    FTBUILD_FUZZ=10 python -m pytest -s tests/unit/config/test_mutations.py

tries mutations of random seeds for ten minutes; `python -m testing.configurations SEED...` repeats some.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

from ftbuild import matrix, proven
from ftbuild.build import definitions, os_layer
from ftbuild.build.machine import Host
from ftbuild.cli import explain
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.matrix import Cell
from ftbuild.models import converters, weights
from ftbuild.plan import Revision
from ftbuild.planning import make_plan
from ftbuild.sources import fetch
from ftbuild.sources.bundle import MANIFEST, read_bundle
from ftbuild.sources.patches import series
from testing import ROOT, mutations
from testing.outcomes import Outcome, repeat, run_in_process, timed

REVISION = Revision("a" * 40, "2026-01-01T00:00:00+00:00")
# Neither an engine nor a network is there, so that no command line can do more than plan.
ENVIRONMENT = {
    "DOCKER_HOST": "unix:///nowhere",
    "https_proxy": "http://127.0.0.1:9",
    "PATH": os.environ["PATH"],
}
COMMANDS = (
    ("matrix",), ("matrix", "--format", "json"), ("build", "--dry-run"),
    ("build", "--dry-run", "--format", "json"), ("unittest", "--dry-run"), ("dev.ci", "--dry-run"),
    ("build",), ("verify",), ("lock", "--check"),
)  # fmt: skip
OPTIONS = (
    "--sm", "--triton", "--cell", "--base", "--config", "--jobs", "--format", "--ca", "--builder",
    "--progress", "--sources", "--layer-cache", "--rebuild", "--dry-run", "--registry", "--cron",
    "--cpu-runner", "--help",
)  # fmt: skip
VALUES = (
    "80", "8.6", "sm_86", "80,86", "80_90", "22.12", "22.03", "22.12-*", "22.12-sm80", "*", "open", "ngc",
    "json", "human", "github", "4", "tty", "/nowhere", "registry.invalid/group/project", "0 3 * * *", "[",
    "[!", "*" * 50,
)  # fmt: skip


class Stack:
    """A copy of a configuration, its series and its recipe, in which one thing at a time is changed."""

    def __init__(self, folder: Path, source: Path, patches: Path) -> None:
        self.folder = folder / "buildcfg"
        self.root = folder
        self.folder.mkdir(parents=True)
        shutil.copytree(patches, folder / "patches")
        shutil.copytree(ROOT / "dockerfiles", folder / "dockerfiles")
        for file in source.glob("*.yaml"):
            text = file.read_text().replace(os.path.relpath(patches, source), "../patches")
            for up in ("../../", "../"):
                for copied in ("patches", "dockerfiles"):
                    text = text.replace(f"{up}{copied}", f"@{copied}")
                text = text.replace(up, f"{ROOT}/")
            text = text.replace("@patches", "../patches").replace("@dockerfiles", "../dockerfiles")
            (self.folder / file.name).write_text(text)
        self.files = sorted(path for path in folder.rglob("*") if path.is_file())
        self.original = {path: path.read_bytes() for path in self.files}
        loader.load(self.folder)  # the premise

    @contextlib.contextmanager
    def changed(self, path: Path, content: bytes | None) -> Iterator[None]:
        """Give a file another content for a while; None: remove it."""
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        try:
            yield
        finally:
            if path in self.original:
                path.write_bytes(self.original[path])
            else:
                path.unlink()


@contextlib.contextmanager
def stacks() -> Iterator[list[Stack]]:
    """Yield copies of the real and of the sample configuration."""
    with tempfile.TemporaryDirectory(prefix="ftbuild-mutations-") as scratch:
        yield [
            Stack(Path(scratch, "real"), ROOT / "buildcfg", ROOT / "patches"),
            Stack(Path(scratch, "sample"), ROOT / "buildcfg" / "sample", ROOT / "sample" / "patches"),
        ]


def examine(seed: int, found: list[Stack]) -> Outcome:
    """Make the change of a seed and plan with it; any other exception than FtbuildError passes through."""
    rng = random.Random(seed)
    stack = rng.choice(found)
    kind = rng.choices(("configuration", "file", "command line", "bundle"), (57, 25, 15, 3))[0]
    if kind == "command line":
        return _command_line(seed, rng, stack)
    if kind == "bundle":
        return _bundle(seed, rng, stack)
    path, content, change = (_yaml if kind == "configuration" else _file)(rng, stack)
    with stack.changed(path, content):
        return timed(seed, kind, change, lambda: plan_everything(stack.folder))


def plan_everything(folder: Path) -> None:
    """Do all that a configuration decides and that needs neither network nor engine."""
    config = loader.load(folder)
    matrix.select(config)
    for base in config.bases.bases:
        table = matrix.select_with_excluded(config, bases=[base])
        proven.as_json(config, table)
        _plan(config, table.cells[-1])
    series.idle(config)
    _read_pins(config)
    _convert(config)


def _plan(config: Config, cell: Cell) -> None:
    plan = make_plan(config, cell, REVISION)
    explain.plan(plan)
    json.dumps(plan.as_dict())
    json.dumps(definitions.cell(plan, Host(jobs=1)))
    if plan.base.debian:
        json.dumps(definitions.local_base(plan, os_layer.name(plan.base.debian), Host(jobs=1)))


def _read_pins(config: Config) -> None:
    for repository in config.sources.repositories:
        list(fetch.wanted_objects(config, repository, list(config.matrix.releases)))


def _convert(config: Config) -> None:
    for family in config.models.families.values():
        for converter in family.converters:
            facts = dict.fromkeys({*family.checkpoint.facts, *converter.fixed}, 2)
            weights.expected(converter, facts, 1, converter.dtypes[0])
            converters.command_line(converter, checkpoint="/c", out="/o", tensor_para=1, layers=2)


def _yaml(rng: random.Random, stack: Stack) -> tuple[Path, bytes, str]:
    path = rng.choice([path for path in stack.files if path.suffix == ".yaml"])
    text = stack.original[path].decode()
    kind = rng.random()
    if kind < 0.65:
        data = mutations.data(rng, _loaded(text))
        content = _dumped(data, allow_unicode=rng.random() < 0.5).encode()
    else:
        content = _spoilt(rng, text, 0.6)
    return path, content, f"{path}: {_difference(text, content)}"


def _file(rng: random.Random, stack: Stack) -> tuple[Path, bytes | None, str]:
    path = rng.choice([path for path in stack.files if path.suffix != ".yaml"])
    if rng.random() < 0.3:
        path = rng.choice([path for path in stack.files if path.name == "series"])
    kind = rng.random()
    if kind < 0.05:
        return path, None, f"{path}: removed"
    if kind < 0.1:
        stray = path.with_name(rng.choice(("series~", "0999-x.patch", ".hidden", "\udcff", "README")))
        return stray, b"x", f"{stray!r}: added"
    text = stack.original[path].decode()
    content = _spoilt(rng, text, 0.7)
    return path, content, f"{path}: {_difference(text, content)}"


def _spoilt(rng: random.Random, text: str, as_lines: float) -> bytes:
    if rng.random() < as_lines:
        return mutations.lines(rng, text).encode("utf-8", "surrogatepass")
    return mutations.raw(rng, text)


def _dumped(data: object, *, allow_unicode: bool = True) -> str:
    # By libyaml: some of these files have thousands of lines.
    return str(yaml.dump(data, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=allow_unicode))


@cache  # Each text is changed many times, and a mutation works on a copy.
def _loaded(text: str) -> object:
    return yaml.load(text, Loader=yaml.CSafeLoader)


def _difference(text: str, content: bytes) -> str:
    """Return the lines that a change adds, in short."""
    before = _forms(text)
    lines = content.decode("utf-8", "replace").splitlines()
    added = [f"+{line[:120]}" for line in lines if line not in before]
    return f"{len(lines)} lines\n" + "\n".join(added[:6])


@cache
def _forms(text: str) -> frozenset[str]:
    """Return the lines of a text, as they are and as YAML writes them."""
    found = {*text.splitlines(), *(line.strip() for line in _dumped(text).splitlines())}
    if ":" in text:
        with contextlib.suppress(yaml.YAMLError):
            found.update(_dumped(_loaded(text)).splitlines())
    return frozenset(found)


def _bundle(seed: int, rng: random.Random, stack: Stack) -> Outcome:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        manifest = {"format": 1, "repositories": ["ft", "backend"]}
        text = json.dumps(mutations.data(rng, manifest) if rng.random() < 0.5 else manifest).encode()
        for name, content in ((MANIFEST, text), ("ft.pack", b"PACK" + bytes(60)), ("backend.pack", b"")):
            entry = tarfile.TarInfo(name)
            entry.type = rng.choice((tarfile.REGTYPE,) * 8 + (tarfile.SYMTYPE, tarfile.LNKTYPE, b"S", b"x"))
            entry.linkname = rng.choice((name, MANIFEST, "../x", "/etc/passwd"))
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    content = made.getvalue()
    if rng.random() < 0.7:
        content = mutations.raw(rng, content.decode("latin-1"))
    file = stack.root / "bundle.tar"
    with stack.changed(file, content):
        config = loader.load(stack.folder)
        quiet = lambda message: None  # noqa: E731
        return timed(
            seed,
            "bundle",
            f"{file}: {len(content)} bytes",
            lambda: read_bundle(config, file, stack.root / "cache", report=quiet),
        )


def _command_line(seed: int, rng: random.Random, stack: Stack) -> Outcome:
    words = ["invoke", *rng.choice(COMMANDS), "--config", str(stack.folder)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = rng.choice(VALUES) if rng.random() < 0.6 else rng.choice(mutations.TEXTS)
        value = mutations.typo(rng, value) if rng.random() < 0.3 else value
        option = rng.choice(OPTIONS)
        words += rng.choice(([option, value], [option], [f"{option}={value}"], [value]))
    words = [word.replace("\0", "") for word in words]
    settings = dict(ENVIRONMENT)
    if rng.random() < 0.2:
        name = rng.choice(("SOURCE_DATE_EPOCH", "SSL_CERT_FILE", "CCACHE_REMOTE_STORAGE", "DOCKER_HOST"))
        settings[name] = rng.choice(mutations.TEXTS).replace("\0", "")
    folders = {f"FTBUILD_{name}": str(stack.root / name.lower()) for name in ("WORK", "CACHE")}
    output = io.StringIO()
    start = time.process_time()
    code = run_in_process(words, {**settings, **folders}, output)
    seconds = time.process_time() - start
    return Outcome(
        seed, "command line", " ".join(map(repr, words[1:])), code, output.getvalue() if code else "", seconds
    )


def main(seeds: list[str]) -> None:
    """Print what becomes of the changes of some seeds."""
    with stacks() as found:
        repeat(seeds, lambda seed: examine(seed, found))


if __name__ == "__main__":
    main(sys.argv[1:])
