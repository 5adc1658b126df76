"""Logins to registries: challenges, token servers, credentials of Docker, and what refusals say."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from ftbuild.errors import PublishError
from ftbuild.registry import credentials, errors
from ftbuild.registry.auth import Scope
from ftbuild.registry.client import Repository
from ftbuild.registry.errors import Refused
from ftbuild.registry.malformed import Malformed
from ftbuild.registry.session import Session
from ftbuild.registry.transport import Answer
from tests.unit.registry.answering import Answers, serving

BASIC = f"Basic {base64.b64encode(b'ada:hunter2').decode()}"
LoggedIn = Callable[..., Repository]


@pytest.fixture
def answers() -> Iterator[Answers]:
    with serving() as found:
        yield found


@pytest.fixture
def logged_in(answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoggedIn:
    """A repository for a user with these credentials in Docker's configuration."""

    def write(**entry: str) -> Repository:
        auths = {answers.host: entry} if entry else {}
        (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        return Repository(f"{answers.host}/team/image", Session(patient=False))

    return write


def wants(answers: Answers, challenge: str) -> None:
    """Refuse every request without the challenge's login, which is seen in `answers.seen`."""
    answers.give(b"", 401, WWW_Authenticate=challenge)


def logins(answers: Answers) -> list[str | None]:
    found = [login for _, _, login in answers.seen]
    answers.seen.clear()
    return found


def test_basic_credentials_are_sent_where_they_are_asked_for(answers: Answers, logged_in: LoggedIn) -> None:
    there = logged_in(auth=base64.b64encode(b"ada:hunter2").decode())
    wants(answers, 'BASIC realm="x"')
    with pytest.raises(Refused, match="refuses user ada for team/image") as refused:
        there.tags()
    assert logins(answers) == [None, BASIC]
    assert refused.value.hint == f"docker login {answers.host}, with an account that may do this"
    assert refused.value.where == f"GET http://{answers.host}/v2/team/image/tags/list: HTTP 401"
    answers.give({"tags": ["a"]})
    assert there.tags() == ["a"]
    assert logins(answers) == [BASIC]


def test_the_storage_of_an_upload_gets_no_login_whatever_it_asks_for(
    answers: Answers, logged_in: LoggedIn
) -> None:
    there = logged_in(auth=base64.b64encode(b"ada:hunter2").decode())
    answers.give(b"", 404)
    with serving() as storage:
        wants(storage, 'Basic realm="x"')
        answers.where["uploads/"] = (202, {"Location": f"http://{storage.host}/x"}, b"")
        with pytest.raises(Refused, match="401"):
            there.put_blob(b"x", "text/plain")
        assert logins(storage) == [None]


def test_without_credentials_nothing_is_sent_a_second_time(answers: Answers, logged_in: LoggedIn) -> None:
    wants(answers, 'Basic realm="x"')
    with pytest.raises(Refused, match="wants a login for team/image"):
        logged_in().tags()
    assert logins(answers) == [None]


@pytest.mark.parametrize("challenge", ["", 'Negotiate realm="x"'])
def test_another_kind_of_login_is_not_attempted(
    answers: Answers, logged_in: LoggedIn, challenge: str
) -> None:
    there = logged_in(auth=base64.b64encode(b"ada:hunter2").decode())
    wants(answers, challenge)
    with pytest.raises(Refused, match="wants a login"):
        there.tags()
    assert logins(answers) == [None]


def bearer(answers: Answers, token: object = None, *, realm: str = "token", **more: str) -> None:
    """Ask for a token of the server's own token server."""
    given = {"realm": f"http://{answers.host}/{realm}", "service": "here", **more}
    wants(answers, "Bearer " + ",".join(f'{name}="{value}"' for name, value in given.items()))
    answers.where["/token"] = (200, {}, json.dumps(token or {"token": "abc"}).encode())


@pytest.mark.parametrize(("realm", "separator"), [("token", "?"), ("token?account=1", "&")])
def test_a_token_is_asked_for_with_service_scope_and_credentials(
    answers: Answers, logged_in: LoggedIn, realm: str, separator: str
) -> None:
    there = logged_in(auth=base64.b64encode(b"ada:hunter2").decode())
    bearer(answers, realm=realm)
    with pytest.raises(Refused, match="refuses user ada"):
        there.tags()
    method, path, login = answers.seen[1]
    assert (method, login) == ("GET", BASIC)
    assert path.startswith(f"/{realm}{separator}")
    assert parse_qs(path.partition("?")[2])["scope"] == ["repository:team/image:pull"]
    assert parse_qs(path.partition("?")[2])["service"] == ["here"]
    assert [seen[2] for seen in answers.seen] == [None, BASIC, "Bearer abc"]


MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@pytest.mark.parametrize(
    ("act", "granted", "scope"),
    [
        (lambda there: there.tags(), (), "pull"),
        (lambda there: there.put_manifest("1", b"{}", MANIFEST), (), "pull,push"),
        (lambda there: there.put_blob(b"x", "text/plain"), ("HEAD",), "pull,push"),
        (lambda there: there.put_blob(b"x", "text/plain"), ("HEAD", "POST"), "pull,push"),
        (lambda there: there.delete("1"), (), "pull,push,delete"),
    ],
    ids=["read", "manifest", "upload begins", "upload", "delete"],
)
def test_a_token_is_asked_for_what_is_done_and_no_more(
    answers: Answers,
    logged_in: LoggedIn,
    act: Callable[[Repository], object],
    granted: tuple[str, ...],
    scope: str,
) -> None:
    there = logged_in(auth=base64.b64encode(b"ada:hunter2").decode())
    bearer(answers)
    given = {"HEAD": (404, {}, b""), "POST": (202, {"Location": "/v2/team/image/blobs/uploads/9"}, b"")}
    answers.where |= {method: given[method] for method in granted}
    with pytest.raises(Refused):
        act(there)
    (asked,) = (path for _, path, _ in answers.seen if path.startswith("/token"))
    assert parse_qs(asked.partition("?")[2])["scope"] == [f"repository:team/image:{scope}"]


def test_a_scope_that_the_registry_names_is_the_one(answers: Answers, logged_in: LoggedIn) -> None:
    bearer(answers, {"access_token": "def"}, scope="repository:other:pull", error="x")
    with pytest.raises(Refused, match="wants a login"):
        logged_in().tags()
    _, path, login = answers.seen[1]
    assert parse_qs(path.partition("?")[2]) == {"service": ["here"], "scope": ["repository:other:pull"]}
    assert login is None
    assert answers.seen[2][2] == "Bearer def"


def test_an_identity_token_is_exchanged_by_post(answers: Answers, logged_in: LoggedIn) -> None:
    there = logged_in(auth=base64.b64encode(b"00000000:x").decode(), identitytoken="secret-token")
    bearer(answers)
    with pytest.raises(Refused, match="refuses the identity token of docker login"):
        there.tags()
    assert [(method, login) for method, _, login in answers.seen] == [
        ("GET", None),
        ("POST", None),
        ("GET", "Bearer abc"),
    ]
    assert parse_qs(answers.sent[1][1].decode()) == {
        "grant_type": ["refresh_token"],
        "refresh_token": ["secret-token"],
        "client_id": ["ftbuild"],
        "service": ["here"],
        "scope": ["repository:team/image:pull"],
    }


def test_a_token_is_used_again_until_it_is_refused(answers: Answers, logged_in: LoggedIn) -> None:
    there = logged_in()
    bearer(answers)
    with pytest.raises(Refused):
        there.tags()
    assert logins(answers) == [None, None, "Bearer abc"]
    bearer(answers, {"token": "new"})
    with pytest.raises(Refused):
        there.tags()
    assert logins(answers) == ["Bearer abc", None, "Bearer new"]
    answers.give({"tags": []})
    there.tags()
    assert logins(answers) == ["Bearer new"]
    answers.give(b"", 201)
    there.put_manifest("1", b"{}", "a/b")
    assert logins(answers) == [None], "another scope has another token"


@pytest.mark.parametrize(
    ("status", "what"), [(401, "refuses user ada for team/image"), (500, "refused with HTTP 500")]
)
def test_a_token_server_that_refuses_is_an_error(
    answers: Answers, logged_in: LoggedIn, status: int, what: str
) -> None:
    there = logged_in(auth=base64.b64encode(b"ada:hunter2").decode())
    bearer(answers)
    answers.where["/token"] = (status, {}, b"")
    with pytest.raises(Refused, match=what) as refused:
        there.tags()
    assert refused.value.where == f"GET http://{answers.host}/token: HTTP {status}"


def test_a_token_server_without_a_token_is_an_error(answers: Answers, logged_in: LoggedIn) -> None:
    bearer(answers, {"expires_in": 1})
    with pytest.raises(Malformed, match="returned no token") as odd:
        logged_in().tags()
    assert odd.value.where == f"http://{answers.host}/token"


def test_a_scope_and_a_login_show_no_secret() -> None:
    assert str(Scope("h", "team/image", "pull,push")) == "repository:team/image:pull,push"
    user = credentials.Credentials("ada", "hunter2")
    assert (user.who, user.auth_config()) == ("user ada", {"username": "ada", "password": "hunter2"})
    token = credentials.Credentials("", "secret", is_token=True)
    assert (token.who, token.auth_config()) == (
        "the identity token of docker login",
        {"identitytoken": "secret"},
    )
    assert "secret" not in repr(token)


# Refusals


def answered(status: int, method: str = "GET", body: object = None) -> Answer:
    raw = b"" if body is None else json.dumps(body).encode()
    return Answer(method, "https://r.example/v2/x?secret=1", status, {}, raw)


@pytest.mark.parametrize(
    ("status", "method", "who", "what", "hint"),
    [
        (401, "GET", None, "r.example wants a login for x", "docker login r.example, with an account that"),
        (403, "PUT", "user ada", "r.example refuses user ada for x", "docker login r.example"),
        (429, "GET", None, "r.example refused with HTTP 429", "the registry is busy: try again later"),
        (503, "PUT", None, "r.example refused with HTTP 503", "the registry is busy: try again later"),
        (404, "PUT", None, "r.example refused with HTTP 404", "must be created first"),
        (404, "POST", None, "r.example refused with HTTP 404", "must be created first"),
        (404, "GET", None, "r.example refused with HTTP 404", ""),
        (400, "PUT", None, "r.example refused with HTTP 400", ""),
    ],
)
def test_a_refusal_says_who_what_and_the_way_out(
    status: int, method: str, who: str | None, what: str, hint: str
) -> None:
    found = errors.refused(answered(status, method), "r.example", "x", who)
    assert (found.status, found.what) == (status, what)
    assert found.where == f"{method} https://r.example/v2/x: HTTP {status}"
    assert hint in (found.hint or "")
    assert bool(found.hint) is bool(hint)


def test_a_refusal_repeats_the_registrys_reasons() -> None:
    reasons = [{"code": "DENIED", "message": "no\nmore"}, {"code": "QUOTA"}, {"message": "full"}]
    said = errors.refused(answered(400, body={"errors": reasons}), "r.example", "x").what
    assert said == "r.example refused: DENIED no more; QUOTA; full"
    long = [{"code": "x" * 400}]
    assert errors.refused(answered(403, body={"errors": long}), "r.example", "x").what == (
        f"r.example wants a login for x: {'x' * 300}"
    )
    assert errors.refused(answered(400, body={"errors": []}), "r.example", "x").what.endswith("HTTP 400")


def test_the_login_of_ngc_has_a_user_name_of_its_own() -> None:
    assert errors.login_hint("nvcr.io") == (
        "docker login nvcr.io, user name $oauthtoken, password an NGC API key, "
        "with an account that may do this"
    )


# Docker's configuration


def helper(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a credential helper, which Docker's configuration names."""
    (folder / "docker-credential-mine").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "docker-credential-mine").chmod(0o755)
    (folder / "config.json").write_text(json.dumps({"credHelpers": {"r.example": "mine"}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_a_credential_helper_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(tmp_path, """echo '{"Username": "ada", "Secret": "hunter2"}'""", monkeypatch)
    assert credentials.find("r.example") == credentials.Credentials("ada", "hunter2")
    helper(tmp_path, """echo '{"Username": "<token>", "Secret": "t0ken"}'""", monkeypatch)
    found = credentials.find("r.example")
    assert found is not None
    assert (found.secret, found.is_token) == ("t0ken", True)


def test_a_credential_helper_that_fails_is_named_and_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper(tmp_path, "echo hunter2; exit 1", monkeypatch)
    with pytest.raises(
        PublishError, match="the credential helper docker-credential-mine does not work"
    ) as bad:
        credentials.find("r.example")
    assert bad.value.hint == "echo r.example | docker-credential-mine get    shows its output"
    assert "hunter2" not in str(bad.value)
    (tmp_path / "docker-credential-mine").unlink()
    with pytest.raises(PublishError, match="docker-credential-mine is not installed") as absent:
        credentials.find("r.example")
    assert "docker login r.example" in (absent.value.hint or "")


def test_a_broken_configuration_of_docker_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text('{"auths": {"r.example": {"auth": "%"}}}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with pytest.raises(PublishError, match="Docker's configuration cannot be read"):
        credentials.find("r.example")
