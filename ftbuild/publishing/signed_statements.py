"""Signed statements about a published image, one by one, in the form that policies of clusters ask for.

The signature of an index covers its statements already, for who reads them there. cosign verify-attestation
and the admission controllers that are built on it look for an envelope of each (DSSE) instead.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from ftbuild.publishing import referrers, remote_image
from ftbuild.publishing.attest import manifests, materials, provenance, sbom, vex
from ftbuild.publishing.session import PublishSession
from ftbuild.publishing.signing import Signer
from ftbuild.registry.client import Repository
from ftbuild.text import bounded_json
from ftbuild.text.reporter import Reporter

# cosign's own words for predicate types (`cosign attest --help`).
_KINDS = {sbom.PREDICATE: "spdxjson", provenance.PREDICATE: "slsaprovenance1", vex.PREDICATE: "openvex"}
# The public log takes no larger ones (rekor's max_attestation_size).
MAX_LOGGED_BYTES = 100_000
# An SBOM of ours has some 20,000.
MAX_VALUES = 500_000


def gate(name: str) -> str:
    """Return the predicate type of the record of a gate."""
    return f"{materials.NAMES}/gate/{name}/v1"


def attach(session: PublishSession, digest: str, signer: Signer, report: Reporter) -> None:
    """Sign each of our statements about a published index, and attach it; PublishError if cosign fails.

    One that the public log would not take is left out, which is reported.
    """
    repository = session.repository
    name = f"{repository.name}@{digest}"
    for kind, predicate in _predicates(repository, digest):
        if signer.is_logged and len(predicate) > MAX_LOGGED_BYTES:
            report(f"the statement {kind} is too large for the public log, and stays unsigned")
            continue
        with tempfile.TemporaryDirectory(prefix="ftbuild-") as folder:
            file = Path(folder) / "predicate.json"
            file.write_bytes(predicate)
            signer.attest(name, kind, file, report)


def _predicates(repository: Repository, digest: str) -> Iterator[tuple[str, bytes]]:
    """Yield the statements in an index that we make, and the records of gates that its provenance names.

    Anybody who may push can attach further records.
    """
    found = remote_image.present(repository, digest)
    seen, records = set[str](), dict[str, str]()
    for text in remote_image.statements(repository, found):
        said = bounded_json.loads(text, MAX_VALUES)
        kind = said.get("predicateType") if isinstance(said, dict) else None
        if kind in _KINDS and kind not in seen:  # the first of a kind is ours
            seen.add(kind)
            if kind == provenance.PREDICATE:
                records = provenance.records(said["predicate"])
            yield _KINDS[kind], manifests.canonical(said["predicate"])
    for part in repository.referrers(digest):
        gate_name = (part.annotations or {}).get(referrers.GATE_NAME, "")
        artifact = repository.manifest(part.digest) if records.get(f"{gate_name}.json") else None
        for layer in (artifact.content.layers or []) if artifact else []:
            if layer.digest == f"sha256:{records.get(f'{gate_name}.json')}":
                records.pop(f"{gate_name}.json")
                yield gate(gate_name), repository.part(layer)
