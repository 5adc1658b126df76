"""The package of ours that provides the names of packages that images do without.

apt and dpkg would hold a system for broken in which a dependency is not met, and install nothing more in it.
An empty package with `Provides: NAME (= VERSION)` meets it (Debian Policy, 7.5), and what is not there is not
listed either. A user who wants one of the packages installs it all the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from ftbuild.config.debian import LockedDebian, PackageSet

NAME, VERSION, ARCHITECTURE = "ftbuild-without", "1", "all"
# The sets in which it is installed: those of images, and what is made on them.
SETS: tuple[PackageSet, ...] = ("serving", "devel")


def control(without: Mapping[str, str]) -> str:
    """Return its control file (deb-control(5)), for packages by name with the version each would have."""
    provided = ", ".join(f"{name} (= {version})" for name, version in sorted(without.items()))
    return (
        f"Package: {NAME}\nVersion: {VERSION}\nArchitecture: {ARCHITECTURE}\nMaintainer: ftbuild\n"
        f"Provides: {provided}\nDescription: stands for packages that nothing in this image loads\n"
    )


def status(without: Mapping[str, str]) -> str:
    """Return its entry in dpkg's status file; "" without any package."""
    return f"{control(without)}Status: install ok installed\n\n" if without else ""


def listed(locked: LockedDebian, name: PackageSet) -> tuple[str, ...]:
    """Return what dpkg-query lists of it once a set is installed: name, version, architecture; or nothing."""
    return (f"{NAME} {VERSION} {ARCHITECTURE}",) if locked.without and name in SETS else ()
