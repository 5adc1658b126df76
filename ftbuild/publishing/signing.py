"""Signatures by cosign, with a key or with the token of a CI job (github.com/sigstore/cosign)."""

from __future__ import annotations

import os
import re
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ftbuild.errors import ConfigError, HostError, PublishError
from ftbuild.host import shell
from ftbuild.publishing import retry
from ftbuild.publishing.verifying import (
    IDENTITY_VARIABLE,
    ISSUER_VARIABLE,
    TIMEOUT_SECONDS,
    WITHOUT_LOG,
    Identity,
    Verifier,
)
from ftbuild.text.reporter import Reporter

KEY_VARIABLE = "FTBUILD_COSIGN_KEY"
# Where cosign finds the token of a job: GitHub's service for them, or the token itself (`cosign env`).
_TOKENS = ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "SIGSTORE_ID_TOKEN")


class Signer(Verifier):
    """Whoever signs images, and recognises own signatures."""

    @property
    @abstractmethod
    def options(self) -> tuple[str, ...]:
        """The options of `cosign sign`."""

    @property
    def is_logged(self) -> bool:
        """Return whether the public log gets an entry."""
        return True

    def sign(self, name: str, report: Reporter) -> None:
        """Sign `repository@digest` and everything that it refers to.

        Raises PublishError if cosign fails. A retry looks for the signature first, so that the log gets one
        entry.
        """
        retry.command(
            ["cosign", "sign", "--yes", "--recursive", *self.options, name],
            report,
            timeout=TIMEOUT_SECONDS,
            what="cosign could not sign",
            where=name,
            hint=self.hint,
            is_done=lambda: self.has_signed(name, report),
        )

    def attest(self, name: str, kind: str, predicate: Path, report: Reporter) -> None:
        """Sign a statement about `repository@digest` with a predicate of this type, and attach it.

        Raises PublishError if cosign fails.
        """
        retry.command(
            ["cosign", "attest", "--yes", *self.options, "--type", kind, "--predicate", str(predicate), name],
            report,
            timeout=TIMEOUT_SECONDS,
            what="cosign could not attach a statement",
            where=name,
            hint=self.hint,
        )


@dataclass(frozen=True)
class KeySigner(Signer):
    """A key as cosign names it (a file, or a KMS URI), and whether the public log gets an entry.

    The key's password is COSIGN_PASSWORD.
    """

    key: str
    public_log: bool = True
    hint = "COSIGN_PASSWORD holds the key's password; --no-sign-log leaves the public log out"
    # Or not with an entry in the log.
    unsigned = re.compile(f"{Verifier.unsigned.pattern}|tlog|rekor", re.I)

    @property
    def is_logged(self) -> bool:
        """Return whether the public log gets an entry."""
        return self.public_log

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `cosign sign`."""
        return ("--key", self.key, *(() if self.public_log else _without_log()))

    @contextmanager
    def verifying(self) -> Iterator[tuple[str, ...]]:
        """Return the options of `cosign verify`, which hold in the context."""
        with tempfile.TemporaryDirectory(prefix="ftbuild-") as folder:
            file = Path(folder) / "key.pub"
            file.write_text(self.public_key)
            yield ("--key", str(file), *(() if self.public_log else WITHOUT_LOG))

    @cached_property
    def public_key(self) -> str:
        """Return the public half of the key; PublishError if cosign cannot read it."""
        try:
            return shell.run(["cosign", "public-key", "--key", self.key], timeout=TIMEOUT_SECONDS).stdout
        except shell.CommandFailed as failed:
            lines = failed.result.stderr.strip().splitlines() or [failed.what]
            raise PublishError(
                f"cosign cannot read the key: {lines[-1]}", where=self.key, hint=self.hint
            ) from failed


def _without_log() -> tuple[str, ...]:
    """Return the options that keep a signature out of the public log, by what this cosign knows.

    From 3.0.4 on `--tlog-upload=false` is refused beside Sigstore's own list of services, which is asked for
    unless it is turned off (sigstore/cosign issues 4831, 5043); a later one has a word for all of it, and
    has lost both (pull request 5059).
    """
    known = shell.run(["cosign", "sign", "--help"], timeout=TIMEOUT_SECONDS).stdout
    if "--offline" in known:
        return ("--offline",)
    if "--signing-config" in known:
        return ("--use-signing-config=false", "--tlog-upload=false")
    return ("--tlog-upload=false",)


@dataclass(frozen=True)
class KeylessSigner(Identity, Signer):
    """A CI job: Sigstore gives its token's identity a certificate, and enters the signature into its log."""

    hint = "the job needs a token for the audience sigstore, and access to Sigstore's services"

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `cosign sign`: none, since it takes the job's token where there is no key."""
        return ()


_SCHEME = re.compile(r"[a-z][a-z0-9+-]+:", re.I)


def signer(key: str | None, public_log: bool) -> Signer | None:
    """Return a signer with `key` or what the variables name; None if there is none.

    What can be known of it is said here, before a build or a push. Raises ConfigError for variables that do
    not fit, HostError if cosign or a job's token is missing, PublishError if cosign cannot read the key.
    """
    chosen = key or os.environ.get(KEY_VARIABLE)
    identity = os.environ.get(IDENTITY_VARIABLE)
    if not chosen and not identity:
        return None
    # A key of a KMS or a token has a scheme.
    if chosen and not _SCHEME.match(chosen) and not Path(chosen).is_file():
        raise ConfigError(
            f"there is no key {chosen}", hint=f"--sign-key or {KEY_VARIABLE} is a file or a KMS address"
        )
    found = KeySigner(chosen, public_log) if chosen else _keyless(identity or "", public_log)
    shell.which("cosign")
    if isinstance(found, KeySigner):
        found.public_key  # noqa: B018
    return found


def _keyless(identity: str, public_log: bool) -> KeylessSigner:
    issuer = os.environ.get(ISSUER_VARIABLE)
    if not issuer:
        raise ConfigError(
            f"{IDENTITY_VARIABLE} is set and {ISSUER_VARIABLE} is not",
            hint="both are what users verify: https://token.actions.githubusercontent.com on GitHub",
        )
    if not public_log:
        raise ConfigError(
            "a signature without a key needs the public log, which proves its time",
            hint=f"leave out --no-sign-log, or {IDENTITY_VARIABLE}",
        )
    if not any(os.environ.get(name) for name in _TOKENS):
        raise HostError(
            "there is no token of a CI job to sign with",
            where=" and ".join(_TOKENS),
            hint="GitHub: permissions, id-token: write; GitLab: id_tokens, SIGSTORE_ID_TOKEN, aud: sigstore",
        )
    return KeylessSigner(identity, issuer)
