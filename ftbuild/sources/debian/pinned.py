"""What the lock of Debian packages has for a base, for planning: nothing is read or fetched here."""

from __future__ import annotations

from ftbuild.config.debian import DebianPackages, LockedDebian
from ftbuild.config.schema import Config
from ftbuild.errors import PinError
from ftbuild.sources.lock import RELOCK


def requested(config: Config) -> dict[str, DebianPackages]:
    """Return what each local base asks for, by its name."""
    return {name: base.local.debian for name, base in config.bases.bases.items() if base.local}


def locked(config: Config, name: str) -> LockedDebian:
    """Return the packages of a base; PinError when the lock lacks them or was made for another list."""
    found = config.debian_lock.bases.get(name)
    if found is None:
        raise _unlocked(config, f"the Debian packages of base {name} are not in the lock")
    if found.requested != requested(config)[name]:
        raise _unlocked(config, f"base {name} is locked for other Debian packages than bases.yaml names")
    if not is_current(config, name, found):
        locked_for = ", ".join(sorted(found.architectures))
        raise _unlocked(config, f"base {name} is locked for {locked_for}, which bases.yaml does not name")
    return found


def is_current(config: Config, name: str, found: LockedDebian) -> bool:
    """Return whether packages are those that bases.yaml asks for, for the architecture of the base."""
    base = config.bases.bases[name]
    return found.requested == requested(config)[name] and found.architectures <= {base.architecture}


def check(config: Config) -> None:
    """Raise PinError unless every local base is locked for what bases.yaml names."""
    for name in requested(config):
        locked(config, name)


def _unlocked(config: Config, what: str) -> PinError:
    return PinError(what, where=str(config.debian_lock_file), hint=RELOCK)
