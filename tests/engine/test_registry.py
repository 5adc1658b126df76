"""The client against real registries on loopback: open, with passwords, with tokens, and failing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild import registry
from ftbuild.build import base
from ftbuild.config import loader
from ftbuild.errors import HostError, PublishError
from ftbuild.registry.client import Descriptor, Repository, digest_of
from ftbuild.registry.errors import Refused
from testing import ROOT
from testing.registries import PASSWORD, USER, Registry, faulty, free_port, identity, other_name, password

if TYPE_CHECKING:
    import docker

CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG = {"architecture": "amd64", "os": "linux"}
MISSING = "sha256:" + "0" * 64
Helper = Callable[[str], None]


@pytest.fixture(params=["basic_registry", "token_registry"])
def guarded(request: pytest.FixtureRequest) -> Registry:
    """A registry that lets nobody in without credentials."""
    found: Registry = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def helper(basic_registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Helper:
    """Put a credential helper into Docker's configuration; its program is the given shell script."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs), prepend=":")

    def install(script: str) -> None:
        program = programs / "docker-credential-mine"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        settings = {"auths": {}, "credHelpers": {basic_registry.host: "mine"}}
        (basic_registry.config / "config.json").write_text(json.dumps(settings))

    return install


@pytest.fixture
def pushed(client: docker.DockerClient, guarded: Registry, tmp_path: Path) -> tuple[str, str]:
    """An image in the registry, and the digest that the engine saw when it pushed it."""
    empty, image = tmp_path / "empty.tar", f"{guarded.prefix}/empty"
    subprocess.run(["tar", "-cf", str(empty), "-T", "/dev/null"], check=True)
    client.api.import_image_from_file(str(empty), repository=image, tag="22.12-py3")
    login, digest = {"username": USER, "password": PASSWORD}, ""
    for line in client.api.push(image, tag="22.12-py3", stream=True, decode=True, auth_config=login):
        assert "error" not in line, line
        digest = line.get("aux", {}).get("Digest", digest)
    client.images.remove(f"{image}:22.12-py3")
    return f"{image}:22.12-py3", digest


def repository(at: Registry) -> Repository:
    return Repository(f"{at.prefix}/image")


def put_image(into: Repository, *tags: str) -> Descriptor:
    """The smallest image there is: a configuration and no layer."""
    config = into.put_blob(json.dumps(CONFIG).encode(), CONFIG_TYPE)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config.as_dict(), "layers": []}
    raw = json.dumps(manifest).encode()
    return [into.put_manifest(tag, raw, MANIFEST_TYPE) for tag in tags][-1]


# What is stored comes back


def test_an_image_comes_back_as_it_was_stored(guarded: Registry) -> None:
    there = repository(guarded)
    stored = put_image(there, "1")
    manifest = there.manifest("1")
    assert manifest is not None
    assert manifest.descriptor == stored == there.head("1") == there.head(stored.digest)
    assert digest_of(manifest.raw) == stored.digest
    assert there.config(manifest).platform == CONFIG


def test_a_blob_that_the_registry_has_is_not_sent_again(faulty_registry: Registry) -> None:
    there, data = repository(faulty_registry), b"x" * 100_000
    first, second = (there.put_blob(data, "text/plain") for _ in range(2))
    assert first == second == Descriptor("text/plain", digest_of(data), 100_000)
    assert there.blob(first.digest) == data
    assert faulty_registry.proxy_faults.count("^PUT .*/blobs/uploads/") == 1


def test_what_is_missing_is_none_and_what_is_silent_an_error(guarded: Registry) -> None:
    there = repository(guarded)
    assert there.head("none") is None
    assert there.manifest("none") is None
    assert there.tags() == []
    with pytest.raises(PublishError, match=r"refused: BLOB_UNKNOWN"):
        there.blob(MISSING)
    start = time.monotonic()
    with pytest.raises(HostError, match="cannot be reached"):
        Repository(f"127.0.0.1:{free_port()}/team/image").head("1")
    assert time.monotonic() - start < 10


def test_the_tags_of_all_cells_are_looked_up_in_under_a_second(guarded: Registry) -> None:
    there = repository(guarded)
    tags = [f"22.12-sm{number}" for number in range(96)]
    stored = put_image(there, *tags[:48])
    seconds: list[float] = []
    while min(seconds, default=1.0) >= 1.0 and len(seconds) < 6:  # other tests may need the processor
        start = time.monotonic()
        found = there.heads(tags)
        seconds.append(time.monotonic() - start)
        assert [found[tag] for tag in tags] == [stored] * 48 + [None] * 48
    print(f"96 HEADs over TLS: {min(seconds):.2f} s")
    assert min(seconds) < 1.0


def test_all_tags_are_listed_page_by_page(faulty_registry: Registry) -> None:
    """The packaged registry knows no pages, so the first one is the proxy's."""
    there, faults = repository(faulty_registry), faulty_registry.proxy_faults
    put_image(there, "b", "c")
    page = json.dumps({"name": "team/image", "tags": ["a"]}).encode()
    faults.answer("/tags/list$", 200, body=page, Link='</v2/team/image/tags/list?last=a&n=1>; rel="next"')
    assert there.tags() == ["a", "b", "c"]
    assert faults.count(r"/tags/list\?last=a&n=1$") == 1


# Who may come in


def test_a_wrong_password_is_refused_and_not_shown(guarded: Registry) -> None:
    entry = password(secret="hunter2")
    guarded.login(entry)
    with pytest.raises(PublishError) as refused:
        put_image(repository(guarded), "1")
    assert refused.value.exit_code == 10
    assert f"refuses user {USER} for team/image" in str(refused.value)
    assert f"docker login {guarded.host}" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert entry["auth"] not in str(refused.value)


def test_without_credentials_the_registry_wants_a_login(guarded: Registry) -> None:
    guarded.logout()
    with pytest.raises(PublishError, match="wants a login for team/image") as refused:
        repository(guarded).head("1")
    assert f"docker login {guarded.host}" in str(refused.value)
    with pytest.raises(HostError, match="wants a login") as base_image:
        registry.digest(f"{guarded.prefix}/image:1")
    assert f"docker login {guarded.host}" in str(base_image.value)


def test_an_identity_token_opens_the_registry_too(token_registry: Registry) -> None:
    token_registry.login(identity())
    assert put_image(repository(token_registry), "1").size
    token_registry.login(identity("stale"))
    with pytest.raises(PublishError, match="refuses the identity token of docker login") as refused:
        repository(token_registry).head("1")
    assert "stale" not in str(refused.value)


def test_one_token_serves_many_requests(token_registry: Registry) -> None:
    there = repository(token_registry)
    put_image(there, "1")
    there.heads([str(number) for number in range(40)])
    assert token_registry.tokens is not None
    assert len(token_registry.tokens.granted) == 2  # one to pull, one to push


def test_a_token_that_runs_out_in_the_middle_of_work_is_replaced(token_registry: Registry) -> None:
    there = repository(token_registry)
    assert token_registry.tokens is not None
    token_registry.tokens.lifetime = 1
    stored = put_image(there, "1")
    granted = len(token_registry.tokens.granted)
    time.sleep(2.1)  # the registry counts in whole seconds
    assert there.heads(["1", "2"]) == {"1": stored, "2": None}
    assert put_image(there, "3") == stored
    assert len(token_registry.tokens.granted) > granted


def test_a_credential_helper_is_asked_again_when_its_password_has_run_out(
    basic_registry: Registry, helper: Helper, tmp_path: Path
) -> None:
    there, asked = repository(basic_registry), tmp_path / "asked"
    answer = json.dumps({"ServerURL": basic_registry.host, "Username": USER, "Secret": PASSWORD})
    helper(f"cat >> {asked}; echo >> {asked}; echo '{answer}'")
    assert there.head("1") is None
    assert asked.read_text().split() == [basic_registry.host]
    basic_registry.change_password("new one")
    helper(f"echo '{answer.replace(PASSWORD, 'new one')}'")
    assert there.head("1") is None


@pytest.mark.parametrize(
    "script",
    [
        "echo 'secret hunter2'",
        "echo 'secret hunter2'; exit 1",
        'echo \'{"Secret": "hunter2"}\'',
        "exec /none",
    ],
    ids=["garbage", "failure", "half an answer", "no program"],
)
def test_a_broken_credential_helper_is_named_without_what_it_said(
    basic_registry: Registry, helper: Helper, script: str
) -> None:
    helper(script)
    with pytest.raises(PublishError, match="docker-credential-mine does not work") as broken:
        repository(basic_registry).head("1")
    assert broken.value.hint
    assert "hunter2" not in str(broken.value)


def test_a_helper_that_knows_nobody_means_no_credentials(basic_registry: Registry, helper: Helper) -> None:
    helper("echo 'credentials not found in native keychain'; exit 1")
    with pytest.raises(PublishError, match="wants a login"):
        repository(basic_registry).head("1")


def test_a_helper_that_is_not_installed_is_named(basic_registry: Registry) -> None:
    (basic_registry.config / "config.json").write_text(json.dumps({"credsStore": "none-of-these"}))
    with pytest.raises(PublishError, match="docker-credential-none-of-these is not installed"):
        repository(basic_registry).head("1")


def test_a_configuration_that_cannot_be_read_is_named(basic_registry: Registry) -> None:
    basic_registry.login({"auth": "hunter2"})
    with pytest.raises(PublishError, match="configuration cannot be read") as broken:
        repository(basic_registry).head("1")
    assert "hunter2" not in str(broken.value)


def test_netrc_is_not_asked(
    faulty_registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login {USER} password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert repository(faulty_registry).head("1") is None
    assert faulty_registry.proxy_faults.logged_in == []


# TLS and proxies


def test_a_certificate_that_is_not_trusted_is_an_error_and_not_a_reason_for_plain_http(
    guarded: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    assert repository(guarded).head("1") is None  # SSL_CERT_FILE alone is enough
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(HostError, match=r"certificate of .* is not trusted") as untrusted:
        repository(guarded).head("1")
    assert "REQUESTS_CA_BUNDLE" in str(untrusted.value)


def test_plain_http_is_for_this_machine_only(plain_registry: Registry) -> None:
    """Under another name the same registry counts as one on the network."""
    port = plain_registry.host.rpartition(":")[2]
    assert repository(plain_registry).head("1") is None
    with pytest.raises(HostError, match="cannot be reached"):
        Repository(f"{other_name()}:{port}/team/image").head("1")


def test_a_registry_on_the_network_is_spoken_to_over_tls(named_registry: Registry) -> None:
    there = repository(named_registry)
    assert put_image(there, "1") == there.head("1")


def test_a_ca_file_that_is_missing_is_an_error(
    basic_registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
    with pytest.raises(HostError, match=r"none\.pem"):
        repository(basic_registry).head("1")


def test_no_proxy_is_asked_for_this_machine(guarded: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert repository(guarded).head("1") is None


# What passes by itself is waited for


def test_a_busy_registry_is_asked_again_after_the_time_it_names(faulty_registry: Registry) -> None:
    there, faults = repository(faulty_registry), faulty_registry.proxy_faults
    faults.answer("^HEAD .*/manifests/1$", 429, Retry_After="1")
    start = time.monotonic()
    assert there.head("1") is None
    assert 1.0 <= time.monotonic() - start < 30.0  # without that time it is asked again at once
    assert faults.count("/manifests/1$") == 2


def test_a_registry_that_wants_to_be_left_alone_for_an_hour_is_not_waited_for(
    faulty_registry: Registry,
) -> None:
    body = b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "come back later"}]}'
    faulty_registry.proxy_faults.answer("/tags/list$", 429, times=9, body=body, Retry_After="3600")
    start = time.monotonic()
    with pytest.raises(Refused, match="TOOMANYREQUESTS come back later") as refused:
        repository(faulty_registry).tags()
    assert time.monotonic() - start < 30.0
    assert (refused.value.status, refused.value.exit_code) == (429, 10)


@pytest.mark.parametrize("request_line", ["^HEAD .*/blobs", "^POST", "^PUT .*uploads", "^PUT .*/manifests"])
def test_every_step_of_a_push_survives_a_registry_that_is_down_for_a_moment(
    faulty_registry: Registry, request_line: str
) -> None:
    faulty_registry.proxy_faults.answer(request_line, 503, times=2)
    there = repository(faulty_registry)
    assert put_image(there, "1") == there.head("1")


@pytest.mark.parametrize("keep", [0.0, 0.5], ids=["at once", "half-way"])
@pytest.mark.parametrize("request_line", ["^GET .*/manifests", "^GET .*/blobs", "^PUT .*uploads", "^POST"])
def test_a_connection_that_breaks_off_is_made_again(
    faulty_registry: Registry, request_line: str, keep: float
) -> None:
    there = repository(faulty_registry)
    faulty_registry.proxy_faults.cut(request_line, keep=keep)
    put_image(there, "1")
    manifest = there.manifest("1")
    assert manifest is not None
    assert there.config(manifest).platform == CONFIG


def test_a_connection_that_keeps_breaking_off_is_an_error(faulty_registry: Registry) -> None:
    there = repository(faulty_registry)
    put_image(there, "1")
    faulty_registry.proxy_faults.cut("^GET .*/manifests", keep=0.5, times=99)
    with pytest.raises(HostError, match="broke off"):
        there.manifest("1")


def test_a_login_that_is_refused_once_in_a_while_is_made_anew(faulty_registry: Registry) -> None:
    faulty_registry.login(password())
    faulty_registry.proxy_faults.answer("^PUT .*/manifests", 401, WWW_Authenticate='Basic realm="tests"')
    assert put_image(repository(faulty_registry), "1").size


def test_an_upload_that_lost_its_place_starts_again(faulty_registry: Registry) -> None:
    body = b'{"errors": [{"code": "BLOB_UPLOAD_UNKNOWN", "message": "blob upload unknown"}]}'
    faulty_registry.proxy_faults.answer("^PUT .*uploads", 404, body=body)
    assert put_image(repository(faulty_registry), "1").size
    faulty_registry.proxy_faults.answer("^PUT .*uploads", 404, times=9, body=body)
    with pytest.raises(PublishError, match="BLOB_UPLOAD_UNKNOWN"):
        repository(faulty_registry).put_blob(b"other", "text/plain")


def test_an_upload_to_a_storage_elsewhere_goes_without_the_login(
    faulty_registry: Registry, tmp_path: Path
) -> None:
    faulty_registry.login(password())
    faults = faulty_registry.proxy_faults
    with faulty(tmp_path / "elsewhere") as elsewhere:
        faults.answer("^POST", 401, WWW_Authenticate='Basic realm="tests"')
        faults.answer("^POST", 202, Location=f"http://{elsewhere.host}/upload?state=x")
        elsewhere.proxy_faults.answer("^PUT /upload", 201)
        repository(faulty_registry).put_blob(b"x", "text/plain")
        assert faults.logged_in == ["POST /v2/team/image/blobs/uploads/"]
        assert elsewhere.proxy_faults.count("^PUT") == 1
        assert elsewhere.proxy_faults.logged_in == []


# What cannot be right


def test_content_that_does_not_have_its_digest_is_refused(faulty_registry: Registry) -> None:
    there, faults = repository(faulty_registry), faulty_registry.proxy_faults
    stored = put_image(there, "1")
    manifest = there.manifest("1")
    assert manifest is not None
    config = manifest.content.config
    assert config
    for reference, line in ((stored.digest, "manifests"), ("1", "manifests"), (config.digest, "blobs")):
        faults.answer(f"^GET .*/{line}/", 200, body=b"{}", Docker_Content_Digest=stored.digest)
        with pytest.raises(PublishError, match="does not have the requested digest"):
            there.manifest(reference) if line == "manifests" else there.blob(reference)


def test_a_manifest_that_is_stored_as_another_is_refused(faulty_registry: Registry) -> None:
    faulty_registry.proxy_faults.answer("^PUT .*/manifests", 201, Docker_Content_Digest=MISSING)
    with pytest.raises(PublishError, match="another manifest") as refused:
        put_image(repository(faulty_registry), "1")
    assert MISSING in str(refused.value)


def test_an_answer_that_is_no_registrys_is_refused(faulty_registry: Registry) -> None:
    faulty_registry.proxy_faults.answer("/tags/list", 200, body=b"<html>please log in to this network</html>")
    with pytest.raises(PublishError, match="Invalid JSON"):
        repository(faulty_registry).tags()


def test_a_registry_without_digest_headers_is_read_all_the_same(faulty_registry: Registry) -> None:
    there = repository(faulty_registry)
    stored = put_image(there, "1")
    faulty_registry.proxy_faults.answer("^HEAD .*/manifests", 200, Content_Type=MANIFEST_TYPE)
    assert there.head("1") == stored


# Digests of base images


def test_a_tag_is_resolved_to_the_digest_that_was_pushed(pushed: tuple[str, str]) -> None:
    image, digest = pushed
    assert digest.startswith("sha256:")
    assert registry.digest(image) == digest


def test_a_missing_tag_is_told_apart_from_a_missing_registry(plain_registry: Registry) -> None:
    with pytest.raises(HostError, match="HTTP 404"):
        registry.digest(f"{plain_registry.prefix}/none:1")
    with pytest.raises(HostError, match="cannot be reached"):
        registry.digest(f"127.0.0.1:{free_port()}/base/none:1")


def test_a_registry_that_asks_for_a_login_is_reachable(guarded: Registry) -> None:
    guarded.logout()
    registry.require_reachable(f"{guarded.prefix}/image:1", purpose="base ngc", hint="none")


def test_the_lock_takes_digests_and_keeps_what_it_cannot_ask_for(plain_registry: Registry) -> None:
    digest = put_image(repository(plain_registry), "22.12-py3").digest
    config = loader.load(ROOT / "buildcfg")
    ngc = config.bases.bases["ngc"].model_copy(
        update={"image": f"{plain_registry.prefix}/image:{{release}}-py3", "releases": ("22.07", "22.12")}
    )
    kept = "sha256:" + "7" * 64
    config = replace(
        config,
        bases=config.bases.model_copy(update={"bases": {"ngc": ngc}}),
        lock=config.lock.model_copy(update={"bases": {"ngc": {"22.07": kept}}}),
    )
    said: list[str] = []
    assert base.digests(config, said.append) == {"ngc": {"22.07": kept, "22.12": digest}}
    assert [line for line in said if "22.07" in line and kept in line]


def test_loading_the_package_loads_no_http_library() -> None:
    check = "import sys, ftbuild.registry; sys.exit(any(m in sys.modules for m in ('requests', 'docker')))"
    subprocess.run([sys.executable, "-c", check], check=True)
