"""What a registry says when it says no, in words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftbuild.errors import PublishError
from ftbuild.registry.reference import written
from ftbuild.registry.transport import BUSY, bare

if TYPE_CHECKING:
    import requests

DENIED, MISSING = (401, 403), 404
LONGEST_REASON = 300
# docs.nvidia.com/ngc, NGC Private Registry User Guide, "Accessing": the same user name for everybody.
_LOGIN_NOTES = {"nvcr.io": ", user name $oauthtoken, password an NGC API key"}


class Refused(PublishError):
    """A registry answered, with no; `status` is HTTP's."""

    def __init__(self, status: int, what: str, *, where: str, hint: str | None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.status = status


def refused(answer: requests.Response, host: str, repository: str, who: str | None = None) -> Refused:
    """The error for an answer: its status and the error codes in its body, never a header.

    `who` was logged in, if anybody was.
    """
    said, status, registry = _reason(answer), answer.status_code, written(host)
    where = f"{answer.request.method} {bare(answer.url)}: HTTP {status}"
    if status in DENIED:
        what = f"{registry} {f'refuses {who}' if who else 'wants a login'} for {repository}{said}"
        return Refused(status, what, where=where, hint=login_hint(registry))
    hint = None
    if status in BUSY:
        hint = "the registry is busy: try again later"
    elif status == MISSING and answer.request.method in ("POST", "PUT"):
        hint = "check the name; on many registries its project or repository must be made first"
    return Refused(status, f"{registry} refused{said or f' with HTTP {status}'}", where=where, hint=hint)


def login_hint(registry: str) -> str:
    """What the user may do about credentials."""
    return f"docker login {registry}{_LOGIN_NOTES.get(registry, '')}, with an account that may do this"


def _reason(answer: requests.Response) -> str:
    """`: CODE message` of an error's JSON (distribution-spec v1.1, "Error Codes"), else nothing."""
    try:
        errors = answer.json()["errors"]
        told = "; ".join(f"{error.get('code', '')} {error.get('message', '')}".strip() for error in errors)
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    return f": {told[:LONGEST_REASON]}" if told else ""
