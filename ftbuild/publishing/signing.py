"""Signatures by cosign, for users who have it and a key (github.com/sigstore/cosign)."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ftbuild.host import shell
from ftbuild.publishing import retry
from ftbuild.text.reporter import Reporter

KEY_VARIABLE = "FTBUILD_COSIGN_KEY"
TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Signer:
    """A key as cosign names it (a file, or a KMS URI), and whether the public log gets an entry."""

    key: str
    public_log: bool = True

    def sign(self, name: str, report: Reporter) -> None:
        """Sign `repository@digest` and everything that it refers to; the password is COSIGN_PASSWORD.

        Raises PublishError if cosign fails.
        """
        argv = ["cosign", "sign", "--yes", "--recursive", "--key", self.key]
        argv += [] if self.public_log else ["--tlog-upload=false"]
        retry.command(
            [*argv, name],
            report,
            timeout=TIMEOUT_SECONDS,
            what="cosign could not sign",
            where=name,
            hint="COSIGN_PASSWORD holds the key's password; --no-sign-log leaves the public log out",
        )


def signer(key: str | None, public_log: bool) -> Signer | None:
    """Return a signer with `key` or the one in FTBUILD_COSIGN_KEY; None if there is neither.

    Raises HostError if cosign is not installed.
    """
    chosen = key or os.environ.get(KEY_VARIABLE)
    if not chosen:
        return None
    shell.which("cosign")
    return Signer(chosen, public_log)
