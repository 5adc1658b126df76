"""The user's credentials for a registry, as `docker login` or a credential helper keeps them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ftbuild.errors import PublishError
from ftbuild.host import redaction
from ftbuild.registry import reference

if TYPE_CHECKING:
    from docker.auth import AuthConfig

HELPER = "docker-credential-"


@dataclass(frozen=True)
class Credentials:
    """A user name with its password, or an identity token, which needs no name."""

    user: str
    secret: str = field(repr=False)
    is_token: bool = False

    @property
    def who(self) -> str:
        """The owner, for messages."""
        return "the identity token of docker login" if self.is_token else f"user {self.user}"

    def auth_config(self) -> dict[str, str]:
        """Return them as Docker Engine's API takes them (Docker Engine API, Authentication)."""
        if self.is_token:
            return {"identitytoken": self.secret}
        return {"username": self.user, "password": self.secret}


def find(host: str) -> Credentials | None:
    """Return the user's credentials, read on each call since those of a helper may expire.

    Raises PublishError when Docker's configuration, or the credential helper that it names, does not work.
    """
    server = reference.written(host)
    config, helper = _load(server)
    return _parse(_ask(config, server, f"{HELPER}{helper}" if helper else None))


def _load(host: str) -> tuple[AuthConfig, str | None]:
    """Return Docker's configuration, and the helper that it names for a registry."""
    from docker import auth
    from docker.errors import DockerException

    try:
        config = auth.load_config()
        return config, config.get_credential_store(host)
    except (DockerException, ValueError, TypeError, AttributeError):
        # Neither cause nor text is handed on, here and below: they may quote secrets.
        raise PublishError(
            "Docker's configuration cannot be read",
            where="config.json in $DOCKER_CONFIG or ~/.docker",
            hint="correct its section auths, or remove it and docker login again",
        ) from None


def _ask(config: AuthConfig, host: str, helper: str | None) -> Mapping[str, str]:
    from docker import auth
    from docker.errors import DockerException

    if helper and shutil.which(helper) is None:
        raise PublishError(
            f"the credential helper {helper} is not installed",
            where="Docker's config.json names it (credsStore or credHelpers)",
            hint=f"install it or take it out of config.json, then docker login {host}",
        )
    try:
        return auth.resolve_authconfig(config, host) or {}
    except (DockerException, OSError, ValueError, LookupError, TypeError):
        raise PublishError(
            f"the credential helper {helper} does not work",
            hint=f"echo {host} | {helper} get    shows its output",
        ) from None


def _parse(entry: Mapping[str, str]) -> Credentials | None:
    """Parse an entry of the SDK, which has keys from a helper with a capital, others without."""
    fields = {key.lower(): value for key, value in entry.items()}
    redaction.remember(fields.get("identitytoken") or "", fields.get("password") or "")
    if token := fields.get("identitytoken"):
        return Credentials("", token, is_token=True)
    if user := fields.get("username"):
        return Credentials(user, fields.get("password", ""))
    return None
