"""Answers that no registry should give: every one is an error of ours, at once and within little memory.

FTBUILD_FUZZ=minutes tries for longer, with other answers than the usual ones.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import os
import random
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from ftbuild.errors import ConfigError, FtbuildError, HostError, PublishError
from ftbuild.publishing import index, remote_image
from ftbuild.registry import address, client, reference, transport
from ftbuild.registry.answers import Content, read
from ftbuild.registry.client import MANIFEST_BYTES, Repository
from ftbuild.registry.malformed import Malformed
from ftbuild.registry.policy import RetryPolicy
from ftbuild.registry.session import Session
from tests.unit.registry.answering import MANIFEST_TYPE, PAIR, Answers, serving

MINUTES = float(os.environ.get("FTBUILD_FUZZ") or 0)
SECONDS, BYTES = 2.0, 500 * 10**6
# Of an answer: several times what any reader takes.
MAX_BYTES = 2 * 10**7
DIGEST = "sha256:" + "7" * 64
PART = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": DIGEST, "size": 7}
ANNOTATIONS = {
    "io.ftbuild.product": "runtime",
    "io.ftbuild.cell": "22.12-sm80",
    "io.ftbuild.key": "0123456789ab",
    "io.ftbuild.base": "open",
    "io.ftbuild.triton": "22.12",
    "io.ftbuild.server": "2.29.0",
    "io.ftbuild.cuda": "11.8",
    "io.ftbuild.driver": "520.61",
    "io.ftbuild.sm": "80,86",
}
INDEX = {
    "schemaVersion": 2,
    "manifests": PAIR,
    "annotations": ANNOTATIONS,
}
IMAGE = {"schemaVersion": 2, "config": PART, "layers": [PART], "annotations": ANNOTATIONS}
TAGS = {"name": "team/image", "tags": ["22.12-sm80", "22.12-sm86", "latest"]}
TOKEN = {"token": "abc", "access_token": "def", "expires_in": 60}
ERRORS = {"errors": [{"code": "DENIED", "message": "no", "detail": None}]}
CONFIG = {"architecture": "amd64", "os": "linux", "config": {"Labels": {"a": "b"}}}
BODIES = (INDEX, IMAGE, TAGS, TOKEN, ERRORS, CONFIG)


@pytest.fixture(scope="module")
def server() -> Iterator[Answers]:
    with serving() as answers:
        yield answers


@pytest.fixture
def answers(server: Answers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """Return a registry that answers as it is told, to a user who is logged in."""
    folder = tmp_path_factory.mktemp("docker")
    (folder / "config.json").write_text(json.dumps({"auths": {server.host: {"auth": "YWRhOmh1bnRlcjI="}}}))
    server.where.clear()
    server.seen.clear()
    server.give(b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_CONFIG", str(folder))
        yield server


def repository(answers: Answers, *, patient: bool = False) -> Repository:
    return Repository(f"{answers.host}/team/image", Session(patient=patient))


def read_index(there: Repository) -> object:
    return index.as_markdown(index.read(there, lambda line: None), [])


def read_config(there: Repository) -> object:
    manifest = there.manifest("1")
    return there.config(manifest) if manifest else None


CALLS: Mapping[str, Callable[[Repository], object]] = {
    "head": lambda there: there.head("1"),
    "manifest": lambda there: (found := there.manifest("1")) and found.content,
    "tags": lambda there: there.tags(),
    "config": read_config,
    "blob": lambda there: there.blob(DIGEST, 100),
    "put blob": lambda there: there.put_blob(b"x", "text/plain"),
    "put manifest": lambda there: there.put_manifest("1", b"{}", MANIFEST_TYPE),
    "image": lambda there: remote_image.read(there, "1"),
    "index": read_index,
}


def test_good_answers_are_understood(answers: Answers) -> None:
    there = repository(answers)
    answers.give(INDEX)
    manifest = there.manifest("1")
    assert manifest
    assert manifest.content.annotations == ANNOTATIONS
    (entry,) = index._entries("r.example/x", "22.12-sm80", manifest)
    assert (entry.sms, entry.driver, entry.product) == ((80, 86), "520.61", "runtime")
    answers.give(TAGS)
    assert there.tags() == TAGS["tags"]


# One at a time


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b'"x"',
        b"[" * 100_000,
        b'{"annotations": ' + b'{"a":' * 100_000,
        b"\xff\xfe",
    ],
)
@pytest.mark.parametrize("call", ["manifest", "tags", "config", "image"])
def test_what_is_not_a_json_object_is_refused(answers: Answers, call: str, body: bytes) -> None:
    answers.give(body)
    with pytest.raises(Malformed, match="did not send JSON of the expected form"):
        CALLS[call](repository(answers))


@pytest.mark.parametrize(
    "change",
    [
        {"annotations": []},
        {"annotations": {"io.ftbuild.sm": 80}},
        {"manifests": {}},
        {"manifests": [7]},
        {"manifests": [{**PART, "digest": "sha256:../../x"}]},
        {"manifests": [{**PART, "digest": 7}]},
        {"manifests": [{**PART, "size": -1}]},
        {"manifests": [{**PART, "size": "7"}]},
        {"manifests": [{"size": 7}]},
        {"manifests": [{**PART, "mediaType": "a\nb"}]},
        {"config": "sha256"},
    ],
)
def test_a_manifest_of_another_form_is_refused(answers: Answers, change: dict[str, Any]) -> None:
    answers.give({**INDEX, **change})
    with pytest.raises(Malformed, match="JSON of the expected form"):
        remote_image.read(repository(answers), "1")


@pytest.mark.parametrize(
    ("headers", "message", "where"),
    [
        ({"Docker_Content_Digest": "nonsense\tdigest"}, "an invalid digest", "nonsense digest"),
        ({"Docker_Content_Digest": "md5:" + "7" * 32}, "an invalid digest", "md5:" + "7" * 32),
        ({"Docker_Content_Digest": DIGEST, "Content_Type": "\x1b[31mred"}, "an invalid media type", "red"),
        ({"Docker_Content_Digest": DIGEST, "Content_Type": ""}, "an invalid media type", "an empty header"),
        ({"Docker_Content_Digest": DIGEST, "Content_Length": "7x"}, "an invalid size", "7x"),
    ],
)
def test_odd_headers_are_refused(answers: Answers, headers: dict[str, str], message: str, where: str) -> None:
    answers.give(b"", **headers)
    with pytest.raises(Malformed, match=message) as odd:
        repository(answers).head("1")
    assert where in (odd.value.where or "")
    assert "\x1b" not in str(odd.value)
    assert "\t" not in str(odd.value)


@pytest.mark.parametrize(
    ("call", "limit"), [("manifest", MANIFEST_BYTES), ("tags", MANIFEST_BYTES), ("blob", 100)]
)
def test_an_answer_that_is_too_large_is_not_read(answers: Answers, call: str, limit: int) -> None:
    """One that does not say how large it is, too."""
    for length in ("", str(limit + 1), str(1 << 40)):
        answers.give(b" " * (limit + 1), Content_Length=length)
        with pytest.raises(Malformed, match=f"more than the {limit} bytes"):
            CALLS[call](repository(answers))


def test_a_blob_may_have_the_size_that_is_stated(answers: Answers) -> None:
    answers.give(b"x" * 100)
    digest = f"sha256:{hashlib.sha256(b'x' * 100).hexdigest()}"
    assert repository(answers).blob(digest, 100) == b"x" * 100
    with pytest.raises(Malformed, match="more than the 99 bytes"):
        repository(answers).blob(digest, 99)


def test_the_reason_of_a_refusal_may_be_large_and_odd(answers: Answers) -> None:
    answers.give({"errors": [{"code": "\x1b[31mDENIED", "message": "a\nb" * 1000}]}, 403)
    with pytest.raises(PublishError, match="DENIED a b") as refused:
        repository(answers).tags()
    assert "\x1b" not in str(refused.value)
    assert len(refused.value.what) < 500
    answers.give(b"x" * (transport.ANSWER_BYTES + 1), 403)
    with pytest.raises(PublishError, match="more than the 1048576 bytes"):
        repository(answers).tags()


def test_a_compressed_answer_is_refused_before_it_is_unpacked(answers: Answers) -> None:
    answers.give(gzip.compress(b" " * 50_000_000, 9), Content_Encoding="gzip")
    with pytest.raises(Malformed, match="compressed"):
        repository(answers).manifest("1")
    answers.give(gzip.compress(b"busy"), 403, Content_Encoding="gzip")
    with pytest.raises(PublishError, match="wants a login"):
        repository(answers).manifest("1")


@pytest.mark.parametrize("link", ["/v2/team/image/tags/list?last=x", "tags/list", "?last=x"])
def test_pages_that_go_in_a_circle_end(answers: Answers, link: str) -> None:
    answers.give(TAGS, Link=f'<{link}>; rel="next"')
    with pytest.raises(Malformed, match="does not end after"):
        repository(answers).tags()
    assert len(answers.seen) < 10


@pytest.mark.parametrize(("limit", "most"), [("PAGES", 4), ("TAGS", 3 * 4 - 1)])
def test_pages_without_end_end(
    answers: Answers, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, limit, most)
    pages = [f"tags/list?last={number}" for number in range(9)]
    for page, following in pairwise(["tags/list", *pages]):
        headers = {"Link": f'<{following}>; rel="next"'}
        answers.where = {page: (200, headers, json.dumps(TAGS).encode()), **answers.where}
    answers.where = {pages[-1]: (200, {}, json.dumps(TAGS).encode()), **answers.where}
    with pytest.raises(Malformed, match="does not end after 4 pages and 12 tags"):
        repository(answers).tags()
    assert len([path for _, path, _ in answers.seen if "tags/list" in path]) == 4


@pytest.mark.parametrize(
    "link", ["https://elsewhere.invalid/x", "http://elsewhere.invalid/x", "http://[::1", "http://a:b@c/x"]
)
def test_pages_are_read_from_the_registry_only(answers: Answers, link: str) -> None:
    answers.give(TAGS, Link=f'<{link}>; rel="next"')
    with pytest.raises(Malformed):
        repository(answers).tags()


def test_an_upload_is_not_sent_to_another_server_in_plain(answers: Answers) -> None:
    answers.where["uploads/"] = (202, {"Location": "http://elsewhere.invalid/x?y"}, b"")
    answers.give(b"", 404)
    with pytest.raises(Malformed, match="redirects to another server without TLS"):
        repository(answers).put_blob(b"x", "text/plain")
    answers.where["uploads/"] = (202, {}, b"")
    with pytest.raises(Malformed, match="no location for an upload"):
        repository(answers).put_blob(b"x", "text/plain")


def test_a_redirect_is_followed_without_the_login_and_not_without_end(answers: Answers) -> None:
    with serving() as storage:
        storage.give(b"x")
        digest = f"sha256:{hashlib.sha256(b'x').hexdigest()}"
        answers.where["/token"] = (200, {}, json.dumps(TOKEN).encode())
        answers.where["blobs/"] = (
            401,
            {"WWW-Authenticate": f'Bearer realm="http://{answers.host}/token"'},
            b"",
        )
        there = repository(answers)
        with pytest.raises(PublishError):
            there.blob(digest)
        answers.where["blobs/"] = (307, {"Location": f"http://{storage.host}/x?sig=y"}, b" " * 10_000_000)
        assert there.blob(digest) == b"x"
        assert answers.seen[-1][2] == "Bearer abc"
        assert storage.seen == [("GET", "/x?sig=y", None)]
    answers.where["blobs/"] = (302, {"Location": "/v2/team/image/blobs/again"}, b"")
    with pytest.raises(Malformed, match="without end"):
        there.blob(digest)
    answers.where["blobs/"] = (302, {"Location": "http://elsewhere.invalid/x"}, b"")
    with pytest.raises(Malformed, match="without TLS"):
        there.blob(digest)


def test_a_busy_registry_may_not_send_any_amount_either(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is thrown away before the next try."""
    monkeypatch.setattr(transport, "POLICY", RetryPolicy(retries=2, first_pause=0.01, patience=1.0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answers.give(b" " * 50_000_000, 503, Content_Length=str(1 << 40))
    with pytest.raises(FtbuildError):
        repository(answers, patient=True).manifest("1")
    assert (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000
    )  # of it 50 MB are the server's


@pytest.mark.parametrize(
    ("registry", "realm"),
    [
        ("harbor.example.com", "http://token.example.com/"),
        ("harbor.example.com", "http://127.0.0.1:8080/token"),
        ("harbor.example.com", "http://localhost/token"),
        ("harbor.example.com", "http://evil.example\\@127.0.0.1/"),
        ("localhost:5000", "http://evil.example\\@127.0.0.1/"),
        ("localhost:5000", "http://127.0.0.1@evil.example/"),
        ("localhost:5000", "http://127.0.0.1:80@evil.example/"),
        ("localhost:5000", "http://evil.example/"),
        ("localhost:5000", "ftp://127.0.0.1/"),
        ("localhost:5000", "//127.0.0.1/"),
        ("localhost:5000", "https://user:password@harbor.example.com/"),
        ("localhost:5000", "https://a b/"),
        ("localhost:5000", "https://a\n/"),
        ("localhost:5000", "https://a:99999/"),
        ("localhost:5000", "https://[::1/"),
        ("localhost:5000", "https://"),
        ("localhost:5000", ""),
    ],
)
def test_credentials_go_to_no_doubtful_token_server(registry: str, realm: str) -> None:
    with pytest.raises(Malformed) as refused:
        address.token_server(realm, registry)
    assert "password" not in str(refused.value)
    assert "\n    " not in str(refused.value)


@pytest.mark.parametrize(
    ("registry", "realm"),
    [
        ("harbor.example.com", "https://token.example.com/token?service=x"),
        ("localhost:5000", "http://127.0.0.1:8080/token"),
        ("127.0.0.1:5000", "http://localhost/token"),
    ],
)
def test_credentials_go_where_docker_sends_them(registry: str, realm: str) -> None:
    assert address.token_server(realm, registry) == realm


@pytest.mark.parametrize(
    "challenge",
    [
        'Bearer realm="http://elsewhere.invalid/"',
        "Bearer realm=",
        "Bearer",
        'Bearer realm="http://evil.example\\@127.0.0.1/"',
        'Bearer =,,"=x, realm',
    ],
)
def test_a_doubtful_challenge_is_refused_before_anything_is_sent(answers: Answers, challenge: str) -> None:
    answers.give(b"", 401, WWW_Authenticate=challenge)
    with pytest.raises(Malformed):
        repository(answers).tags()
    assert [sent for *_, sent in answers.seen] == [None]


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "", "\u00e9", "a b"])
def test_a_token_that_is_no_header_is_refused(answers: Answers, token: str) -> None:
    answers.where["/token"] = (200, {}, json.dumps({"token": token}).encode())
    answers.give(b"", 401, WWW_Authenticate=f'Bearer realm="http://{answers.host}/token"')
    with pytest.raises(Malformed):
        repository(answers).tags()


# The index


@pytest.mark.parametrize(
    "change",
    [
        {"io.ftbuild.triton": "twenty two"},
        {"io.ftbuild.driver": "\x1b]0;title\x07520"},
        {"io.ftbuild.base": "<img src=x onerror=alert(1)>"},
        {"io.ftbuild.base": "a | b"},
        {"io.ftbuild.cuda": "11\n# heading"},
        {"io.ftbuild.sm": "9" * 5000},
        {"io.ftbuild.sm": ""},
        {"io.ftbuild.product": "other"},
        {"io.ftbuild.server": 7},
    ],
)
def test_one_odd_annotation_leaves_out_one_image(answers: Answers, change: dict[str, Any]) -> None:
    answers.where["tags/list"] = (200, {}, json.dumps(TAGS).encode())
    odd = {**INDEX, "annotations": ANNOTATIONS | change}
    answers.where["22.12-sm86"] = (200, {"Content-Type": MANIFEST_TYPE}, json.dumps(odd).encode())
    answers.give(INDEX)
    said: list[str] = []
    found = index.read(repository(answers), said.append)
    assert [entry.tag for entry in found] == ["22.12-sm80"]
    (line,) = said
    assert line.startswith("22.12-sm86 is left out of the index: ")
    assert line.isprintable()
    assert len(line) < 400


# All together


def mutated(draw: st.DrawFn) -> bytes:
    """Return the JSON of a good answer with some values replaced, removed, repeated or nested."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    value = json.loads(json.dumps(draw(st.sampled_from(BODIES))))
    for _ in range(draw(st.integers(0, 3))):
        spoil(value, chance)
    raw = json.dumps(value).encode()
    match draw(st.integers(0, 9)):
        case 0:
            return raw[: chance.randrange(len(raw) + 1)]
        case 1:
            at = chance.randrange(len(raw))
            return raw[:at] + bytes(chance.randrange(256) for _ in range(4)) + raw[at:]
        case 2:
            return raw.replace(b"[", b"[" * chance.choice([2, 1000, 100_000]), 1)
        case 3:
            return b"[" + b",".join([raw] * max(2, 6_000_000 // len(raw))) + b"]"
    return raw


def peak() -> int:
    """Return the most bytes that this process has held at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


SIMPLE: tuple[object, ...] = (None, True, -1, 0, 1e308, 10**400, "", "x" * 100_000, "\x1b[31m\x07", "\u202e")
NESTED: tuple[object, ...] = ([], {}, [[]], [None], {"": None}, {"a": "b"}, [PART] * 1000, [7] * 100_000)
TEXTS: tuple[object, ...] = (
    DIGEST,
    "sha256:",
    "22.12-sm80",
    ["22.12-sm80"] * 1000,
    "http://elsewhere.invalid/",
)
ODD = (*SIMPLE, *NESTED, *TEXTS, {str(number): number for number in range(20_000)})


def spoil(value: Any, chance: random.Random) -> None:
    """Replace something somewhere inside of `value`."""
    places = [value]
    while isinstance(value, dict | list) and value and chance.random() < 0.7:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        value = value[chance.choice(keys)]
        places.append(value)
    holder = next((place for place in reversed(places) if isinstance(place, dict | list) and place), None)
    if isinstance(holder, dict):
        key = chance.choice(list(holder))
        if chance.random() < 0.2:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(chance.choice(ODD))
    elif isinstance(holder, list):
        holder[chance.randrange(len(holder))] = copy.deepcopy(chance.choice(ODD))


HEADERS = {
    "Content-Type": [MANIFEST_TYPE, "text/html", "", "\x1b[1m", "a/b" * 300],
    "Docker-Content-Digest": [DIGEST, "", "sha256:", "x\ty", "sha512:" + "0" * 64],
    "Content-Length": ["0", "-1", "x", "99999999999999999999", "3"],
    "Content-Encoding": ["gzip", "identity", "br", "x, y"],
    "Location": ["/v2/", "", "http://elsewhere.invalid/", "http://[::1", "//", "https://a:b@c/", "\\\\x"],
    "Link": ['<?n=1>; rel="next"', "<", '<http://[>; rel="next"', '<x>; rel="next"; rel="next"', ";;,,<>"],
    "WWW-Authenticate": ["Basic", 'Bearer realm="https://[::1"', "Bearer realm", 'Bearer realm="/x"', '"'],
    "Retry-After": ["0", "99999", "x"],
    "Transfer-Encoding": ["chunked", "gzip", "x"],
}  # fmt: skip


@st.composite
def odd_answers(draw: st.DrawFn) -> tuple[int, dict[str, str], bytes]:
    status = draw(
        st.sampled_from([200] * 6 + [201, 202, 204, 301, 307, 400, 401, 401, 403, 404, 416, 429, 500, 503])
    )
    chosen = draw(st.lists(st.sampled_from(sorted(HEADERS)), max_size=3, unique=True))
    headers = {"Content-Type": MANIFEST_TYPE}
    headers |= {name: draw(st.sampled_from(HEADERS[name])) for name in chosen}
    body = mutated(draw)[:MAX_BYTES]
    if headers.get("Content-Encoding") == "gzip":
        body = gzip.compress(body)
    return status, headers, body


@pytest.mark.parametrize("location", HEADERS["Location"])
@pytest.mark.parametrize("call", ["blob", "head"])
def test_a_redirect_to_an_odd_address_is_an_error_of_ours(answers: Answers, call: str, location: str) -> None:
    answers.give(b"", 301, Location=location)
    with pytest.raises(FtbuildError):
        CALLS[call](repository(answers))


@pytest.mark.timeout(120 + 60 * MINUTES)
def test_no_answer_ends_in_anything_but_an_error_of_ours(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(transport, "CONNECT_SECONDS", 1.0)
    there, slowest, tried, grown = repository(answers), [0.0], [0], [0]

    def check(call: str, answer: tuple[int, dict[str, str], bytes]) -> None:
        answers.status, answers.headers, answers.body = answer
        # What the making of an answer takes is not counted.
        before, start = peak(), time.process_time()
        try:
            CALLS[call](there)
        except FtbuildError as failed:
            assert str(failed).replace("\n", "").isprintable()  # noqa: PT017
        slowest[0] = max(slowest[0], time.process_time() - start)
        tried[0] += 1
        grown[0] += peak() - before

    def once(number: int) -> None:
        rules = settings(
            max_examples=300,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        seed(number)(rules(given(st.sampled_from(sorted(CALLS)), odd_answers())(check)))()

    once(22)
    chance, deadline = random.SystemRandom(), time.monotonic() + MINUTES * 60
    while time.monotonic() < deadline:
        number = chance.getrandbits(32)
        try:
            once(number)
        except BaseException:
            print(f"the seed {number}")
            raise
    print(f"{tried[0]} answers, the slowest {slowest[0]:.2f} s, {grown[0] / 1e6:.0f} MB")
    assert slowest[0] < SECONDS
    assert grown[0] < BYTES


# Names on the command line


@pytest.mark.parametrize("option", ["localhost:99999/x", "127.0.0.1:65536", "harbor.example.com:70000/x"])
def test_a_port_that_cannot_be_is_a_usage_error(option: str) -> None:
    with pytest.raises(ConfigError, match="is not the host of a registry"):
        reference.repository(option, "image")
    with pytest.raises((ConfigError, HostError, PublishError)):
        Repository(f"{option}/image").head("1")


@pytest.mark.parametrize(
    "option",
    ["ada:hunter2@harbor.example.com/x", "ada:hun/ter2@harbor.example.com/x", "https://ada:hunter2@harbor/x"],
)
def test_a_password_in_the_registrys_name_is_not_repeated(option: str) -> None:
    with pytest.raises(ConfigError, match="named without user and password") as refused:
        reference.repository(option, "image")
    assert "hun" not in str(refused.value)
    assert "ada" not in str(refused.value)


@pytest.mark.parametrize(
    "image", [{"config": PART}, {"layers": []}, {"layers": [PART]}, {"config": PART, "layers": []}]
)
@pytest.mark.parametrize("manifests", [[], [PART]])
def test_an_image_that_is_an_index_as_well_is_refused(image: dict[str, Any], manifests: list[Any]) -> None:
    """It would be another image for each reader (CVE-2021-41190)."""
    with pytest.raises(Malformed, match="an image and an index at once"):
        read(Content, json.dumps({**image, "manifests": manifests}).encode(), "host/x")
    for one in (image, {"manifests": manifests}):
        read(Content, json.dumps(one).encode(), "host/x")
