"""Standard places: the cache folder, the CA bundle."""

from __future__ import annotations

import os
from pathlib import Path

from ftbuild.errors import ConfigError


def cache_folder() -> Path:
    """Return FTBUILD_CACHE, else `ftbuild` in the user's cache folder (XDG Base Directory Specification)."""
    if named := os.environ.get("FTBUILD_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ftbuild"


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
