"""Logins: from a registry's challenge to an Authorization header, Basic or a token from a token server.

distribution-spec v1.1 leaves this open; the token protocol is docs.docker.com/registry/spec/auth.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from urllib.parse import urlencode

from ftbuild.registry import address, answers, credentials
from ftbuild.registry.credentials import Credentials
from ftbuild.registry.errors import refused
from ftbuild.registry.malformed import Malformed
from ftbuild.registry.transport import Answer, Transport

CLIENT = "ftbuild"


@dataclass(frozen=True)
class Scope:
    """The repository and actions of a request; a token is valid for one scope."""

    host: str
    repository: str
    actions: str

    def __str__(self) -> str:
        return f"repository:{self.repository}:{self.actions}"


@dataclass(frozen=True)
class Login:
    """The value of an Authorization header, and its owner; `who` is None for an anonymous token."""

    header: str = field(repr=False)
    who: str | None


class Logins:
    """The logins of a session; threads that need the same one wait for it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[Scope, Login] = {}
        self._lock = Lock()

    def known(self, scope: Scope) -> Login | None:
        """Return the last login for this scope, or None."""
        return self._known.get(scope)

    def renewed(self, scope: Scope, stale: Login | None, challenge: str) -> Login | None:
        """Return a login in place of the one that was refused; None without credentials.

        Raises PublishError when the token server refuses the user's credentials or cannot be trusted with
        them, HostError when it cannot be reached.
        """
        with self._lock:
            if self._known.get(scope) is stale:
                login = self._login(scope, challenge)
                self._known.pop(scope, None)
                if login:
                    self._known[scope] = login
            return self._known.get(scope)

    def _login(self, scope: Scope, challenge: str) -> Login | None:
        from requests.utils import parse_dict_header

        scheme, _, rest = challenge.partition(" ")
        user = credentials.find(scope.host)
        if scheme.lower() == "bearer":
            read: Callable[[str], dict[str, str | None]] = parse_dict_header
            fields = {key.lower(): value for key, value in read(rest).items() if value}
            return self._token(scope, fields, user)
        basic = _basic(user) if scheme.lower() == "basic" else None
        return Login(basic, user.who) if basic and user else None

    def _token(self, scope: Scope, challenge: Mapping[str, str], user: Credentials | None) -> Login:
        answer = self._ask(scope, challenge, user)
        if answer.status != 200:
            raise refused(answer, scope.host, scope.repository, user.who if user else None)
        answer_token = answers.read(answers.Token, answer.body, address.bare(answer.url))
        token = answer_token.token or answer_token.access_token
        if not token:
            raise Malformed("a token server returned no token", where=address.bare(answer.url))
        return Login(f"Bearer {token}", user.who if user else None)

    def _ask(self, scope: Scope, challenge: Mapping[str, str], user: Credentials | None) -> Answer:
        realm = address.token_server(challenge.get("realm", ""), scope.host)
        parameters = {"scope": str(scope)} | {k: v for k, v in challenge.items() if k in ("service", "scope")}
        if user and user.is_token:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": user.secret,
                "client_id": CLIENT,
                **parameters,
            }
            return self._transport.send("POST", realm, data=form)
        query = f"{'&' if '?' in realm else '?'}{urlencode(parameters)}"
        return self._transport.send("GET", realm + query, authorization=_basic(user))


def _basic(user: Credentials | None) -> str | None:
    if user is None or user.is_token:
        return None
    return f"Basic {base64.b64encode(f'{user.user}:{user.secret}'.encode()).decode()}"
