"""Passwords and tokens, taken out of whatever is shown or logged.

Values that this process knows (`remember`) are replaced wherever they appear. Others are recognized by what
stands around them: the user part of a URL, the value of a header or of a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, unquote

SHOWN = "***"
# A shorter value may be a word or a number of the text around it. Inside a URL it is replaced all the same.
SHORTEST = 5
# A user name without a password is a token if it is that long.
_SHORTEST_TOKEN = 16
# Schemes whose user part is a password when it is a single word (ccache(1), remote storage backends).
_PASSWORD_FIRST = ("redis", "redis+unix", "rediss")
_URL = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*)://(?P<rest>[^\s\"'<>|]*@[^\s\"'<>|]*)")
# A password may contain what a URL should have encoded: `@`, or `/` unless the text before it is a port.
# `@sha256:` is the digest of an image.
_USER = re.compile(
    r"(?<=://)(?:[^\s/:@\"'<>]*:(?!\d+(?:/|\s|$))[^\s\"'<>]*|[^\s/\"'<>]+)@(?!sha256:)", re.ASCII
)
# The same without a scheme, as proxies are written: what follows has to look like a host.
_USER_ALONE = re.compile(
    r"(?<![\w/:.@+%-])[^\s/:@\"'<>=,;()\[\]{}]{1,100}:[^\s/\"'<>]{1,200}@(?!sha(?:256|512):)"
    r"(?=(?:[\w-]{1,63}\.){0,10}[\w-]{1,63}:\d{2,5}\b|(?:[\w-]{1,63}\.){1,10}[A-Za-z]{2,20}\b|localhost\b"
    r"|\[[0-9A-Fa-f:]{2,45}\])",
    re.ASCII,
)
_QUOTED = r"\\?\"[^\"\n]*\""
# One word, or parameters of a scheme (RFC 9110, 11.4): Token token="...", Digest username="..."
_HEADER = re.compile(
    r"\b((?:proxy-)?authorization|private-token|job-token|deploy-token|x-api-key|x-auth-token)"
    r"(\\?[\"']?\s*[:=]\s*\\?[\"']?(?:(?:basic|bearer|token|negotiate|digest|ntlm|apikey)\s+"
    rf"|[\w-]+\s+(?=[\w-]+={_QUOTED}))?)"
    rf"(?:[\w-]+={_QUOTED}(?:\s*,\s*[\w-]+=(?:{_QUOTED}|[^\s\"',]+))*|[^\s\"'\\]+)",
    re.I,
)
_QUOTED_PARAMETER = re.compile(
    rf"(?<![A-Za-z])((?:token|password|passwd|secret|api[_-]?key|signature)\s*=\s*){_QUOTED}", re.I
)
_PARAMETER = re.compile(
    r"((?:[?&;][\w-]*(?:token|key|secret|signature|sig|password)"
    r"|(?<![\w-])(?:(?:private|access|auth|job|deploy|refresh|api|id)[_-]token|client[_-]secret"
    r"|password|passwd))=)[^\s&;\"']+",
    re.I,
)
_SECRET_NAME = re.compile(r"(?:^|_)(?:TOKEN|PASSWORD|PASSWD|SECRET|APIKEY|API_KEY)$")
_known: set[str] = set()


def redact(text: str) -> str:
    """Return `text` with `***` in place of everything that is, or looks like, a password or a token."""
    for value in sorted(_known, key=len, reverse=True):
        text = text.replace(value, SHOWN)
    text = _USER.sub(f"{SHOWN}@", text)
    text = _USER_ALONE.sub(f"{SHOWN}@", text)
    text = _HEADER.sub(rf"\1\2{SHOWN}", text)
    text = _QUOTED_PARAMETER.sub(rf"\1{SHOWN}", text)
    return _PARAMETER.sub(rf"\1{SHOWN}", text)


def holds_known(text: str, shortest: int = SHORTEST) -> bool:
    """Return whether `text` holds a value that this process knows, of at least so many characters."""
    return any(value in text for value in _known if len(value) >= shortest)


def remember(*values: str) -> None:
    """Replace these values from now on, also as a URL writes them."""
    for value in values:
        plain = unquote(value)
        for written in (value, plain, quote(plain, safe=""), quote(plain)):
            if len(written) >= SHORTEST:
                _known.add(written)


def remember_urls(text: str) -> None:
    """Remember the passwords of all URLs in a text."""
    for match in _URL.finditer(text):
        remember(*_passwords(match["scheme"], match["rest"]))


def remember_environment(environment: Mapping[str, str]) -> None:
    """Remember what the variables of a program hold: passwords of URLs, and values named as secrets."""
    for name, value in environment.items():
        if _SECRET_NAME.search(name.upper()):
            remember(value)
        if "://" in value:
            remember_urls(value)
        elif name.upper().endswith("PROXY"):
            remember_urls(f"http://{value}")


def _passwords(scheme: str, rest: str) -> Iterator[str]:
    """Yield what the user part of a URL may mean: up to the last `@` before its path, or up to the last."""
    for part in {rest.partition("/")[0], rest}:
        user, at, _ = part.rpartition("@")
        name, colon, password = user.partition(":")
        if not at or (colon and re.match(r"\d+/", password)):
            continue
        if colon:
            yield password
        elif "/" not in name and (scheme in _PASSWORD_FIRST or len(name) >= _SHORTEST_TOKEN):
            yield name
