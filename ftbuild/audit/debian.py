"""The Debian packages of local bases: security updates that the lock lacks, and its age."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

from ftbuild.audit.debian_versions import key
from ftbuild.config.debian import LockedDebian
from ftbuild.config.schema import Config
from ftbuild.doctor import network
from ftbuild.errors import HostError, PinError
from ftbuild.sources.debian import apt, pinned
from ftbuild.sources.lock import RELOCK
from ftbuild.text.reporter import Reporter
from ftbuild.text.results import CheckResult, State

SUBJECT = "debian"
OLD_DAYS = 90
_PATIENCE_SECONDS = 120.0
_SHOWN = 12
UPGRADE = "invoke lock --upgrade"


def ask(config: Config, report: Reporter) -> Callable[[], Iterator[CheckResult]]:
    """Start reading the security indexes of every local base; the returned function waits for them."""
    running = network.start({name: partial(_look, config, name, report) for name in pinned.requested(config)})

    def collect() -> Iterator[CheckResult]:
        for name, looked in running.items():
            try:
                yield from looked.result(_PATIENCE_SECONDS)
            except TimeoutError:
                yield CheckResult(
                    f"{SUBJECT} {name}: security updates",
                    State.WARN,
                    f"no answer within {_PATIENCE_SECONDS:g} s",
                )

    return collect


def age(name: str, locked: LockedDebian, now: datetime) -> CheckResult:
    """Return how old a lock is."""
    days = (now - locked.time).days
    old = days >= OLD_DAYS
    detail = f"{days} days: the archive of {locked.time:%Y-%m-%d}" + (f"; {UPGRADE}" if old else "")
    return CheckResult(f"{SUBJECT} {name}: age of the lock", State.WARN if old else State.OK, detail)


def lacking(locked: LockedDebian, offered: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the locked packages that `offered` (name -> version) has in a later version: name -> both."""
    return {
        package.name: (package.version, offered[package.name])
        for package in locked.every()
        if package.name in offered and key(package.version) < key(offered[package.name])
    }


def updates(name: str, found: Mapping[str, tuple[str, str]]) -> CheckResult:
    """Return what the lock of a base lacks."""
    what = f"{SUBJECT} {name}: security updates"
    if not found:
        return CheckResult(what, State.OK, "the lock has them all")
    listed = [f"{package} {old} -> {new}" for package, (old, new) in sorted(found.items())]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    detail = f"the lock lacks {len(listed)}: {', '.join(listed[:_SHOWN])}{more}; {UPGRADE}"
    return CheckResult(what, State.WARN, detail)


def _look(config: Config, name: str, report: Reporter) -> list[CheckResult]:
    try:
        locked = pinned.locked(config, name)
    except PinError as unlocked:
        return [CheckResult(f"{SUBJECT} {name}", State.FAIL, f"{unlocked.what}; {RELOCK}")]
    aged = age(name, locked, datetime.now(UTC))
    try:
        architecture = config.bases.bases[name].architecture
        with apt.indexes(locked.requested, architecture, ["debian-security"], report=report) as index:
            offered: dict[str, list[str]] = {}
            for package in index.available():
                offered.setdefault(package["Package"], []).append(package["Version"])
            wanted = {package.name for package in locked.every()} & offered.keys()
            newest = {package: max(offered[package], key=key) for package in wanted}
            return [aged, updates(name, lacking(locked, newest))]
    except (HostError, ValueError) as silent:  # ValueError: a version that is none
        what = silent.what if isinstance(silent, HostError) else str(silent)
        problem = f"cannot be looked up: {what}"
        return [aged, CheckResult(f"{SUBJECT} {name}: security updates", State.WARN, problem)]
