"""OCI registries: names of images, the user's credentials, and a client over HTTP."""

from ftbuild.registry.client import current, digest, require_reachable
from ftbuild.registry.reference import Reference, parse

__all__ = ["Reference", "current", "digest", "parse", "require_reachable"]
