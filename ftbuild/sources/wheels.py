"""The wheels of requirements files: locked to their hashes, and brought into the store of downloaded files.

pip finds and downloads them, so that indexes, credentials, proxies and CAs are those that pip is configured
with, by environment, pip.conf and netrc. It runs for the Python of a base, not for that of this process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import Version

from ftbuild.config.bases import BaseConfig
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, PinError
from ftbuild.host import disk, shell
from ftbuild.host.files import workplace, write_atomic
from ftbuild.host.shell import CommandFailed
from ftbuild.sources import downloads, requirements
from ftbuild.sources.downloads import Download
from ftbuild.sources.requirements import Requirement, pip_options
from ftbuild.text.reporter import Reporter

_PIP = (sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check")
_HINT = "check PIP_INDEX_URL, network, proxy and CA (invoke doctor), or use --sources with an invoke bundle"
_ERROR_LINES = 8


def fetch(
    wanted: Iterable[Requirement],
    options: Sequence[str],
    cache: Path,
    *,
    ca: Path | None = None,
    report: Reporter = print,
) -> None:
    """Bring the wheels of locked requirements into the store; `options` are those of `pip_options`.

    Needs no network for what the store has. Raises PinError when no index has a wheel with the locked hash.
    """
    absent = {r.sha256: r for r in wanted if not downloads.held(r.sha256, cache)}
    if not absent:
        return
    cache.mkdir(parents=True, exist_ok=True)
    with disk.report_full(cache), workplace(cache / "wheels") as scratch:
        folder = scratch / "wheels"
        report(f"fetching {len(absent)} wheels: {', '.join(r.name for r in absent.values())}")
        without_copies = ("--no-cache-dir", "--progress-bar", "off", "--dest", str(folder))
        _pip(["download", *without_copies, *options], _listing(absent.values()), scratch, ca)
        for file in sorted(folder.iterdir()):
            downloads.adopt(file, downloads.sha256_of(file), cache, report)


def fetch_bases(
    config: Config,
    bases: Collection[str],
    cache: Path,
    *,
    ca: Path | None = None,
    report: Reporter = print,
) -> list[Download]:
    """Bring the wheels of all stages of some bases into the store; return them."""
    found: dict[str, Download] = {}
    for base in (config.bases.bases[name] for name in bases):
        for relative in base.all_requirements():
            locked = requirements.read(config.path(relative)).locked()
            fetch(locked, pip_options(base), cache, ca=ca, report=report)
            found |= {wanted.sha256: Download(wanted.wheel, wanted.sha256) for wanted in locked}
    return list(found.values())


def lock(config: Config, *, upgrade: bool = False, report: Reporter = print) -> list[Path]:
    """Add its wheel and the hash to each requirement that has none; return the files changed.

    With `upgrade`, look for every wheel anew: an index may have a newer build of a version, a base another
    Python. Versions stay, since people decide them; newer ones are reported.

    Raises PinError when an index has no wheel of a version, ConfigError when two bases that share a file need
    different wheels.
    """
    changed = []
    for file, bases in files(config).items():
        read = requirements.read(file)
        wanted = [replace(r, wheel="", sha256="") for r in read.requirements if upgrade or not r.sha256]
        if not wanted:
            continue
        report(f"{file.name}: looking for the wheels of {len(wanted)} packages")
        found = _for_all(file, bases, wanted)
        made = [found.get(canonicalize_name(r.name), r) for r in read.requirements]
        for old, new in zip(read.requirements, made, strict=True):
            if old.wheel and old != new:
                report(f"{file.name}: {old.wheel} -> {new.wheel}")
        if upgrade:
            _report_newer(file, bases, read.requirements, report)
        if made != list(read.requirements):
            write_atomic(file, read.render(made))
            changed.append(file)
    return changed


def _report_newer(
    file: Path, bases: Collection[BaseConfig], wanted: Collection[Requirement], report: Reporter
) -> None:
    """Report the newest version with a wheel for every base, of each package of which that is another one."""
    newest: dict[str, Version] = {}
    for options in dict.fromkeys(pip_options(base) for base in bases):
        for item in _report("".join(f"{r.name}\n" for r in wanted), options):
            name, version = canonicalize_name(item["metadata"]["name"]), Version(item["metadata"]["version"])
            newest[name] = min(version, newest.get(name, version))
    latest = [(requirement, newest[canonicalize_name(requirement.name)]) for requirement in wanted]
    newer = [f"{r.name} {version}" for r, version in latest if version > Version(r.version)]
    if newer:
        report(f"{file.name}: versions stay as they are written there; the index has {', '.join(newer)}")


def check(config: Config, *, report: Reporter = print) -> None:
    """Raise PinError unless every requirement is locked, and the index still has exactly its wheel."""
    for file, bases in files(config).items():
        locked = requirements.read(file).locked()
        report(f"{file.name}: looking for {len(locked)} wheels")
        _for_all(file, bases, locked)


def files(config: Config) -> dict[Path, list[BaseConfig]]:
    """Return each requirements file of the configuration, with the bases that it is for."""
    found: dict[Path, list[BaseConfig]] = {}
    for base in config.bases.bases.values():
        for relative in base.all_requirements():
            found.setdefault(config.path(relative), []).append(base)
    return found


def _for_all(
    file: Path, bases: Collection[BaseConfig], wanted: Collection[Requirement]
) -> dict[str, Requirement]:
    """Return the wheels of a file by name, which are the same for every base."""
    targets = dict.fromkeys(pip_options(base) for base in bases)
    found = [_resolve(wanted, options) for options in targets] if wanted else [{}]
    for name in found[0]:
        names = sorted({other[name].wheel for other in found})
        if len(names) > 1:
            raise ConfigError(
                f"bases that share a requirements file need different wheels: {', '.join(names)}",
                where=str(file),
                hint="give each base a file of its own in bases.yaml",
            )
    return found[0]


def _resolve(wanted: Collection[Requirement], options: Sequence[str]) -> dict[str, Requirement]:
    """Return what pip would install, by name."""
    known: dict[str, Requirement] = {canonicalize_name(r.name): r for r in wanted}
    found: dict[str, Requirement] = {}
    for item in _report(_listing(wanted), options):
        name: str = canonicalize_name(item["metadata"]["name"])
        wheel = unquote(urlsplit(item["download_info"]["url"]).path.rpartition("/")[2])
        sha256 = item["download_info"]["archive_info"]["hashes"]["sha256"]
        found[name] = replace(known[name], wheel=wheel, sha256=sha256)
    return found


def _listing(wanted: Iterable[Requirement]) -> str:
    """Return a requirements file, by which pip demands the hashes if they are known."""
    return "".join(requirement.render() for requirement in wanted)


def _report(listing: str, options: Sequence[str]) -> list[dict[str, Any]]:
    """Return what pip would install, without downloading what the index describes.

    pip's installation report, format 1: https://pip.pypa.io/en/stable/reference/installation-report/
    """
    with TemporaryDirectory(prefix="ftbuild-") as scratch:
        dry = ("install", "--dry-run", "--ignore-installed", "--quiet", "--target", scratch, "--report", "-")
        found: list[dict[str, Any]] = json.loads(_pip([*dry, *options], listing, scratch))["install"]
    return found


def _pip(arguments: Sequence[str], listing: str, scratch: str | Path, ca: Path | None = None) -> str:
    """Run pip on a requirements file; PinError with pip's own errors."""
    file = Path(scratch, "requirements.txt")
    file.write_text(listing)
    env = {"PIP_CERT": str(ca)} if ca else {}
    try:
        return shell.run([*_PIP, *arguments, "--no-deps", "--requirement", str(file)], env=env).stdout
    except CommandFailed as failed:
        raise PinError(
            "\n    ".join(["wheels cannot be fetched", *_errors(failed.result.stderr)]), hint=_HINT
        ) from failed


def _errors(output: str) -> list[str]:
    """Return pip's errors: of its output all from the first one on, without notes on pip itself."""
    lines = [line.strip() for line in output.splitlines()]
    first = next((at for at, line in enumerate(lines) if line.startswith("ERROR:")), -5)
    return [line for line in lines[first:] if line and not line.startswith("[notice]")][:_ERROR_LINES]
