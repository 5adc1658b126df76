"""Requests about a repository: logged in where the registry asks for it, refusals as errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import IO

from ftbuild.registry.address import is_within
from ftbuild.registry.auth import Login, Logins, Scope
from ftbuild.registry.errors import refused
from ftbuild.registry.transport import ANSWER_BYTES, Answer, Transport

UNAUTHORIZED = 401


class Session:
    """Connections and logins that several repositories may share, and several threads.

    Without `patient` nothing is retried, for callers that want an answer within seconds.
    """

    def __init__(self, *, patient: bool = True) -> None:
        self._transport = Transport(patient=patient)
        self._logins = Logins(self._transport)

    def api(self, host: str) -> str:
        """Return the root of a registry's API."""
        return self._transport.api(host)

    def request(
        self,
        scope: Scope,
        method: str,
        url: str,
        *,
        expected: Collection[int] = (200,),
        limit: int = ANSWER_BYTES,
        headers: Mapping[str, str] | None = None,
        data: bytes | IO[bytes] | None = None,
    ) -> Answer:
        """Return the answer, its status one of `expected`, its body at most `limit` bytes.

        A login that was refused, for example because a token ran out meanwhile, is renewed once. Raises
        `Refused` for any other status and HostError when nothing answers.
        """

        def send(login: Login | None) -> Answer:
            header = login.header if login else None
            return self._transport.send(
                method, url, limit=limit, headers=headers, data=data, authorization=header
            )

        # An upload may go to a storage elsewhere, which must not see the login.
        own = is_within(url, self.api(scope.host))
        login = self._logins.known(scope) if own else None
        answer = send(login)
        if answer.status == UNAUTHORIZED and own:
            login = self._logins.renewed(scope, login, answer.headers.get("WWW-Authenticate", ""))
            answer = send(login) if login else answer
        if answer.status not in expected:
            raise refused(answer, scope.host, scope.repository, login.who if login else None)
        return answer

    def answers(self, host: str) -> None:
        """Raise HostError unless a registry answers, with any status: 401 is how it asks for a login."""
        self._transport.send("GET", self.api(host))
