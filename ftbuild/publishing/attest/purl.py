"""Package URLs, by which vulnerability databases know a package (github.com/package-url/purl-spec)."""

from __future__ import annotations

from urllib.parse import urlsplit

from packageurl import PackageURL
from packaging.utils import canonicalize_name


def debian(
    system: str, system_version: str, name: str, version: str, architecture: str, source: str = ""
) -> str:
    """Return the URL of a Debian package of a distribution (types/deb).

    Databases know source packages: `source` becomes the qualifier `upstream`, as Syft and Grype write it.
    """
    distro = f"{system}-{system_version}" if system_version else system
    qualifiers = {"arch": architecture, "distro": distro, "upstream": source}
    return PackageURL("deb", system or "debian", name, version, qualifiers).to_string()


def python(name: str, version: str) -> str:
    """Return the URL of a distribution of PyPI, with its normalised name (types/pypi; PEP 503)."""
    return PackageURL("pypi", None, canonicalize_name(name), version).to_string()


def image(name: str, digest: str, tag: str = "") -> str:
    """Return the URL of an image `host/repository` by its manifest's digest (types/oci)."""
    qualifiers = {"repository_url": name, "tag": tag}
    return PackageURL("oci", None, name.rpartition("/")[2].lower(), digest, qualifiers).to_string()


def git(url: str, commit: str, name: str) -> str:
    """Return the URL of a commit; GitHub has a type of its own (types/github, types/generic)."""
    parts = urlsplit(url)
    if parts.hostname == "github.com":
        owner, _, repository = parts.path.removesuffix(".git").strip("/").lower().partition("/")
        return PackageURL("github", owner, repository, commit).to_string()
    return generic(name, commit, vcs_url=f"git+{url}@{commit}" if url else "")


def generic(name: str, version: str, **qualifiers: str) -> str:
    """Return the URL of a package of no known kind (types/generic)."""
    return PackageURL("generic", None, name, version, qualifiers).to_string()
