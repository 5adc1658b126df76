"""The lock of Debian packages: made by apt, kept until it is moved forward."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import yaml

from ftbuild.architecture import Architecture
from ftbuild.config.debian import SETS, DebianLock, DebianPackages, LockedDebian, LockedPackage, PackageSet
from ftbuild.config.schema import Config
from ftbuild.host.files import write_atomic
from ftbuild.sources import downloads
from ftbuild.sources.debian import apt, archive, left_out, pinned
from ftbuild.sources.debian.apt import Apt
from ftbuild.sources.debian.pinned import locked, requested
from ftbuild.sources.downloads import Download
from ftbuild.text.reporter import Reporter

_HEADER = """\
# Written by `invoke lock` from bases.yaml and Debian's indexes. Do not edit: the packages of a base are
# compared with this file. `invoke lock --upgrade` moves it forward to today's packages and security updates.
"""


def write(config: Config, *, upgrade: bool = False, report: Reporter = print) -> None:
    """Resolve every base that the lock lacks or has for another list; with `upgrade`, every base.

    Raises HostError where that needs an index which cannot be read.
    """
    made = _of_others(config)
    for name, wanted in requested(config).items():
        kept = config.debian_lock.bases.get(name)
        if kept and pinned.is_current(config, name, kept) and not upgrade:
            made[name] = kept
            continue
        made[name] = resolve(wanted, config.bases.bases[name].architecture, report)
        report(f"base {name}: {len(made[name].every())} Debian packages of {made[name].snapshot}")
        for line in changes(kept, made[name]) if kept else ():
            report(f"base {name}: {line}")
    if made != config.debian_lock.bases:
        write_atomic(config.debian_lock_file, text(DebianLock(bases=made)))


def _of_others(config: Config) -> dict[str, LockedDebian]:
    """Return the bases that another configuration has in a lock that is shared by a link."""
    if config.debian_lock_file.parent == config.folder:
        return {}
    ours = requested(config)
    return {name: locked for name, locked in config.debian_lock.bases.items() if name not in ours}


def resolve(wanted: DebianPackages, architecture: Architecture, report: Reporter) -> LockedDebian:
    """Return what apt installs today for each set of packages."""
    time = archive.now()
    names: Mapping[str, tuple[str, ...]] = {str(name): found for name, found in wanted.packages.items()}
    with apt.indexes(wanted, architecture, report=report) as index:
        system = index.resolve(_system(index))
        without = _without(wanted, index, {*system, *names.get("serving", ())}, report)
        stand_in = left_out.status(without)
        whole: dict[PackageSet, dict[str, LockedPackage]] = {"os": system}
        for name, below in SETS.items():
            if below:
                installed = stand_in if name in left_out.SETS else ""
                whole[name] = index.resolve({*whole[below], *names.get(name, ())}, installed)
    sets = {
        name: tuple(str(p) for p in found.values() if not (below := SETS[name]) or p.name not in whole[below])
        for name, found in whole.items()
    }
    return LockedDebian(
        snapshot=time,
        requested=wanted,
        sets={name: found for name, found in sets.items() if found},
        without=without,
    )


def _without(
    wanted: DebianPackages, index: Apt, serving: Collection[str], report: Reporter
) -> dict[str, str]:
    """Return those of the packages to do without that images would get, and the version of each."""
    if not wanted.without:
        return {}
    drawn = index.resolve(serving)
    for name in wanted.without:
        if name not in drawn:
            report(f"Debian {wanted.suite}: nothing in the image depends on {name}, which it does without")
    return {name: index.version(name) for name in sorted(wanted.without) if name in drawn}


def fetch_bases(
    config: Config,
    bases: Collection[str],
    cache: Path,
    *,
    ca: Path | None = None,
    report: Reporter = print,
) -> list[Download]:
    """Bring the locked packages of some bases into the store; return them."""
    local = [name for name in bases if name in requested(config)]
    wanted = [download for name in local for download in archive.downloads(locked(config, name))]
    downloads.fetch_all(wanted, cache, report, ca=ca)
    return wanted


def changes(old: LockedDebian, new: LockedDebian) -> Iterator[str]:
    """Yield a line for each package that another lock has added, removed or moved."""
    before = {package.name: package.version for package in old.every()}
    after = {package.name: package.version for package in new.every()}
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}"


def text(lock: DebianLock) -> str:
    """Return the lock as YAML, with a line for each package."""
    return _HEADER + "bases:\n" + "".join(_base(name, base) for name, base in sorted(lock.bases.items()))


def _base(name: str, base: LockedDebian) -> str:
    head = {
        "snapshot": base.snapshot,
        "requested": base.requested.model_dump(mode="json"),
        **({"without": dict(base.without)} if base.without else {}),
    }
    lines = [f"  {name}:", *(f"    {line}" for line in yaml.safe_dump(head, sort_keys=False).splitlines())]
    lines.append("    sets:")
    for set_name in filter(base.sets.get, SETS):
        lines.append(f"      {set_name}:")
        lines += [f"      - {line}" for line in base.sets[set_name]]
    return "\n".join(lines) + "\n"


def _system(index: Apt) -> set[str]:
    """Return what debootstrap's variant minbase installs, without dependencies (its script debian-common)."""
    every = list(index.available())
    names = {p["Package"] for p in every if p.get("Priority") == "required" or p.get("Essential") == "yes"}
    # Bookworm's packages need a merged /usr, which debootstrap makes itself; apt would take usrmerge.
    merged = {"usr-is-merged" for p in every if p["Package"] in names and "usrmerge" in p.get("Depends", "")}
    return {*names, *merged, "apt"}
