"""Proxies of a build: the arguments that name them, and whether one may hold a password."""

from __future__ import annotations

import os
from pathlib import Path

from ftbuild.host.paths import home_folder
from ftbuild.text import bounded_json

# Build arguments that BuildKit knows and keeps out of cache keys; null takes the value from the environment
# (docker/buildx docs/bake-reference.md, target.args), so that the file holds no credential.
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


def arguments() -> dict[str, None]:
    """Return the build arguments for the proxies in the environment."""
    return {name: None for name in NAMES if name in os.environ}


def are_set() -> bool:
    """Return whether any proxy becomes a build argument, from the environment or Docker's configuration.

    buildx adds those of the configuration to every build (docs.docker.com, "Use a proxy server with the
    Docker CLI"). BuildKit's full provenance holds all build arguments.
    """
    return bool(arguments()) or _in_docker_config()


def _in_docker_config() -> bool:
    """Return whether Docker's config.json has proxies; one that cannot be read counts as if it had."""
    home = home_folder()
    folder = os.environ.get("DOCKER_CONFIG") or (home and home / ".docker")
    if not folder:
        return False
    try:
        settings = bounded_json.loads(Path(folder, "config.json").read_bytes())
        return bool(settings.get("proxies"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError, AttributeError):
        return True
