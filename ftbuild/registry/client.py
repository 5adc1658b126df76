"""A repository in an OCI registry: manifests, blobs and tags (distribution-spec v1.1)."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

from ftbuild.errors import HostError, PublishError
from ftbuild.registry import address, answers
from ftbuild.registry.answers import Content, ImageConfig, Part, TagList
from ftbuild.registry.auth import Scope
from ftbuild.registry.errors import Refused
from ftbuild.registry.malformed import Malformed
from ftbuild.registry.reference import parse
from ftbuild.registry.session import Session
from ftbuild.registry.transport import CONNECTIONS, Answer
from ftbuild.text import bounded_json, terminal

# A multi-platform index first, since its digest is the one that `docker pull` shows; then single images.
_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_ACCEPT = {"Accept": _MANIFESTS}
_INDEX, _MANIFEST = (f"application/vnd.oci.image.{kind}.v1+json" for kind in ("index", "manifest"))
# By which a registry says that it lists an artifact as a referrer.
_SUBJECT = "OCI-Subject"
# What registries say that know nothing of referrers.
_NO_REFERRERS = (400, 404, 405)
_DIGEST = "Docker-Content-Digest"
_BYTES = {"Content-Type": "application/octet-stream"}
_OK_OR_MISSING = (200, 404)
# The size that registries should accept (distribution-spec v1.1, "Pushing Manifests"); lists of tags, too.
MANIFEST_BYTES = 4 << 20
# The most of a configuration or an attestation, whatever size its manifest states.
BLOB_BYTES = 64 << 20
# How much of a layer is asked for at once.
PIECE_BYTES = 16 << 20
PAGES, TAGS = 1000, 200_000
PUSH = "pull,push"
DELETE = "pull,push,delete"
UPLOAD_TRIES = 3
# An upload that broke off half-way can be refused for a wrong digest, its place or its offset.
_BROKEN_UPLOAD = (400, 404, 416)


@dataclass(frozen=True)
class Descriptor:
    """A digest with its media type and its size in bytes (image-spec v1.1, descriptor.md)."""

    media_type: str
    digest: str
    size: int

    def as_dict(self) -> dict[str, Any]:
        """Return it with the keys of OCI's JSON."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class Manifest:
    """The manifest of an image or an index, byte by byte as the registry has it."""

    descriptor: Descriptor
    raw: bytes

    @cached_property
    def content(self) -> Content:
        """The manifest as data; `Malformed` if it is none."""
        return answers.read(Content, self.raw, self.descriptor.digest)


class Repository:
    """One repository, `host[:port]/path`; those that share a session share its connections and logins.

    Every method raises PublishError when the registry refuses or its answer cannot be right, and HostError
    when it cannot be reached.
    """

    def __init__(self, name: str, session: Session | None = None) -> None:
        self.name = name
        self._session = session or Session()
        self._place = parse(name)

    def head(self, reference: str) -> Descriptor | None:
        """Return the descriptor of a tag or digest; None when the registry has no such manifest."""
        answer = self._request("HEAD", f"manifests/{reference}", headers=_ACCEPT, expected=_OK_OR_MISSING)
        if answer.status == 404:
            return None
        if _DIGEST in answer.headers:
            manifest_digest = answers.digest(answer.headers[_DIGEST])
            size = answers.length(answer.headers.get("Content-Length", "0"))
            return Descriptor(_media_type(answer), manifest_digest, size)
        # A registry may leave the header out (distribution-spec v1.1, "Pulling manifests").
        manifest = self.manifest(reference)
        return manifest.descriptor if manifest else None

    def heads(self, references: Collection[str]) -> dict[str, Descriptor | None]:
        """Return `head` of many references, asked for at the same time."""
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            return dict(zip(references, pool.map(self.head, references), strict=True))

    def manifest(self, reference: str) -> Manifest | None:
        """Return the manifest of a tag or digest; None when the registry has none."""
        answer = self._request(
            "GET",
            f"manifests/{reference}",
            headers=_ACCEPT,
            expected=_OK_OR_MISSING,
            limit=MANIFEST_BYTES,
        )
        if answer.status == 404:
            return None
        raw = answer.body
        digest = reference if ":" in reference else answer.headers.get(_DIGEST, digest_of(raw))
        self._check(raw, digest)
        return Manifest(Descriptor(_media_type(answer), digest, len(raw)), raw)

    def put_manifest(self, reference: str, raw: bytes, media_type: str) -> Descriptor:
        """Store a manifest under a tag or its digest; what it refers to must be there already."""
        self._put(reference, raw, media_type)
        return Descriptor(media_type, digest_of(raw), len(raw))

    def _put(self, reference: str, raw: bytes, media_type: str) -> Answer:
        answer = self._request(
            "PUT",
            f"manifests/{reference}",
            actions=PUSH,
            headers={"Content-Type": media_type},
            data=raw,
            expected=(201,),
        )
        own = digest_of(raw)
        if answer.headers.get(_DIGEST, own) != own:
            raise PublishError(
                "the registry stored another manifest than the one it was sent",
                where=f"{self.name}: {terminal.printable(answer.headers[_DIGEST][:200])} instead of {own}",
                hint="something between here and the registry rewrites manifests",
            )
        return answer

    def referrers(self, digest: str) -> list[Part]:
        """Return the artifacts about a manifest (distribution-spec v1.1, "Listing Referrers"); none for none.

        A registry without such a list has them under a tag, as clients that put them there agree.
        """
        answer = self._request(
            "GET",
            f"referrers/{answers.digest(digest)}",
            headers={"Accept": _INDEX},
            expected=(200, *_NO_REFERRERS),
            limit=MANIFEST_BYTES,
        )
        if answer.status == 200:
            return answers.read(Content, answer.body, f"{self.name}: referrers").manifests or []
        index = self.manifest(referrers_tag(digest))
        return (index.content.manifests or []) if index else []

    def put_referrer(
        self, raw: bytes, subject: str, artifact_type: str, annotations: Mapping[str, str]
    ) -> Descriptor:
        """Store the manifest of an artifact whose `subject` is the manifest of that digest.

        A registry that does not say that it lists it gets the list under the tag for that (distribution-spec
        v1.1, "Pushing Manifests with Subject"). Another client that changes this tag at the same time may
        win.
        """
        digest = digest_of(raw)
        answer = self._put(digest, raw, _MANIFEST)
        descriptor = Descriptor(_MANIFEST, digest, len(raw))
        if answer.headers.get(_SUBJECT) != subject:
            self._list_referrer(
                subject,
                {**descriptor.as_dict(), "artifactType": artifact_type, "annotations": dict(annotations)},
            )
        return descriptor

    def _list_referrer(self, subject: str, entry: dict[str, Any]) -> None:
        tag = referrers_tag(subject)
        there = self.manifest(tag)
        listed = _listed(there.raw) if there and there.content.manifests is not None else []
        if all(each.get("digest") != entry["digest"] for each in listed):
            content = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [*listed, entry]}
            self._put(tag, json.dumps(content, sort_keys=True, separators=(",", ":")).encode(), _INDEX)

    def delete(self, reference: str) -> bool:
        """Delete a tag, or by a digest a manifest with all its tags; return whether the registry can.

        distribution-spec v1.1, "Content Management": registries need not offer either.
        """
        try:
            statuses = (200, 202, 204, 404)
            self._request("DELETE", f"manifests/{reference}", actions=DELETE, expected=statuses)
        except Refused as refused:
            if refused.status in (400, 405, 415, 501):
                return False
            raise
        return True

    def blob(self, digest: str, size: int = BLOB_BYTES) -> bytes:
        """Return the content of a blob of at most `size` bytes, checked against its digest."""
        content = self._request("GET", f"blobs/{digest}", limit=size).body
        self._check(content, digest)
        return content

    def part(self, part: Part) -> bytes:
        """Return the content of a blob that a manifest refers to, of the size that it states."""
        content = self.blob(part.digest, min(part.size, BLOB_BYTES))
        if len(content) != part.size:
            raise Malformed(
                "the content that the registry sent does not have the size in the manifest",
                where=f"{self.name}@{part.digest}, {len(content)} bytes, not {part.size}",
            )
        return content

    def pieces(self, part: Part) -> Iterator[bytes]:
        """Yield the content of a blob of any size in pieces, checked against its digest at the end.

        Asks for ranges, which registries should give (distribution-spec v1.1, "Pulling blobs").
        """
        algorithm = part.digest.partition(":")[0]
        hasher = hashlib.new(algorithm)
        for start in range(0, part.size, PIECE_BYTES):
            size = min(PIECE_BYTES, part.size - start)
            ranged = {} if size == part.size else {"Range": f"bytes={start}-{start + size - 1}"}
            piece = self._request(
                "GET",
                f"blobs/{part.digest}",
                headers=ranged,
                expected=(206,) if ranged else (200,),
                limit=size,
            ).body
            if len(piece) != size:
                raise Malformed("a registry sent fewer bytes of a blob than requested", where=part.digest)
            hasher.update(piece)
            yield piece
        if f"{algorithm}:{hasher.hexdigest()}" != part.digest:
            raise self._changed(part.digest, part.size)

    def put_blob(self, data: bytes, media_type: str) -> Descriptor:
        """Store a blob, unless the registry has it already."""
        descriptor = Descriptor(media_type, digest_of(data), len(data))
        self.put_file(io.BytesIO(data), descriptor)
        return descriptor

    def put_file(self, file: IO[bytes], descriptor: Descriptor) -> None:
        """Store the content of a file as the blob of a descriptor, unless the registry has it already."""
        if not self.has_blob(descriptor.digest):
            self._upload(file, descriptor)

    def has_blob(self, digest: str) -> bool:
        """Return whether the repository has a blob (distribution-spec v1.1, "Checking if content exists")."""
        return self._request("HEAD", f"blobs/{digest}", expected=_OK_OR_MISSING).status != 404

    def config(self, manifest: Manifest) -> ImageConfig:
        """Return the configuration of an image, given its manifest (image-spec v1.1, config.md)."""
        config = manifest.content.config
        if config is None:
            raise PublishError("there is an index in place of an image", where=manifest.descriptor.digest)
        return answers.read(ImageConfig, self.part(config), config.digest)

    def tags(self) -> list[str]:
        """Return all tags (distribution-spec v1.1, "Listing Tags"); none without such a repository."""
        names: list[str] = []
        path, seen = "tags/list", set[str]()
        while path not in seen and len(seen) < PAGES and len(names) <= TAGS:
            seen.add(path)
            answer = self._request("GET", path, expected=_OK_OR_MISSING, limit=MANIFEST_BYTES)
            if answer.status == 404:
                return names
            names += answers.read(TagList, answer.body, f"{self.name}: tags").tags or []
            following = answer.next_page
            if not following:
                return names
            path = self._own(following)
        raise Malformed(
            f"the list of tags does not end after {len(seen)} pages and {len(names)} tags", where=self.name
        )

    def _own(self, place: str) -> str:
        """Return a further page as a URL; `Malformed` if it is on another server."""
        root = self._session.api(self._place.host)
        url = address.resolved(root, place)
        if not address.is_within(url, root):
            raise Malformed("the list of tags goes on at another server", where=self.name)
        return url

    def _upload(self, file: IO[bytes], descriptor: Descriptor) -> None:
        """Upload in one piece (distribution-spec v1.1, "POST then PUT"), again if the connection broke."""
        for left in reversed(range(UPLOAD_TRIES)):
            start = self._request("POST", "blobs/uploads/", actions=PUSH, expected=(202,))
            place = start.headers.get("Location", "")
            if not place:
                raise Malformed("the registry returned no location for an upload", where=self.name)
            url = f"{place}{'&' if '?' in place else '?'}digest={descriptor.digest}"
            try:
                # requests would send an empty file in chunks, which some registries refuse.
                data = file if descriptor.size else b""
                self._request("PUT", url, actions=PUSH, headers=_BYTES, data=data, expected=(201,))
                return
            except Refused as refused:
                if not left or refused.status not in _BROKEN_UPLOAD:
                    raise

    def _request(self, method: str, path: str, *, actions: str = "pull", **more: Any) -> Answer:
        """Send a request; `path` is below the repository, or a whole path or URL that the registry gave."""
        scope = Scope(self._place.host, self._place.repository, actions)
        root = f"{self._session.api(scope.host)}{scope.repository}/"
        return self._session.request(scope, method, address.resolved(root, path), **more)

    def _check(self, content: bytes, digest: str) -> None:
        algorithm = answers.digest(digest).partition(":")[0]
        if digest_of(content, algorithm) != digest:
            raise self._changed(digest, len(content))

    def _changed(self, digest: str, size: int) -> Malformed:
        return Malformed(
            "the content that the registry sent does not have the requested digest",
            where=f"{self.name}@{digest}, {size} bytes",
            hint="try again; if the error persists, the registry's storage or a proxy on the way is broken",
        )


def digest_of(data: bytes, algorithm: str = "sha256") -> str:
    """Return `sha256:<hex>` of `data`."""
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def referrers_tag(digest: str) -> str:
    """Return the tag of the list of artifacts about a manifest (distribution-spec v1.1, Referrers Tag)."""
    algorithm, _, value = digest.partition(":")
    return f"{algorithm[:32]}-{value[:64]}"


def _listed(raw: bytes) -> list[dict[str, Any]]:
    """Return the entries of an index that was validated, with all their fields."""
    return list(bounded_json.loads(raw)["manifests"])


def current(name: str) -> str | None:
    """Return the current digest of a tag (`sha256:...`); None when the registry has no such tag.

    Raises HostError within seconds when it does not answer.
    """
    image = parse(name)
    repository = Repository(f"{image.registry}/{image.repository}", Session(patient=False))
    try:
        descriptor = repository.head(image.tag)
    except PublishError as refused:
        raise HostError(refused.what, where=refused.where, hint=refused.hint) from refused
    return descriptor.digest if descriptor else None


def digest(name: str) -> str:
    """Return the current digest of a tag; raise HostError also when the registry has no such tag."""
    current_digest = current(name)
    if current_digest is None:
        image = parse(name)
        raise HostError(f"the registry has no {name}", where=f"{image.registry}/{image.repository}: HTTP 404")
    return current_digest


def require_reachable(name: str, *, purpose: str, hint: str) -> None:
    """Raise HostError within seconds unless the image's registry answers."""
    try:
        Session(patient=False).answers(parse(name).host)
    except HostError as silent:
        raise HostError(
            f"{purpose}: the image {name} is not on this machine and its registry cannot be reached",
            where=silent.where,
            hint=hint,
        ) from silent


def _media_type(answer: Answer) -> str:
    return answers.media_type(answer.headers.get("Content-Type", ""))
