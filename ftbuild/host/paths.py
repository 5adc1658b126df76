"""Standard places: the folders that variables name, the home of the user, the CA bundle."""

from __future__ import annotations

import os
from pathlib import Path

from ftbuild.errors import ConfigError, HostError

CACHE_VARIABLE = "FTBUILD_CACHE"


def cache_folder() -> Path:
    """Return FTBUILD_CACHE, else `ftbuild` in the user's cache folder (XDG Base Directory Specification).

    Raises ConfigError as `named_folder`, HostError for a user who has no home and names no folder.
    """
    if named := named_folder(CACHE_VARIABLE):
        return named
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if caches.is_absolute():  # any other is to be ignored, by the specification
        return caches / "ftbuild"
    if home := home_folder():
        return home / ".cache" / "ftbuild"
    raise HostError(
        "this user has no home folder, where sources and packages would be kept",
        hint=f"let {CACHE_VARIABLE} or HOME name a folder",
    )


def named_folder(variable: str) -> Path | None:
    """Return the folder that a variable names; None if it is empty or not set.

    Raises ConfigError for `~`: files of CI systems and of Compose pass it on, and a folder of that name in
    the working directory would be made.
    """
    name = os.environ.get(variable)
    if not name:
        return None
    if name.startswith("~"):
        raise ConfigError(
            f"{variable} begins with ~, which only a shell replaces",
            where=name,
            hint="write the whole path of the folder",
        )
    return Path(name)


def home_folder() -> Path | None:
    """Return the user's home; None for one without HOME and without an entry in passwd(5)."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def ca_bundle(option: str | None) -> Path | None:
    """Return the CA bundle for downloads during a build: `option`, else SSL_CERT_FILE (OpenSSL's variable).

    Raises ConfigError when the file does not exist.
    """
    name = option or os.environ.get("SSL_CERT_FILE")
    if not name:
        return None
    if not Path(name).is_file():
        raise ConfigError("the CA bundle does not exist", where=name, hint="check --ca and SSL_CERT_FILE")
    return Path(name).resolve()
