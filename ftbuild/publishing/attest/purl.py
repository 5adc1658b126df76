"""Package URLs, by which vulnerability databases know a package (github.com/package-url/purl-spec)."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit


def purl(kind: str, *path: str, version: str = "", **qualifiers: str) -> str:
    """`pkg:kind/namespace/name@version?key=value`; what is empty is left out, keys are sorted."""
    where = "/".join(quote(part, safe="") for part in path)
    at = f"@{quote(version, safe=':')}" if version else ""
    said = "&".join(f"{key}={quote(value, safe=':/')}" for key, value in sorted(qualifiers.items()) if value)
    return f"pkg:{kind}/{where}{at}" + (f"?{said}" if said else "")


def debian(system: str, system_version: str, name: str, version: str, architecture: str) -> str:
    """A Debian package of a distribution (types/deb)."""
    distro = f"{system}-{system_version}" if system_version else system
    return purl("deb", system or "debian", name, version=version, arch=architecture, distro=distro)


def python(name: str, version: str) -> str:
    """A distribution of PyPI, whose names are normalised (types/pypi; PEP 503)."""
    return purl("pypi", re.sub(r"[-_.]+", "-", name).lower(), version=version)


def image(name: str, digest: str, tag: str = "") -> str:
    """An image in a registry, by the digest of its manifest (types/oci); `name` is `host/repository`."""
    return purl("oci", name.rpartition("/")[2].lower(), version=digest, repository_url=name, tag=tag)


def git(url: str, commit: str, name: str) -> str:
    """A commit of a git repository; GitHub has a type of its own (types/github, types/generic)."""
    parts = urlsplit(url)
    if parts.hostname == "github.com":
        path = parts.path.removesuffix(".git").strip("/").lower()
        return purl("github", *path.split("/"), version=commit)
    return purl("generic", name, version=commit, vcs_url=f"git+{url}@{commit}" if url else "")
