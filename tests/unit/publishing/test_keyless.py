"""Signatures by the token of a CI job, and what each cosign is told to leave out the public log."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from ftbuild.errors import ConfigError, HostError, PublishError
from ftbuild.host import shell
from ftbuild.publishing import signing
from ftbuild.publishing.signing import KeylessSigner, KeySigner
from testing import needs

ISSUER = "https://token.example.com"
IDENTITY = "https://git.example.com/team/ft/.github/workflows/cell.yml@refs/heads/main"
NAME = f"127.0.0.1:9/x@sha256:{'a' * 64}"


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a job that may sign; nobody ever issued its token."""
    for name in ("FTBUILD_COSIGN_KEY", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL"):
        monkeypatch.delenv(name, raising=False)
    claims = [{"alg": "none"}, {"iss": ISSUER, "aud": "sigstore"}]
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in claims)
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", ".".join([*parts, "AAAA"]))
    monkeypatch.setenv("FTBUILD_SIGN_IDENTITY", IDENTITY)
    monkeypatch.setenv("FTBUILD_SIGN_ISSUER", ISSUER)


def test_cosign_takes_the_token_of_the_job() -> None:
    needs.program("cosign")
    signer = signing.signer(None, public_log=True)
    assert signer == KeylessSigner(IDENTITY, ISSUER)
    # It looks at the token before it sends it.
    with pytest.raises(PublishError, match=r'cert: .*unexpected signature algorithm "none"'):
        signer.sign(NAME, print)


def test_a_key_goes_before_the_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs.program("cosign")
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    shell.run(["cosign", "generate-key-pair"], cwd=tmp_path)
    monkeypatch.setenv("KEY", (tmp_path / "cosign.key").read_text())
    assert signing.signer("env://KEY", public_log=True) == KeySigner("env://KEY")


def test_the_service_of_a_job_stands_for_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    needs.program("cosign")
    monkeypatch.delenv("SIGSTORE_ID_TOKEN")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "secret")
    signer = signing.signer(None, public_log=True)
    assert signer == KeylessSigner(IDENTITY, ISSUER)
    assert signer.is_logged


def test_a_job_without_cosign_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="cosign is not installed"):
        signing.signer(None, public_log=True)


@pytest.mark.parametrize(
    ("missing", "error", "hint"),
    [
        ("SIGSTORE_ID_TOKEN", HostError, "id-token: write"),
        ("FTBUILD_SIGN_ISSUER", ConfigError, "https://token.actions.githubusercontent.com"),
    ],
)
def test_what_the_job_lacks_is_named_at_once(
    monkeypatch: pytest.MonkeyPatch, missing: str, error: type[ConfigError | HostError], hint: str
) -> None:
    monkeypatch.delenv(missing)
    with pytest.raises(error) as refused:
        signing.signer(None, public_log=True)
    assert missing in str(refused.value)
    assert hint in (refused.value.hint or "")


def test_a_signature_without_a_key_needs_the_log() -> None:
    with pytest.raises(ConfigError, match="needs the public log"):
        signing.signer(None, public_log=False)


def test_own_signatures_are_those_of_this_identity_and_issuer() -> None:
    with KeylessSigner(IDENTITY, ISSUER).verifying() as options:
        assert options == ("--certificate-identity", IDENTITY, "--certificate-oidc-issuer", ISSUER)


# What the help of `cosign sign` lists, and what such a cosign takes to leave out the public log.
COSIGNS = {
    "2.5": ("    --tlog-upload=true:", ("--tlog-upload=false",)),
    "3.0.4": (
        "    --signing-config='':\n    --use-signing-config=true:",
        ("--use-signing-config=false", "--tlog-upload=false"),
    ),
    "later": ("    --offline=false:\n    --signing-config='':", ("--offline",)),
}


def cosign(folder: Path, monkeypatch: pytest.MonkeyPatch, known: str) -> Path:
    """Put a cosign with this help before the real one; return the file with what it is told to sign."""
    program = folder / "cosign"
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$2" = --help ] && {{ cat {folder}/help; exit 0; }}\n'
        f'case "$1" in sign|attest) printf "%s\\n" "$@" > {folder}/told;; *) exit 1;; esac\n'
    )
    program.chmod(0o755)
    (folder / "help").write_text(known)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "told"


def test_a_statement_is_attached_without_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """cosign asks before it enters anything into the public log, and a nightly run has nobody to answer."""
    told, predicate = cosign(tmp_path, monkeypatch, ""), tmp_path / "predicate.json"
    KeySigner("cosign.key").attest(NAME, "spdxjson", predicate, print)
    assert told.read_text().splitlines() == [
        *("attest", "--yes", "--key", "cosign.key"),
        *("--type", "spdxjson", "--predicate", str(predicate), NAME),
    ]


@pytest.mark.parametrize(("known", "options"), COSIGNS.values(), ids=COSIGNS)
def test_every_cosign_is_told_in_its_own_words_to_leave_out_the_log(
    known: str, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = cosign(tmp_path, monkeypatch, known)
    sign = ["sign", "--yes", "--recursive", "--key", "cosign.key"]
    KeySigner("cosign.key", public_log=False).sign(NAME, print)
    assert told.read_text().splitlines() == [*sign, *options, NAME]
    KeySigner("cosign.key").sign(NAME, print)
    assert told.read_text().splitlines() == [*sign, NAME]
