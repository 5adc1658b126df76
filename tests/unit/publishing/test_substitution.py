"""Published images in place of a build: which are believed, and what is said of the others.

Registry and cosign are real; tests/engine/test_elsewhere.py pulls, verifies and builds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import ConfigError, HostError, PublishError
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import names, remote_image, substituted, substitution, verifying
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.publishing.signing import KeySigner
from ftbuild.publishing.substituted import Substituted
from ftbuild.publishing.substitution import Found
from ftbuild.publishing.verifying import Identity, PublicKey, Verifier
from tests.unit.publishing.shelf import INDEX, Shelf
from tests.unit.publishing.test_engine_side import Engine
from tests.unit.publishing.test_publish import plan_of
from tests.unit.publishing.test_trust import keys, our_signer, signer  # noqa: F401  fixtures

NAME = "registry.example.com/team/image@sha256:" + "0" * 64


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


@pytest.fixture(scope="module")
def public_keys(keys: tuple[Path, Path]) -> tuple[Path, Path]:  # noqa: F811
    """Return our public key and another one."""
    return keys[0].with_suffix(".pub"), keys[1].with_suffix(".pub")


@pytest.fixture
def ours(public_keys: tuple[Path, Path]) -> PublicKey:
    return PublicKey(str(public_keys[0]))


def found(shelf: Shelf, plan: Plan, *trusted: Verifier) -> dict[str, Found]:
    """Return what is found by a machine that has no records; `shelf.said` gets what it says."""
    shelf.said.clear()
    session = PublishSession(Options(shelf.names, shelf.work / "elsewhere"))
    return substitution.find(session, plan, trusted, shelf.said.append)


def refused(shelf: Shelf, plan: Plan, trusted: Sequence[Verifier], why: str) -> None:
    """Assert that nothing is found, and that one sentence says why and what happens then."""
    assert found(shelf, plan, *trusted) == {}
    (sentence,) = shelf.said
    assert why in sentence
    assert "so this cell is built" in sentence


def test_a_pair_that_is_signed_by_a_trusted_key_is_found_by_its_digests(
    shelf: Shelf,
    cell: Plan,
    signer: KeySigner,  # noqa: F811
    public_keys: tuple[Path, Path],
) -> None:
    shelf.tested(cell)
    shelf.publish(cell, signer=signer)
    ours, theirs = (PublicKey(str(key)) for key in public_keys)
    pair = found(shelf, cell, theirs, ours)
    assert {product: each.digest for product, each in pair.items()} == shelf.immutable(cell)
    assert {each.signer for each in pair.values()} == {ours}
    assert shelf.said == []


def test_a_key_that_nobody_has_published_is_no_refusal(shelf: Shelf, cell: Plan, ours: PublicKey) -> None:
    assert found(shelf, cell, ours) == {}
    tag = names.tag(cell, "runtime")
    assert shelf.said == [f"{shelf.repository.name} has no {tag}: building it"]


def test_of_a_key_that_no_gpu_has_tested_it_is_said(shelf: Shelf, cell: Plan, ours: PublicKey) -> None:
    shelf.tested(cell)
    shelf.publish(cell)
    other = replace(cell, key="0" * 12)
    tag = names.tag(other, "runtime")
    untested = f"{tag}{names.UNSMOKED}"
    index = shelf.repository.manifest(names.tag(cell, "runtime"))
    assert index
    shelf.repository.put_manifest(untested, index.raw, INDEX)
    assert found(shelf, other, ours) == {}
    assert shelf.said == [
        f"{shelf.repository.name} has no {tag}, only {untested}, which no GPU has tested: building it"
    ]


def test_what_nobody_has_signed_is_refused(shelf: Shelf, cell: Plan, ours: PublicKey) -> None:
    shelf.tested(cell)
    shelf.publish(cell)
    refused(shelf, cell, [ours], "is signed by nobody who is trusted here (the key ")


def test_what_another_key_has_signed_is_refused(
    shelf: Shelf,
    cell: Plan,
    signer: KeySigner,  # noqa: F811
    public_keys: tuple[Path, Path],
) -> None:
    shelf.tested(cell)
    shelf.publish(cell, signer=signer)
    refused(shelf, cell, [PublicKey(str(public_keys[1]))], "is signed by nobody who is trusted here")


def test_an_index_that_was_changed_after_it_was_signed_is_refused(
    shelf: Shelf,
    cell: Plan,
    signer: KeySigner,  # noqa: F811
    ours: PublicKey,
) -> None:
    shelf.tested(cell)
    shelf.publish(cell, signer=signer)
    content = shelf.index(cell, "sdk")
    content["annotations"]["io.ftbuild.driver"] = "1"
    shelf.replace_index(cell, "sdk", content)
    refused(shelf, cell, [ours], "-sdk is signed by nobody who is trusted here")


def test_a_signed_image_under_the_tag_of_another_one_is_refused(
    shelf: Shelf,
    cell: Plan,
    signer: KeySigner,  # noqa: F811
    ours: PublicKey,
) -> None:
    shelf.tested(cell)
    shelf.publish(cell, signer=signer)
    other = replace(cell, key=cell.key[::-1])
    for product in PRODUCTS:
        index = shelf.repository.manifest(names.tag(cell, product))
        assert index
        shelf.repository.put_manifest(names.tag(other, product), index.raw, INDEX)
    refused(shelf, other, [ours], f"it is not the runtime image of {other.cell.id}-{other.key}")


def test_a_pair_with_one_image_missing_is_not_taken(
    shelf: Shelf,
    cell: Plan,
    signer: KeySigner,  # noqa: F811
    ours: PublicKey,
) -> None:
    shelf.tested(cell)
    shelf.publish(cell, signer=signer)
    shelf.repository.delete(shelf.immutable(cell)["sdk"])
    assert found(shelf, cell, ours) == {}
    assert shelf.said == [f"{shelf.repository.name} has no {names.tag(cell, 'sdk')}: building it"]


def test_an_image_that_no_gpu_has_tested_is_not_taken(
    shelf: Shelf,
    cell: Plan,
    signer: KeySigner,  # noqa: F811
    ours: PublicKey,
) -> None:
    shelf.tested(cell)
    shelf.publish(cell, signer=signer)
    for product in PRODUCTS:
        content = shelf.index(cell, product)
        content["annotations"]["io.ftbuild.gates"] = "verify"
        digest = shelf.replace_index(cell, product, content)
        signer.sign(f"{shelf.repository.name}@{digest}", shelf.said.append)
    refused(shelf, cell, [ours], "it has not passed verify,smoke")


def test_a_registry_that_does_not_answer_is_no_failure(shelf: Shelf, cell: Plan, ours: PublicKey) -> None:
    gone = "127.0.0.1:1/team/image"
    silent = replace(shelf, names=names.Names(gone, gone))
    refused(silent, cell, [ours], f"{gone} is not used")


# Whose signatures count


def test_the_options_come_before_the_variable(
    public_keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = map(str, public_keys)
    monkeypatch.setenv("FTBUILD_TRUSTED_KEYS", f"'{ours}' {theirs}")
    assert verifying.trusted([]) == (PublicKey(ours), PublicKey(theirs))
    assert verifying.trusted([theirs]) == (PublicKey(theirs),)


def test_the_identity_of_a_ci_job_counts_without_a_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cosign(monkeypatch, tmp_path, "[]")
    monkeypatch.setenv("FTBUILD_SIGN_IDENTITY", "https://gitlab.com/team/project//.gitlab-ci.yml")
    monkeypatch.setenv("FTBUILD_SIGN_ISSUER", "https://gitlab.com")
    (found,) = verifying.trusted([])
    assert isinstance(found, Identity)
    assert str(found) == "the identity https://gitlab.com/team/project//.gitlab-ci.yml"


def test_a_key_that_a_service_keeps_is_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cosign(monkeypatch, tmp_path, "[]")
    assert verifying.trusted(["awskms:///alias/ft"]) == (PublicKey("awskms:///alias/ft"),)


def test_signatures_that_nothing_here_can_check_are_told_at_once(
    public_keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="cosign is not installed"):
        verifying.trusted([str(public_keys[0])])


@pytest.mark.parametrize(
    ("variable", "is_named"),
    [("FTBUILD_TRUSTED_KEYS", True), ("FTBUILD_SIGN_IDENTITY", True), ("FTBUILD_SIGN_ISSUER", False)],
)
def test_keys_or_an_identity_name_who_is_trusted(
    variable: str, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FTBUILD_TRUSTED_KEYS", "FTBUILD_SIGN_IDENTITY", "FTBUILD_SIGN_ISSUER"):
        monkeypatch.setenv(name, "somebody" if name == variable else "")
    assert verifying.is_anybody_named() is is_named


@pytest.mark.parametrize(
    ("keys_given", "listed"), [((), ""), (("gone.pub",), ""), ((), "'one"), ((), "gone")]
)
def test_without_a_key_that_is_there_nothing_is_trusted(
    keys_given: Sequence[str], listed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTBUILD_TRUSTED_KEYS", listed)
    monkeypatch.delenv("FTBUILD_SIGN_IDENTITY", raising=False)
    with pytest.raises(ConfigError):
        verifying.trusted(keys_given)


@pytest.mark.parametrize("given", ["FTBUILD_SIGN_IDENTITY", "FTBUILD_SIGN_ISSUER"])
def test_an_identity_without_its_issuer_is_nobody(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other issuer may give somebody the same identity."""
    for name in ("FTBUILD_TRUSTED_KEYS", "FTBUILD_SIGN_IDENTITY", "FTBUILD_SIGN_ISSUER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(given, "https://gitlab.com")
    with pytest.raises(ConfigError, match="whose signatures count is not said"):
        verifying.trusted([])


def test_only_the_image_that_was_judged_counts_as_taken(
    shelf: Shelf, cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine may be told another image under the name of a build in the meantime."""
    engine = Engine()
    monkeypatch.setattr(daemon, "connect", lambda: engine.client)
    session = PublishSession(Options(shelf.names, shelf.work))
    judged = shelf.image(cell, "sdk", "some")
    image = remote_image.present(shelf.repository, judged.manifest.digest)
    there = {"sdk": Found(image, PublicKey("ours.pub"))}
    name = f"{shelf.repository.name}@{judged.manifest.digest}"
    engine.add(name, judged.id)
    engine.add(cell.tag("sdk"), judged.id)
    taken = substitution.take(session, cell, there, shelf.said.append)
    assert taken == {"sdk": Substituted(name, judged.manifest.digest, judged.id, "the key ours.pub")}
    assert engine.asked[0] == ("pull", name)
    engine.add(cell.tag("sdk"), "sha256:other")
    with pytest.raises(PublishError, match="the engine has another image than the one that it pulled"):
        substitution.take(session, cell, there, shelf.said.append)


def test_the_names_of_what_was_taken_can_be_taken_away(
    shelf: Shelf, cell: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only one of a pair was pulled the cell is built, under the same names."""
    engine = Engine()
    monkeypatch.setattr(daemon, "connect", lambda: engine.client)
    removed: list[str] = []
    monkeypatch.setattr(engine, "remove", removed.append)
    substitution.drop(PublishSession(Options(shelf.names, shelf.work)), cell)
    assert removed == [cell.tag(product) for product in PRODUCTS]


# The record


def test_what_was_taken_is_read_back_and_forgotten(tmp_path: Path) -> None:
    taken = {"runtime": Substituted(NAME, NAME.rpartition("@")[2], "sha256:1", "the key ours.pub")}
    assert substituted.read(tmp_path) == {}
    substituted.RECORD.write(tmp_path, taken)
    assert substituted.read(tmp_path) == taken
    assert list(substituted.sentences(taken)) == [
        f"the runtime image is {NAME}, signed with the key ours.pub"
    ]
    substituted.RECORD.discard(tmp_path)
    assert substituted.read(tmp_path) == {}


@pytest.mark.parametrize("text", ["", "[]", '{"runtime": {}}', json.dumps({"runtime": {"name": 1}})])
def test_a_damaged_record_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / substituted.RECORD.name).write_text(text)
    with pytest.raises(PublishError, match="is damaged"):
        substituted.read(tmp_path)


# What counts as a signature


def cosign(monkeypatch: pytest.MonkeyPatch, folder: Path, printed: str) -> None:
    """Let cosign verify everything, and print this."""
    (folder / "printed").write_text(printed)
    (folder / "cosign").write_text('#!/bin/sh\ncat "$(dirname "$0")/printed"\n')
    (folder / "cosign").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize(
    ("types", "counts"),
    [
        (["cosign container image signature"], True),
        (["https://sigstore.dev/cosign/sign/v1"], True),
        (["https://ftbuild.invalid/rebuild/v1"], False),
        (["https://ftbuild.invalid/rebuild/v1", "https://sigstore.dev/cosign/sign/v1"], True),
        ([], False),
    ],
)
def test_a_statement_of_a_trusted_key_is_no_signature(
    types: list[str], counts: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """cosign 3 verifies an image of which the key has stated anything."""
    cosign(monkeypatch, tmp_path, json.dumps([{"critical": {"type": each}} for each in types]))
    assert PublicKey("ours.pub").has_signed(NAME, print) is counts


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("Error: no matching signatures: ", None),
        ("Error: no signatures found", None),
        ("Error: GET https://r.example/v2/: UNAUTHORIZED: log in", "UNAUTHORIZED: log in"),
        ("Error: loading public key: open ours.pub: permission denied", "permission denied"),
    ],
)
def test_an_image_is_unsigned_only_if_cosign_says_so(
    why: str, told: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else what a trusted key has signed would be built again, or signed twice, whenever cosign fails."""
    cosign(monkeypatch, tmp_path, "")
    with (tmp_path / "cosign").open("a") as program:
        program.write(f"echo '{why}' >&2; exit 1\n")
    if told is None:
        assert not PublicKey("ours.pub").has_signed(NAME, print)
        return
    with pytest.raises(PublishError, match=f"^cosign could not verify: .*{told}") as failed:
        PublicKey("ours.pub").has_signed(NAME, print)
    assert failed.value.where == NAME


@pytest.mark.parametrize("printed", ["", "verified", "{}", "[1]", '[{"critical": 1}]'])
def test_an_answer_of_cosign_that_cannot_be_read_is_no_signature(
    printed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cosign(monkeypatch, tmp_path, printed)
    if printed == "{}":
        assert not PublicKey("ours.pub").has_signed(NAME, print)
        return
    with pytest.raises(PublishError, match="cannot be read"):
        PublicKey("ours.pub").has_signed(NAME, print)
