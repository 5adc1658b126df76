"""Signatures checked by cosign: whose count, by their keys and by the identities of CI jobs."""

from __future__ import annotations

import os
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ftbuild.errors import ConfigError, PublishError
from ftbuild.host import shell
from ftbuild.publishing import retry
from ftbuild.text import bounded_json
from ftbuild.text.reporter import Reporter

KEYS_VARIABLE = "FTBUILD_TRUSTED_KEYS"
IDENTITY_VARIABLE = "FTBUILD_SIGN_IDENTITY"
ISSUER_VARIABLE = "FTBUILD_SIGN_ISSUER"
TIMEOUT_SECONDS = 300
# What cosign signs for an image: up to version 2, and in the bundles of version 3.
_SIGNATURES = ("cosign container image signature", "https://sigstore.dev/cosign/sign/v1")


class Verifier(ABC):
    """Whoever's signatures can be recognised."""

    hint: str
    # The words of cosign's versions for an image that nobody of this identity has signed.
    unsigned = re.compile(
        r"no (?:matching )?(?:signatures|attestations)|no valid signatures|signature not found", re.I
    )

    @abstractmethod
    def verifying(self) -> AbstractContextManager[tuple[str, ...]]:
        """Return the options of `cosign verify`, which hold in the context."""

    def has_signed(self, name: str, report: Reporter) -> bool:
        """Return whether `repository@digest` carries a valid signature.

        A signed statement about it is none: cosign 3 lists both, by their types. Raises PublishError if
        cosign cannot tell.
        """
        with self.verifying() as options:
            try:
                printed = retry.command(
                    ["cosign", "verify", *options, name],
                    report,
                    timeout=TIMEOUT_SECONDS,
                    what="cosign could not verify",
                    where=name,
                    hint=self.hint,
                )
            except PublishError as failed:
                if isinstance(failed.__cause__, shell.CommandFailed) and self.unsigned.search(
                    failed.__cause__.result.stderr
                ):
                    return False
                raise
        return _holds_signature(printed, name)


def _holds_signature(printed: str, name: str) -> bool:
    """Return whether what cosign has verified is a signature; PublishError if it cannot be read."""
    try:
        found = bounded_json.loads(printed.encode())
        return any(each["critical"]["type"] in _SIGNATURES for each in found)
    except (ValueError, LookupError, TypeError) as odd:
        raise PublishError("what cosign has verified cannot be read", where=name) from odd


@dataclass(frozen=True)
class PublicKey(Verifier):
    """A public key as cosign names it: a file, or a KMS URI. What it signs needs no entry in a log."""

    key: str
    hint = "the key must be a public one, as `cosign public-key` prints it"

    def __str__(self) -> str:
        return f"the key {self.key}"

    @contextmanager
    def verifying(self) -> Iterator[tuple[str, ...]]:
        """Return the options of `cosign verify`."""
        yield ("--key", self.key, *WITHOUT_LOG)


@dataclass(frozen=True)
class Identity(Verifier):
    """A CI job: Sigstore gave its token's identity a certificate, and entered the signature into its log."""

    identity: str
    issuer: str
    hint = "Sigstore's services must be reached"

    def __str__(self) -> str:
        return f"the identity {self.identity}"

    @contextmanager
    def verifying(self) -> Iterator[tuple[str, ...]]:
        """Return the options of `cosign verify`."""
        yield ("--certificate-identity", self.identity, "--certificate-oidc-issuer", self.issuer)


WITHOUT_LOG = ("--insecure-ignore-tlog=true",)


def trusted(keys: Sequence[str]) -> tuple[Verifier, ...]:
    """Return whose signatures count: `keys`, or else those that FTBUILD_TRUSTED_KEYS lists, and the CI job.

    Raises ConfigError if nobody's do, or for a file that is not there; HostError without cosign.
    """
    chosen = tuple(keys) or _listed()
    for key in chosen:
        if "://" not in key and not Path(key).is_file():
            raise ConfigError(f"there is no public key {key}", hint="--trust takes a file or a KMS address")
    identity, issuer = (os.environ.get(name) for name in (IDENTITY_VARIABLE, ISSUER_VARIABLE))
    jobs = (Identity(identity, issuer),) if identity and issuer else ()
    found = (*map(PublicKey, chosen), *jobs)
    if not found:
        raise ConfigError(
            "whose signatures count is not said, so nothing of a registry can be taken in place of a build",
            hint=f"--trust cosign.pub or {KEYS_VARIABLE}; a CI job's: {IDENTITY_VARIABLE}, {ISSUER_VARIABLE}",
        )
    shell.which("cosign")
    return found


def is_anybody_named() -> bool:
    """Return whether the environment says whose signatures count."""
    return bool(os.environ.get(KEYS_VARIABLE) or os.environ.get(IDENTITY_VARIABLE))


def _listed() -> tuple[str, ...]:
    """Return the keys of the variable; ConfigError for quotes that do not match."""
    try:
        return tuple(shlex.split(os.environ.get(KEYS_VARIABLE) or ""))
    except ValueError as odd:
        raise ConfigError(f"{KEYS_VARIABLE}: {odd}", hint="names of keys, a blank between two") from odd


def signer_of(name: str, verifiers: Sequence[Verifier], report: Reporter) -> Verifier | None:
    """Return the first who has signed `repository@digest`, None if nobody has.

    Raises PublishError if cosign cannot tell.
    """
    return next((each for each in verifiers if each.has_signed(name, report)), None)
