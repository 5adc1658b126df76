"""Requests to a registry as they are on the wire, and what is made of its answers."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ftbuild import __version__
from ftbuild.errors import HostError, PublishError
from ftbuild.registry import answers as answers_of
from ftbuild.registry import client, transport
from ftbuild.registry.answers import ImageConfig, Part
from ftbuild.registry.client import Descriptor, Repository, digest_of
from ftbuild.registry.errors import Refused
from ftbuild.registry.malformed import Malformed
from ftbuild.registry.session import Session
from tests.unit.registry.answering import MANIFEST_TYPE, Answers, serving

RAW = b'{"schemaVersion": 2}'
DIGEST = digest_of(RAW)
OTHER = "sha256:" + "7" * 64


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """A registry for a user without any login."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with serving() as found:
        yield found


@pytest.fixture
def there(answers: Answers) -> Repository:
    return Repository(f"{answers.host}/team/image", Session(patient=False))


def asked(answers: Answers) -> list[str]:
    """Return method and path of each request, and forget them."""
    found = [f"{method} {path}" for method, path, _ in answers.seen]
    answers.seen.clear()
    return found


def test_a_request_says_who_asks_and_wants_nothing_compressed(answers: Answers, there: Repository) -> None:
    answers.give({"tags": []})
    there.tags()
    ((headers, body),) = answers.sent
    assert headers["User-Agent"] == f"ftbuild/{__version__}"
    assert headers["Accept-Encoding"] == "identity"
    assert "Authorization" not in headers
    assert body == b""


def test_a_manifest_is_asked_for_as_an_index_or_an_image(answers: Answers, there: Repository) -> None:
    answers.give(RAW, Docker_Content_Digest=DIGEST)
    found = there.manifest("1")
    assert found
    assert (found.descriptor, found.raw) == (Descriptor(MANIFEST_TYPE, DIGEST, len(RAW)), RAW)
    assert there.head("1") == Descriptor(MANIFEST_TYPE, DIGEST, len(RAW))
    assert asked(answers) == ["GET /v2/team/image/manifests/1", "HEAD /v2/team/image/manifests/1"]
    for headers, _ in answers.sent:
        assert headers["Accept"].split(", ") == [
            "application/vnd.oci.image.index.v1+json",
            "application/vnd.docker.distribution.manifest.list.v2+json",
            "application/vnd.oci.image.manifest.v1+json",
            "application/vnd.docker.distribution.manifest.v2+json",
        ]


def test_what_is_not_there_is_none(answers: Answers, there: Repository) -> None:
    answers.give(b"", 404)
    assert (there.head("1"), there.manifest("1"), there.tags()) == (None, None, [])
    assert there.heads(["1", "2"]) == {"1": None, "2": None}


def test_heads_are_those_of_their_tags(answers: Answers, there: Repository) -> None:
    for tag, digest in (("a", DIGEST), ("b", OTHER)):
        headers = {"Content-Type": "a/b", "Docker-Content-Digest": digest, "Content-Length": "3"}
        answers.where[f"manifests/{tag}"] = (200, headers, b"")
    assert there.heads(("a", "b")) == {"a": Descriptor("a/b", DIGEST, 3), "b": Descriptor("a/b", OTHER, 3)}


def test_a_registry_may_leave_out_the_digest(answers: Answers, there: Repository) -> None:
    answers.give(RAW)
    assert there.head("1") == Descriptor(MANIFEST_TYPE, DIGEST, len(RAW))
    assert asked(answers) == ["HEAD /v2/team/image/manifests/1", "GET /v2/team/image/manifests/1"]


def test_content_of_another_digest_is_refused(answers: Answers, there: Repository) -> None:
    answers.give(RAW, Docker_Content_Digest=OTHER)
    for call in (lambda: there.manifest("1"), lambda: there.manifest(OTHER), lambda: there.blob(OTHER)):
        with pytest.raises(Malformed, match="does not have the requested digest") as wrong:
            call()
        assert wrong.value.where == f"{there.name}@{OTHER}, {len(RAW)} bytes"
    answers.give(RAW)
    assert there.manifest(DIGEST)
    sha512 = digest_of(RAW, "sha512")
    assert sha512 == f"sha512:{hashlib.sha512(RAW).hexdigest()}"
    assert there.blob(sha512) == RAW


def test_the_digest_that_was_asked_for_counts_and_not_the_one_that_the_registry_tells(
    answers: Answers, there: Repository
) -> None:
    answers.give(RAW, Docker_Content_Digest=DIGEST)
    assert there.manifest(DIGEST)
    with pytest.raises(Malformed, match="does not have the requested digest"):
        there.manifest(OTHER)


def test_a_type_may_have_parameters() -> None:
    assert answers_of.media_type("application/json ; charset=utf-8") == "application/json"


def test_a_manifest_is_stored_with_its_type(answers: Answers, there: Repository) -> None:
    answers.give(b"", 201)
    assert there.put_manifest("1", RAW, "a/b") == Descriptor("a/b", DIGEST, len(RAW))
    assert there.put_manifest("1", RAW, "a/b").as_dict() == {
        "mediaType": "a/b",
        "digest": DIGEST,
        "size": len(RAW),
    }
    assert asked(answers) == ["PUT /v2/team/image/manifests/1"] * 2
    headers, body = answers.sent[0]
    assert (headers["Content-Type"], body) == ("a/b", RAW)
    answers.give(b"", 201, Docker_Content_Digest=OTHER)
    with pytest.raises(PublishError, match="stored another manifest") as other:
        there.put_manifest("1", RAW, "a/b")
    assert other.value.where == f"{there.name}: {OTHER} instead of {DIGEST}"
    answers.give(b"", 200)
    with pytest.raises(Refused):
        there.put_manifest("1", RAW, "a/b")


@pytest.mark.parametrize(
    ("status", "deleted"),
    [(200, True), (202, True), (204, True), (404, True)]
    + [(status, False) for status in (400, 405, 415, 501)],
)
def test_a_registry_that_cannot_delete_says_so(
    answers: Answers, there: Repository, status: int, deleted: bool
) -> None:
    answers.give(b"", status)
    assert there.delete("1") is deleted
    assert asked(answers) == ["DELETE /v2/team/image/manifests/1"]


def test_a_registry_that_refuses_to_delete_is_an_error(answers: Answers, there: Repository) -> None:
    answers.give(b"", 403)
    with pytest.raises(Refused):
        there.delete("1")


def uploading(answers: Answers, location: str, *, there: int = 404, put: int = 201) -> None:
    answers.where["HEAD"] = (there, {}, b"")
    answers.where["POST"] = (202, {"Location": location}, b"")
    answers.where["PUT"] = (put, {}, b"")


@pytest.mark.parametrize(
    ("location", "put"),
    [
        ("/v2/team/image/blobs/uploads/9?state=x", "/v2/team/image/blobs/uploads/9?state=x&digest="),
        ("/v2/team/image/blobs/uploads/9", "/v2/team/image/blobs/uploads/9?digest="),
    ],
)
def test_a_blob_is_uploaded_where_the_registry_wants_it(
    answers: Answers, there: Repository, location: str, put: str
) -> None:
    uploading(answers, location)
    assert there.put_blob(RAW, "text/plain") == Descriptor("text/plain", DIGEST, len(RAW))
    assert asked(answers) == [
        f"HEAD /v2/team/image/blobs/{DIGEST}",
        "POST /v2/team/image/blobs/uploads/",
        f"PUT {put}{DIGEST}",
    ]
    headers, body = answers.sent[-1]
    assert (headers["Content-Type"], body) == ("application/octet-stream", RAW)


def test_a_blob_that_is_there_is_not_uploaded(answers: Answers, there: Repository) -> None:
    uploading(answers, "", there=200)
    there.put_blob(RAW, "text/plain")
    assert asked(answers) == [f"HEAD /v2/team/image/blobs/{DIGEST}"]


@pytest.mark.parametrize(("status", "tries"), [(400, 3), (404, 3), (416, 3), (500, 1)])
def test_an_upload_that_broke_off_begins_anew_twice(
    answers: Answers, there: Repository, status: int, tries: int
) -> None:
    uploading(answers, "/v2/team/image/blobs/uploads/9", put=status)
    with pytest.raises(Refused) as refused:
        there.put_blob(RAW, "text/plain")
    assert refused.value.status == status
    assert [body for _, body in answers.sent if body] == [RAW] * tries, "each time from its beginning"
    assert [line.split()[0] for line in asked(answers)] == ["HEAD", *["POST", "PUT"] * tries]


def test_tags_are_those_of_all_pages(answers: Answers, there: Repository) -> None:
    answers.where["last=b"] = (200, {}, b'{"tags": ["c"]}')
    links = '</v2/team/image/tags/list?last=a>; rel="previous", </v2/team/image/tags/list?last=b>; rel="next"'
    answers.give({"tags": ["a", "b"]}, Link=links)
    assert there.tags() == ["a", "b", "c"]
    answers.give({"tags": None})
    assert there.tags() == []


def test_pages_and_tags_have_an_end(
    answers: Answers, there: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAGES", 2)
    for page in "123":
        link = {"Link": f'</v2/team/image/tags/list?last={page}>; rel="next"'}
        answers.where[f"last={chr(ord(page) - 1)}"] = (200, link, b'{"tags": ["x"]}')
    answers.give({"tags": ["x"]}, Link='</v2/team/image/tags/list?last=0>; rel="next"')
    with pytest.raises(Malformed, match="does not end after 2 pages and 2 tags"):
        there.tags()
    monkeypatch.setattr(client, "PAGES", 1000)
    monkeypatch.setattr(client, "TAGS", 2)
    with pytest.raises(Malformed, match="does not end after 3 pages and 3 tags"):
        there.tags()


def test_the_configuration_of_an_image_is_read_and_an_index_has_none(
    answers: Answers, there: Repository
) -> None:
    config = json.dumps(
        {"architecture": "arm64", "os": "linux", "variant": "v8", "config": {"Labels": {"a": "b"}}}
    ).encode()
    part = {"mediaType": "a/b", "digest": digest_of(config), "size": len(config)}
    answers.where["blobs/"] = (200, {}, config)
    answers.give({"config": part})
    image = there.manifest("1")
    assert image
    found = there.config(image)
    assert found.platform == {"architecture": "arm64", "os": "linux", "variant": "v8"}
    assert found.labels == {"a": "b"}
    answers.give({"config": {**part, "size": len(config) - 1}})
    small = there.manifest("1")
    assert small
    with pytest.raises(Malformed, match=f"more than the {len(config) - 1} bytes"):
        there.config(small)
    answers.give({"manifests": [part]})
    index = there.manifest("1")
    assert index
    with pytest.raises(PublishError, match="an index in place of an image"):
        there.config(index)


def test_the_platform_of_an_image_is_all_that_its_configuration_says_of_it() -> None:
    """And nothing else of the configuration (image-spec v1.1, config.md and image-index.md)."""
    platform = {
        "architecture": "amd64",
        "os": "windows",
        "os.version": "10.0.1",
        "os.features": ["win32k"],
        "variant": "v1",
    }
    more = {"config": {"Labels": {"a": "b"}}, "rootfs": {"type": "layers", "diff_ids": [OTHER]}}
    found = answers_of.read(ImageConfig, json.dumps({**platform, **more, "author": "ada"}).encode(), "here")
    assert found.platform == platform
    assert found.labels == {"a": "b"}
    assert found.rootfs
    assert found.rootfs.diff_ids == [OTHER]
    bare = answers_of.read(ImageConfig, b'{"architecture": "amd64", "os": "linux"}', "here")
    assert (bare.platform, bare.labels) == ({"architecture": "amd64", "os": "linux"}, {})


# Layers

PIECE = b"0123456789"


def layer(content: bytes, size: int | None = None) -> Part:
    """Return what a manifest says of a blob."""
    return Part(digest=digest_of(content), size=len(content) if size is None else size)


def ranges(answers: Answers) -> list[str | None]:
    found = [headers.get("Range") for headers, _ in answers.sent]
    answers.sent.clear()
    return found


def test_a_large_blob_is_asked_for_in_pieces_and_a_small_one_at_once(
    answers: Answers, there: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PIECE_BYTES", len(PIECE))
    answers.give(PIECE, 206)
    assert list(there.pieces(layer(2 * PIECE))) == [PIECE, PIECE]
    assert asked(answers) == [f"GET /v2/team/image/blobs/{digest_of(2 * PIECE)}"] * 2
    assert ranges(answers) == ["bytes=0-9", "bytes=10-19"]
    answers.give(PIECE)
    assert list(there.pieces(layer(PIECE))) == [PIECE]
    assert ranges(answers) == [None]
    long = hashlib.sha512(PIECE).hexdigest()
    assert list(there.pieces(Part(digest=f"sha512:{long}", size=10))) == [PIECE]
    assert list(there.pieces(layer(b""))) == []


def test_a_blob_that_is_not_what_the_manifest_says_is_refused_at_its_end(
    answers: Answers, there: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PIECE_BYTES", len(PIECE))
    answers.give(PIECE, 206)
    with pytest.raises(Malformed, match="does not have the requested digest") as changed:
        list(there.pieces(Part(digest=OTHER, size=20)))
    assert changed.value.where == f"{there.name}@{OTHER}, 20 bytes"
    with pytest.raises(Malformed, match="does not have the requested digest"):
        list(there.pieces(Part(digest=OTHER, size=0)))
    with pytest.raises(Malformed, match="more than the 5 bytes"):
        list(there.pieces(layer(3 * PIECE, 25)))
    answers.give(PIECE)
    with pytest.raises(Refused):  # all of it, to who asked for a piece
        list(there.pieces(layer(2 * PIECE)))
    answers.give(PIECE[:9])
    with pytest.raises(Malformed, match="fewer bytes of a blob than requested"):
        list(there.pieces(layer(PIECE)))


def test_a_blob_of_another_size_than_the_manifest_says_is_refused(
    answers: Answers, there: Repository
) -> None:
    answers.give(PIECE)
    assert there.part(layer(PIECE)) == PIECE
    with pytest.raises(Malformed, match="does not have the size in the manifest") as wrong:
        there.part(layer(PIECE, 11))
    assert wrong.value.where == f"{there.name}@{layer(PIECE).digest}, 10 bytes, not 11"


# What refers to a manifest (distribution-spec v1.1)

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
IMAGE_TYPE = "application/vnd.oci.image.manifest.v1+json"
FALLBACK = OTHER.replace(":", "-")
ENTRY = {"mediaType": IMAGE_TYPE, "digest": DIGEST, "size": len(RAW)}


def test_a_registry_is_asked_for_what_refers_to_a_manifest(answers: Answers, there: Repository) -> None:
    answers.give({"schemaVersion": 2, "manifests": [{**ENTRY, "annotations": {"a": "b"}}]})
    (found,) = there.referrers(OTHER)
    assert (found.media_type, found.digest, found.size) == (IMAGE_TYPE, DIGEST, len(RAW))
    assert found.annotations == {"a": "b"}
    assert asked(answers) == [f"GET /v2/team/image/referrers/{OTHER}"]
    assert answers.sent[-1][0]["Accept"] == INDEX_TYPE
    answers.give({"schemaVersion": 2})
    assert there.referrers(OTHER) == []


@pytest.mark.parametrize("status", [400, 404, 405])
def test_a_registry_without_such_a_list_has_it_under_a_tag(
    answers: Answers, there: Repository, status: int
) -> None:
    answers.where["referrers/"] = (status, {}, b"")
    answers.give({"schemaVersion": 2, "manifests": [ENTRY]})
    assert [part.digest for part in there.referrers(OTHER)] == [DIGEST]
    assert asked(answers)[-1] == f"GET /v2/team/image/manifests/{FALLBACK}"
    answers.give(b"", 404)
    assert there.referrers(OTHER) == []
    answers.give({"schemaVersion": 2, "config": ENTRY})
    assert there.referrers(OTHER) == []


def test_a_registry_that_refuses_to_list_is_an_error(answers: Answers, there: Repository) -> None:
    answers.where["referrers/"] = (403, {}, b"")
    with pytest.raises(Refused):
        there.referrers(OTHER)
    with pytest.raises(Malformed, match="invalid digest"):
        there.referrers("sha256:7")


def test_an_artifact_that_the_registry_lists_by_itself_is_stored_and_no_more(
    answers: Answers, there: Repository
) -> None:
    answers.give(b"", 201, OCI_Subject=OTHER)
    assert there.put_referrer(RAW, OTHER, "text/plain", {"a": "b"}) == Descriptor(
        IMAGE_TYPE, DIGEST, len(RAW)
    )
    assert asked(answers) == [f"PUT /v2/team/image/manifests/{DIGEST}"]
    assert (answers.sent[-1][0]["Content-Type"], answers.sent[-1][1]) == (IMAGE_TYPE, RAW)


def test_elsewhere_an_artifact_is_added_to_the_list_under_the_tag(
    answers: Answers, there: Repository
) -> None:
    """What others have listed stays, with fields that nothing here reads."""
    other = {
        "mediaType": IMAGE_TYPE,
        "digest": "sha256:" + "8" * 64,
        "size": 3,
        "artifactType": "a/b",
        "x": 1,
    }
    listed = json.dumps({"schemaVersion": 2, "manifests": [other]}).encode()
    answers.where["GET"] = (200, {"Content-Type": INDEX_TYPE}, listed)
    answers.give(b"", 201)
    there.put_referrer(RAW, OTHER, "text/plain", {"a": "b"})
    assert asked(answers) == [
        f"PUT /v2/team/image/manifests/{DIGEST}",
        f"GET /v2/team/image/manifests/{FALLBACK}",
        f"PUT /v2/team/image/manifests/{FALLBACK}",
    ]
    headers, sent = answers.sent[-1]
    mine = {**ENTRY, "artifactType": "text/plain", "annotations": {"a": "b"}}
    assert headers["Content-Type"] == INDEX_TYPE
    assert json.loads(sent) == {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [other, mine]}
    answers.where["GET"] = (200, {"Content-Type": INDEX_TYPE}, sent)
    there.put_referrer(RAW, OTHER, "text/plain", {"a": "b"})
    assert [line.split()[0] for line in asked(answers)] == ["PUT", "GET"]  # it is there
    for status, body in ((404, b""), (200, json.dumps({"config": ENTRY}).encode())):
        answers.where["GET"] = (status, {"Content-Type": INDEX_TYPE}, body)
        there.put_referrer(RAW, OTHER, "text/plain", {})
        assert json.loads(answers.sent[-1][1])["manifests"] == [mine | {"annotations": {}}]


def test_answers_have_limits() -> None:
    """Those that the specification recommends for manifests, and what is more than enough for the rest."""
    assert (client.MANIFEST_BYTES, client.BLOB_BYTES) == (4 * 2**20, 64 * 2**20)
    assert (client.PAGES, client.TAGS, client.UPLOAD_TRIES) == (1000, 200_000, 3)
    assert (transport.ANSWER_BYTES, transport.REDIRECTS, transport.BODY_TRIES) == (2**20, 5, 3)
    assert (transport.CONNECT_SECONDS, transport.ANSWER_SECONDS) == (5, 60)


def test_the_digest_of_a_tag_is_asked_for_at_once(answers: Answers) -> None:
    answers.give(b"", Docker_Content_Digest=OTHER)
    name = f"{answers.host}/team/image:1"
    assert (client.current(name), client.digest(name)) == (OTHER, OTHER)
    answers.give(b"", 404)
    assert client.current(name) is None
    with pytest.raises(HostError, match=f"the registry has no {name}") as absent:
        client.digest(name)
    assert absent.value.where == f"{answers.host}/team/image: HTTP 404"
    answers.give(b"", 403)
    with pytest.raises(HostError, match="wants a login for team/image"):
        client.current(name)


@pytest.mark.parametrize(
    "ask",
    [client.current, partial(client.require_reachable, purpose="base ngc", hint="")],
    ids=["digest", "reachable"],
)
def test_who_waits_for_a_registry_is_told_in_seconds_that_it_is_silent(
    ask: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECT_SECONDS", 0.2)
    begin = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(HostError):
        ask(f"127.0.0.1:{silent.getsockname()[1]}/x:1")
    assert time.monotonic() - begin < 10, "an answer to a build may take a minute, and has more tries"


def test_a_registry_that_wants_a_login_can_be_reached(answers: Answers) -> None:
    answers.give(b"", 401)
    client.require_reachable(f"{answers.host}/x:1", purpose="base ngc", hint="")
    assert asked(answers) == ["GET /v2/"]


def test_without_an_answer_the_purpose_is_named() -> None:
    with pytest.raises(HostError) as silent:
        client.require_reachable("127.0.0.1:1/x:1", purpose="base ngc", hint="use --base open")
    assert silent.value.what == (
        "base ngc: the image 127.0.0.1:1/x:1 is not on this machine and its registry cannot be reached"
    )
    assert (silent.value.where or "").startswith("http://127.0.0.1:1/v2/: ")


def test_an_answer_that_breaks_off_is_asked_for_thrice(answers: Answers) -> None:
    answers.give(b'4\r\n{"ta', Transfer_Encoding="chunked")
    with pytest.raises(HostError, match="broke off in the middle of an answer") as broken:
        Repository(f"{answers.host}/team/image").tags()
    assert broken.value.hint == "try again later"
    assert len(asked(answers)) == 3
    with pytest.raises(HostError, match="broke off in the middle of an answer"):
        Repository(f"{answers.host}/team/image", Session(patient=False)).tags()
    assert len(asked(answers)) == 1
