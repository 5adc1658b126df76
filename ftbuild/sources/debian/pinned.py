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
    return found


def check(config: Config) -> None:
    """Raise PinError unless every local base is locked for what bases.yaml names."""
    for name in requested(config):
        locked(config, name)


def _unlocked(config: Config, what: str) -> PinError:
    return PinError(what, where=str(config.debian_lock_file), hint=RELOCK)
