"""Refusals of a registry as errors for people."""

from __future__ import annotations

from ftbuild.errors import PublishError
from ftbuild.registry import answers
from ftbuild.registry.address import bare
from ftbuild.registry.malformed import Malformed
from ftbuild.registry.policy import BUSY
from ftbuild.registry.reference import written
from ftbuild.registry.transport import Answer
from ftbuild.text import terminal

DENIED, MISSING = (401, 403), 404
LONGEST_REASON = 300
# docs.nvidia.com/ngc, NGC Private Registry User Guide, "Accessing": the same user name for all users.
_LOGIN_NOTES = {"nvcr.io": ", user name $oauthtoken, password an NGC API key"}


class Refused(PublishError):
    """A registry refused; `status` is HTTP's."""

    def __init__(self, status: int, what: str, *, where: str, hint: str | None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.status = status


def refused(answer: Answer, host: str, repository: str, who: str | None = None) -> Refused:
    """Return the error for an answer: its status and the error codes in its body, never a header.

    `who` was logged in, None for an anonymous request.
    """
    reason, status, registry = _reason(answer), answer.status, written(host)
    where = f"{answer.method} {bare(answer.url)}: HTTP {status}"
    if status in DENIED:
        what = f"{registry} {f'refuses {who}' if who else 'wants a login'} for {repository}{reason}"
        return Refused(status, what, where=where, hint=login_hint(registry))
    hint = None
    if status in BUSY:
        hint = "the registry is busy: try again later"
    elif status == MISSING and answer.method in ("POST", "PUT"):
        hint = "check the name; on many registries its project or repository must be created first"
    return Refused(status, f"{registry} refused{reason or f' with HTTP {status}'}", where=where, hint=hint)


def login_hint(registry: str) -> str:
    """Return what the user may do about credentials."""
    return f"docker login {registry}{_LOGIN_NOTES.get(registry, '')}, with an account that may do this"


def _reason(answer: Answer) -> str:
    """Return `: CODE message` of an error's JSON (distribution-spec v1.1, "Error Codes"), else nothing."""
    try:
        errors = answers.read(answers.Errors, answer.body, answer.url).errors
    except Malformed:
        return ""
    text = "; ".join(f"{error.code or ''} {error.message or ''}".strip() for error in errors)
    return f": {terminal.printable(text[:LONGEST_REASON])}" if text else ""
