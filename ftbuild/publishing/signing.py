"""Signatures by cosign, for users who have it and a key (github.com/sigstore/cosign)."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ftbuild.errors import PublishError
from ftbuild.host import shell
from ftbuild.publishing import retry
from ftbuild.text.reporter import Reporter

KEY_VARIABLE = "FTBUILD_COSIGN_KEY"
TIMEOUT_SECONDS = 300
_HINT = "COSIGN_PASSWORD holds the key's password; --no-sign-log leaves the public log out"
# The words of cosign's versions for an image that this key has not signed, or not with an entry in the log.
_UNSIGNED = re.compile(
    r"no (?:matching )?signatures|no valid signatures|signature not found|tlog|rekor", re.I
)


@dataclass(frozen=True)
class Signer:
    """A key as cosign names it (a file, or a KMS URI), and whether the public log gets an entry."""

    key: str
    public_log: bool = True

    def sign(self, name: str, report: Reporter) -> None:
        """Sign `repository@digest` and everything that it refers to; the password is COSIGN_PASSWORD.

        Raises PublishError if cosign fails. A retry looks for the signature first, so that the log gets one
        entry.
        """
        argv = ["cosign", "sign", "--yes", "--recursive", "--key", self.key]
        argv += [] if self.public_log else ["--tlog-upload=false"]
        retry.command(
            [*argv, name],
            report,
            timeout=TIMEOUT_SECONDS,
            what="cosign could not sign",
            where=name,
            hint=_HINT,
            is_done=lambda: self.has_signed(name, report),
        )

    def has_signed(self, name: str, report: Reporter) -> bool:
        """Return whether `repository@digest` carries a valid signature of this key.

        Raises PublishError if cosign cannot tell.
        """
        argv = ["cosign", "verify", *([] if self.public_log else ["--insecure-ignore-tlog=true"])]
        with tempfile.TemporaryDirectory(prefix="ftbuild-") as folder:
            file = Path(folder) / "key.pub"
            file.write_text(self.public_key)
            try:
                retry.command(
                    [*argv, "--key", str(file), name],
                    report,
                    timeout=TIMEOUT_SECONDS,
                    what="cosign could not verify",
                    where=name,
                    hint=_HINT,
                )
            except PublishError as failed:
                if isinstance(failed.__cause__, shell.CommandFailed) and _UNSIGNED.search(
                    failed.__cause__.result.stderr
                ):
                    return False
                raise
        return True

    @cached_property
    def public_key(self) -> str:
        """Return the public half of the key; PublishError if cosign cannot read it."""
        try:
            return shell.run(["cosign", "public-key", "--key", self.key], timeout=TIMEOUT_SECONDS).stdout
        except shell.CommandFailed as failed:
            lines = failed.result.stderr.strip().splitlines() or [failed.what]
            raise PublishError(
                f"cosign cannot read the key: {lines[-1]}", where=self.key, hint=_HINT
            ) from failed


def signer(key: str | None, public_log: bool) -> Signer | None:
    """Return a signer with `key` or the one in FTBUILD_COSIGN_KEY; None if there is neither.

    Raises HostError if cosign is not installed.
    """
    chosen = key or os.environ.get(KEY_VARIABLE)
    if not chosen:
        return None
    shell.which("cosign")
    return Signer(chosen, public_log)
