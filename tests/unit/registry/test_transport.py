"""HTTP below the registry's client: redirects, retries, proxies, netrc, TLS."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from ftbuild.errors import HostError
from ftbuild.registry import transport
from ftbuild.registry.client import Repository, digest_of
from ftbuild.registry.errors import Refused
from ftbuild.registry.malformed import Malformed
from ftbuild.registry.policy import RetryPolicy
from ftbuild.registry.session import Session
from tests.unit.registry.answering import MANIFEST_TYPE, Answers, serving
from tests.unit.registry.test_requests import RAW, asked


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with serving() as found:
        yield found


def repository(answers: Answers, *, patient: bool = False) -> Repository:
    return Repository(f"{answers.host}/x", Session(patient=patient))


def to(place: str, status: int = 302) -> tuple[int, dict[str, str], bytes]:
    return status, {"Location": place}, b""


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_whoever_reads_is_led_on(answers: Answers, status: int) -> None:
    answers.give(RAW, Docker_Content_Digest="sha256:" + "7" * 64)
    answers.where["manifests/old"] = to("/v2/x/manifests/new", status)
    assert repository(answers).head("old") is not None
    assert asked(answers)[-1] == "HEAD /v2/x/manifests/new"
    answers.give(RAW)
    assert repository(answers).manifest("old") is not None
    assert asked(answers)[-1] == "GET /v2/x/manifests/new"


def test_whoever_writes_is_not_led_on(answers: Answers) -> None:
    answers.give(b"", 307, Location="/v2/x/manifests/new")
    with pytest.raises(Refused) as refused:
        repository(answers).put_manifest("old", RAW, MANIFEST_TYPE)
    assert refused.value.status == 307
    assert asked(answers) == ["PUT /v2/x/manifests/old"]


def test_an_answer_that_leads_nowhere_is_refused_as_it_is(answers: Answers) -> None:
    answers.give(b"", 302)
    with pytest.raises(Refused) as refused:
        repository(answers).tags()
    assert refused.value.status == 302


def test_five_redirects_are_followed_and_no_sixth(answers: Answers) -> None:
    for hop in range(6):
        answers.where[f"manifests/hop{hop}"] = to(f"/v2/x/manifests/hop{hop + 1}")
    answers.where["manifests/hop6"] = (200, {"Content-Type": MANIFEST_TYPE}, RAW)
    assert repository(answers).manifest("hop1") is not None
    asked(answers)
    with pytest.raises(Malformed, match="redirects without end") as endless:
        repository(answers).manifest("hop0")
    assert (endless.value.where or "").endswith("/manifests/hop0")
    assert len(asked(answers)) == 6


def test_a_busy_registry_is_asked_again_by_who_has_patience(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "POLICY", RetryPolicy(retries=2, first_pause=0.01, patience=1.0))
    answers.give(b"", 503)
    for patient, times in ((True, 3), (False, 1)):
        with pytest.raises(Refused, match="HTTP 503"):
            repository(answers, patient=patient).tags()
        assert len(asked(answers)) == times


def test_this_machine_is_reached_without_a_proxy(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    answers.give({"tags": ["a"]})
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert repository(answers).tags() == ["a"]


def test_another_machine_is_reached_by_the_proxy(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://{answers.host}")
    with pytest.raises(HostError, match=r"the registry r\.invalid cannot be reached") as silent:
        Repository("r.invalid/x", Session(patient=False)).tags()
    assert silent.value.where == "https://r.invalid/v2/x/tags/list: ProxyError"
    assert silent.value.hint == "check network and proxy: invoke doctor"


def test_netrc_is_not_read(answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ada password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    answers.give({"tags": []})
    repository(answers).tags()
    assert answers.seen[-1][2] is None


def test_an_answer_that_hides_its_size_is_read_up_to_the_limit(answers: Answers) -> None:
    for size, fits in ((100, True), (101, False)):
        body = f"{size:x}\r\n{'x' * size}\r\n0\r\n\r\n".encode()
        answers.give(body, Content_Length="", Transfer_Encoding="chunked")
        digest = digest_of(b"x" * size)
        if fits:
            assert repository(answers).blob(digest, 100) == b"x" * size
            continue
        with pytest.raises(Malformed, match="more than the 100 bytes"):
            repository(answers).blob(digest, 100)


@pytest.fixture
def encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Answers, Path]]:
    """A registry with TLS on this machine, and the file of its CA."""
    ca = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    with serving(context) as found:
        found.give({"tags": ["a"]})
        yield found, tmp_path / "ca.pem"


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_registry_with_tls_is_asked_by_tls(
    encrypted: tuple[Answers, Path], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    answers, ca = encrypted
    monkeypatch.setenv(variable, str(ca))
    assert Session().api(answers.host) == f"https://{answers.host}/v2/"
    assert repository(answers).tags() == ["a"]


def test_a_certificate_that_is_not_trusted_stays_an_error(encrypted: tuple[Answers, Path]) -> None:
    answers, _ = encrypted
    with pytest.raises(HostError) as untrusted:
        repository(answers).tags()
    assert untrusted.value.what.startswith(f"the certificate of {answers.host} is not trusted: ")
    assert "SSL_CERT_FILE" in (untrusted.value.hint or "")
    assert (untrusted.value.where or "").startswith(f"https://{answers.host}/v2/x/tags/list: ")


def test_a_file_with_the_ca_that_is_not_there_is_named(
    encrypted: tuple[Answers, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/ca.pem")
    with pytest.raises(HostError, match=r"/nonexistent/ca\.pem") as absent:
        repository(encrypted[0]).tags()
    assert absent.value.hint == "REQUESTS_CA_BUNDLE or SSL_CERT_FILE names it"


def test_only_this_machine_is_asked_in_plain(answers: Answers) -> None:
    assert Session().api(answers.host) == f"http://{answers.host}/v2/"
    assert Session().api("registry.invalid") == "https://registry.invalid/v2/"
