"""Signatures without a key: by the token of a CI job, or not at all."""

from __future__ import annotations

import base64
import json

import pytest

from ftbuild.errors import ConfigError, HostError, PublishError
from ftbuild.publishing import signing
from ftbuild.publishing.signing import KeylessSigner, KeySigner
from testing import needs

ISSUER = "https://token.example.com"
IDENTITY = "https://git.example.com/team/ft/.github/workflows/cell.yml@refs/heads/main"
NAME = f"127.0.0.1:9/x@sha256:{'a' * 64}"


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a job that may sign; nobody ever issued its token."""
    for name in (signing.KEY_VARIABLE, "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL"):
        monkeypatch.delenv(name, raising=False)
    claims = [{"alg": "none"}, {"iss": ISSUER, "aud": "sigstore"}]
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in claims)
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", ".".join([*parts, "AAAA"]))
    monkeypatch.setenv(signing.IDENTITY_VARIABLE, IDENTITY)
    monkeypatch.setenv(signing.ISSUER_VARIABLE, ISSUER)


def test_cosign_takes_the_token_of_the_job() -> None:
    needs.program("cosign")
    signer = signing.signer(None, public_log=True)
    assert signer == KeylessSigner(IDENTITY, ISSUER)
    # It looks at the token before it sends it.
    with pytest.raises(PublishError, match=r'cert: .*unexpected signature algorithm "none"'):
        signer.sign(NAME, print)


def test_a_key_goes_before_the_token() -> None:
    needs.program("cosign")
    assert signing.signer("cosign.key", public_log=True) == KeySigner("cosign.key")


@pytest.mark.parametrize(
    ("missing", "error", "hint"),
    [
        ("SIGSTORE_ID_TOKEN", HostError, "id-token: write"),
        (signing.ISSUER_VARIABLE, ConfigError, "https://token.actions.githubusercontent.com"),
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
