"""Signatures and signed statements by cosign 2 and 3 themselves, in registries with and without referrers."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import names, referrers, substitution
from ftbuild.publishing.attest.manifests import Blob
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.publishing.signing import KeySigner
from ftbuild.publishing.verifying import PublicKey
from testing import needs
from testing.listing_registry import listing
from testing.registries import PASSWORD, Registry
from tests.unit.publishing.shelf import Shelf
from tests.unit.publishing.test_publish import plan_of
from tests.unit.publishing.test_trust import only

REBUILT = "https://ftbuild.invalid/rebuild/v1"
# Several runs of cosign, each of which takes a second of its own to read the key.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


# Each run of cosign takes a second to read the key, so not every pair.
@pytest.fixture(params=[("2", "fallback tag"), ("3", "fallback tag"), ("3", "list")], ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Return a version of cosign, and how a registry has referrers."""
    version, registry = request.param
    return version, registry


@pytest.fixture
def version(pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the program be cosign 2, which Debian has, or 3."""
    if pair[0] == "2":
        needs.program("cosign")
    else:
        program = needs.tool("cosign-3", "FTBUILD_COSIGN3")
        (tmp_path / "programs").mkdir()
        (tmp_path / "programs" / "cosign").symlink_to(program)
        monkeypatch.setenv("PATH", str(tmp_path / "programs"), prepend=":")
    return pair[0]


@pytest.fixture
def either(pair: tuple[str, str], shelf: Shelf, registry: Registry) -> Iterator[Shelf]:
    """A registry that knows nothing of referrers, and one that lists them."""
    if pair[1] == "fallback tag":
        yield shelf
        return
    with listing(registry.host) as host:
        name = shelf.names.repository.replace(registry.host, host)
        yield Shelf(names.Names(name, name), shelf.work, shelf.said)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> Path:
    """Return a folder with cosign.key, cosign.pub, and another key."""
    monkeypatch.setenv("COSIGN_PASSWORD", PASSWORD)
    (tmp_path / "other").mkdir()
    for place in (tmp_path, tmp_path / "other"):
        shell.run(["cosign", "generate-key-pair"], cwd=place)
    return tmp_path


def test_what_is_signed_is_found_and_nothing_else(either: Shelf, cell: Plan, folder: Path) -> None:
    """Publish without a key, then with one, then once more, as nightly runs do; then take it."""
    ours, theirs = PublicKey(str(folder / "cosign.pub")), PublicKey(str(folder / "other" / "cosign.pub"))
    signer = KeySigner(str(folder / "cosign.key"), public_log=False)
    either.tested(cell)
    assert only(either.publish(cell)).state == "published"
    name = f"{either.repository.name}@{either.immutable(cell)['runtime']}"
    assert not ours.has_signed(name, print)
    (folder / "predicate.json").write_text('{"verdict": "equal"}')
    signer.attest(name, REBUILT, folder / "predicate.json", print)
    assert not ours.has_signed(name, print), "a statement is no signature"
    assert only(either.publish(cell, signer=signer)).state == "signed"
    assert only(either.publish(cell, signer=signer)).state == "present"
    assert ours.has_signed(name, print)
    assert not theirs.has_signed(name, print)
    session = PublishSession(Options(either.names, folder / "elsewhere"))
    assert substitution.find(session, cell, [theirs], print) == {}
    assert substitution.find(session, cell, [theirs, ours], print).keys() == {*PRODUCTS}
    assert stated(name, REBUILT, folder) == {"verdict": "equal"}


def test_each_statement_is_signed_where_policies_ask_for_it(either: Shelf, cell: Plan, folder: Path) -> None:
    signer = KeySigner(str(folder / "cosign.key"), public_log=False)
    either.tested(cell)
    assert only(either.publish(cell)).state == "published"
    for digest in either.immutable(cell).values():
        forge_record(either, digest)
    assert only(either.publish(cell, signer=signer, attest=True)).state == "signed"
    name = f"{either.repository.name}@{either.immutable(cell)['runtime']}"
    assert stated(name, "slsaprovenance1", folder)["buildDefinition"]["internalParameters"]["key"] == cell.key
    assert stated(name, "spdxjson", folder)["spdxVersion"] == "SPDX-2.3"
    assert stated(name, "openvex", folder)["statements"]
    for gate in ("verify", "smoke"):
        record = stated(name, f"https://ftbuild.invalid/gate/{gate}/v1", folder)
        assert (record["gate"], record["key"], record["passed"]) == (gate, cell.key, True)
        assert len(all_stated(name, f"https://ftbuild.invalid/gate/{gate}/v1", folder)) == 1


def forge_record(shelf: Shelf, digest: str) -> None:
    """Attach a record to a published image, as anybody may who can push."""
    subject = shelf.repository.head(digest)
    assert subject
    record = Blob(
        "application/vnd.ftbuild.gate.v1+json", b'{"gate": "smoke", "passed": true, "by": "a stranger"}'
    )
    forged = referrers.Referrer("application/vnd.ftbuild.gate.v1+json", record, {"io.ftbuild.gate": "smoke"})
    referrers.attach(shelf.repository, subject, iter([forged]))


def stated(name: str, kind: str, folder: Path):  # type: ignore[no-untyped-def]
    """Return the predicate of the first statement of a type that cosign verifies."""
    return all_stated(name, kind, folder)[0]


def all_stated(name: str, kind: str, folder: Path):  # type: ignore[no-untyped-def]
    """Return the predicates of all of them."""
    options = ["--key", str(folder / "cosign.pub"), "--insecure-ignore-tlog=true"]
    done = shell.run(["cosign", "verify-attestation", "--type", kind, *options, name], timeout=100)
    envelopes = [json.loads(line) for line in done.stdout.splitlines()]
    return [json.loads(base64.b64decode(each["payload"]))["predicate"] for each in envelopes]


def test_cosign_3_finds_what_2_has_signed(shelf: Shelf, cell: Plan, tmp_path: Path) -> None:
    """And not the other way round: who may have cosign 2 is told to sign with it."""
    second, third = needs.program("cosign"), needs.tool("cosign-3", "FTBUILD_COSIGN3")
    env = {**os.environ, "COSIGN_PASSWORD": PASSWORD}
    shell.run([second, "generate-key-pair"], cwd=tmp_path, env=env)
    shelf.tested(cell)
    shelf.publish(cell)
    runtime, sdk = (f"{shelf.repository.name}@{shelf.immutable(cell)[product]}" for product in PRODUCTS)
    key = ["--key", str(tmp_path / "cosign.key"), "--tlog-upload=false"]
    shell.run([second, "sign", "--yes", *key, runtime], env=env)
    shell.run([third, "sign", "--yes", "--use-signing-config=false", *key, sdk], env=env)
    verify = ["verify", "--key", str(tmp_path / "cosign.pub"), "--insecure-ignore-tlog=true"]
    found = {
        (program, name): shell.run([program, *verify, name], check=False).code == 0
        for program in (second, third)
        for name in (runtime, sdk)
    }
    assert found == {
        (second, runtime): True,
        (third, runtime): True,
        (third, sdk): True,
        (second, sdk): False,
    }
