from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import MaxRetryError, ProtocolError

from ftbuild import registry
from ftbuild.errors import ConfigError, HostError
from ftbuild.registry import credentials, reference
from ftbuild.registry.address import is_loopback, resolved
from ftbuild.registry.policy import BUSY, POLICY, REFUSING, RetryPolicy
from ftbuild.registry.retry import Patience, patience

IMAGE = "triton_with_ft"
PARTS = st.from_regex(r"[a-z0-9]{1,8}([._-][a-z0-9]{1,8}){0,2}", fullmatch=True)
HOSTS = st.sampled_from(["harbor.example.com", "localhost", "127.0.0.1:5000", "registry:5000", "[::1]:5000"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvcr.io/nvidia/tritonserver:22.12-py3", ("nvcr.io", "nvidia/tritonserver", "22.12-py3", None)),
        ("debian", ("registry-1.docker.io", "library/debian", "latest", None)),
        ("me/x:1", ("registry-1.docker.io", "me/x", "1", None)),
        ("docker.io/me/x:1", ("registry-1.docker.io", "me/x", "1", None)),
        ("localhost:5000/x@sha256:ab", ("localhost:5000", "x", "latest", "sha256:ab")),
    ],
)
def test_image_names_are_taken_apart_as_docker_does(name: str, expected: tuple[str, ...]) -> None:
    found = registry.parse(name)
    assert (found.host, found.repository, found.tag, found.digest) == expected


@given(host=HOSTS, path=st.lists(PARTS, min_size=1, max_size=4))
def test_a_repository_that_is_put_together_is_taken_apart_again(host: str, path: list[str]) -> None:
    name = reference.repository("/".join([host, *path]), IMAGE)
    found = registry.parse(name)
    assert (found.registry, found.repository) == (host, "/".join([*path, IMAGE]))
    assert registry.parse(str(found)) == found


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("docker.io/ada", "docker.io/ada/triton_with_ft"),
        ("registry-1.docker.io/ada", "docker.io/ada/triton_with_ft"),
        ("nvcr.io/org", "nvcr.io/org/triton_with_ft"),
        ("nvcr.io/org/team/", "nvcr.io/org/team/triton_with_ft"),
        (
            "registry.gitlab.com/group/sub/project/ci",
            "registry.gitlab.com/group/sub/project/ci/triton_with_ft",
        ),
        # An image may be called as its project is; ghcr.io has no more than the owner before it.
        ("registry.gitlab.com/group", "registry.gitlab.com/group/triton_with_ft"),
        ("ghcr.io/ada", "ghcr.io/ada/triton_with_ft"),
        ("harbor.example.com:8443/project", "harbor.example.com:8443/project/triton_with_ft"),
        ("127.0.0.1:5000", "127.0.0.1:5000/triton_with_ft"),
    ],
)
def test_a_registry_and_an_image_make_a_repository(option: str, name: str) -> None:
    assert reference.repository(option, IMAGE) == name


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("ada", "--registry docker.io/ada"),
        ("", "--registry docker.io/USER"),
        ("https://harbor.example.com/project", "--registry harbor.example.com/project, without the scheme"),
        ("docker.io", "docker.io/USER"),
        ("docker.io/ada/images", "docker.io/USER"),
        ("nvcr.io", "nvcr.io/ORG/TEAM"),
        ("nvcr.io/org/team/more", "nvcr.io/ORG/TEAM"),
        ("ghcr.io", "ghcr.io/OWNER"),
        ("registry.gitlab.com", "GROUP/PROJECT"),
        ("harbor.example.com/Project", "lower case: project"),
        ("harbor.example.com/project:1", "no tag"),
        ("harbor.example.com//project", "lower case letters"),
        ("harbor.example.com/Te!m", "lower case letters and digits, between them"),
        ("Bad Host!", "docker.io/USER"),
        (f"harbor.example.com/{'x' * 230}", "255 are allowed"),
    ],
)
def test_a_repository_that_cannot_exist_is_refused_with_the_way_out(option: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        reference.repository(option, IMAGE)
    assert hint in str(refused.value.hint)
    assert f"--registry {option}" in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        reference.repository(option, IMAGE, "--from")
    assert f"--from {option}" in str(refused.value)
    assert "--registry" not in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize(
    "name",
    [
        "debian",
        "debian:12",
        "me/x:1",
        "localhost/x",
        "localhost:5000/x",
        "[::1]:5000/x:1",
        "harbor.example.com:8443/a/b_c/d.e__f-g:Tag_1.2",
        f"r.example/x@sha256:{'0' * 64}",
        f"r.example/x:1@sha256:{'0' * 64}",
        f"sha256:{'a' * 64}",
        "x" * 255,
    ],
)
def test_names_of_images_pass_as_docker_takes_them(name: str) -> None:
    assert reference.check_image(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Debian",
        "debian:",
        "debian@",
        "debian:-x",
        f"debian@sha256:{'0' * 63}",
        "a//b",
        "/a",
        "a/",
        "R.Example/Path",
        "user@r.example/x",
        "x" * 256,
        "--privileged",
        "x y",
    ],
)
def test_other_names_of_images_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not the name of an image") as refused:
        reference.check_image(name)
    assert refused.value.what.startswith(repr(name[:140]))


def test_docker_hub_has_one_name_outside() -> None:
    for host in ("docker.io", "index.docker.io", "registry-1.docker.io"):
        assert reference.written(host) == "docker.io"
        assert registry.parse(f"{host}/me/x").host == "registry-1.docker.io"
    assert reference.written("ghcr.io") == "ghcr.io"
    assert str(registry.parse("debian@sha256:ab")) == "docker.io/library/debian:latest@sha256:ab"
    assert str(registry.parse("me/x:1")) == "docker.io/me/x:1"


def test_a_busy_registry_is_asked_for_a_minute() -> None:
    assert (POLICY.retries, POLICY.first_pause, POLICY.patience) == (6, 1.0, 64.0)
    assert BUSY == (429, 500, 502, 503, 504)
    assert REFUSING == (429, 503)


@pytest.mark.parametrize(
    ("once", "connect", "read", "statuses"), [(False, 2, 3, BUSY), (True, 2, 0, REFUSING)]
)
def test_what_may_have_had_its_effect_is_not_repeated(
    once: bool, connect: int, read: int, statuses: tuple[int, ...]
) -> None:
    made = patience(POLICY, once=once)
    assert (made.connect, made.read, made.status, made.total, made.other) == (connect, read, 6, 6, 0)
    assert tuple(made.status_forcelist) == statuses
    assert set(made.allowed_methods or ()) == {"GET", "HEAD", "POST", "PUT"}
    fewer = patience(RetryPolicy(retries=1, first_pause=1.0, patience=1.0), once=once)
    assert (fewer.connect, fewer.read, fewer.total) == (1, 0 if once else 1, 1)


def test_pauses_double_until_the_patience_is_used_up() -> None:
    def fail(state: Patience) -> Patience:
        return state.increment("GET", "/", error=ProtocolError(), _pool=object())

    once = fail(patience(RetryPolicy(9, 1.0, 2.5)))
    assert (once.get_backoff_time(), once.left) == (0, 2.5)
    twice = fail(once)
    assert (twice.get_backoff_time(), twice.left) == (1.0, 1.5)
    with pytest.raises(MaxRetryError):
        fail(twice)  # the next pause would be 2 s


def test_a_name_may_have_255_characters() -> None:
    long = f"harbor.example.com/{'x' * (255 - len('harbor.example.com//triton_with_ft'))}"
    assert len(reference.repository(long, IMAGE)) == 255
    with pytest.raises(ConfigError, match="a name of 256 characters is too long"):
        reference.repository(f"{long}x", IMAGE)


@pytest.mark.parametrize("tag", ["22.12-sm80", "22.12-sm80_86-0a1b2c3d4e5f-sdk", "_", "A" * 128])
def test_tags_of_the_grammar_pass(tag: str) -> None:
    assert reference.check_tag(tag) == tag


@pytest.mark.parametrize("tag", ["", ".x", "-x", "a+b", "a/b", "a b", "x\n", "A" * 129])
def test_other_tags_are_refused(tag: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a tag"):
        reference.check_tag(tag)


@pytest.mark.parametrize("host", ["localhost", "localhost:5000", "127.0.0.1", "127.1.2.3:5000", "[::1]:5000"])
def test_this_machine_is_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["localhost.example.com", "128.0.0.1:5000", "nvcr.io", "[::2]:5000", "x:127"]
)
def test_other_machines_are_not_taken_for_this_one(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("tags/list", "https://harbor.example.com/v2/a/tags/list"),
        ("/v2/a/tags/list?last=x", "https://harbor.example.com/v2/a/tags/list?last=x"),
        ("http://harbor.example.com/v2/a/uploads/1", "https://harbor.example.com/v2/a/uploads/1"),
        ("https://storage.example.com/1?state=x", "https://storage.example.com/1?state=x"),
    ],
)
def test_a_registry_never_leads_its_client_from_tls_to_plain_http(place: str, url: str) -> None:
    assert resolved("https://harbor.example.com/v2/a/", place) == url


def test_docker_hubs_login_is_found_under_the_name_that_docker_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"auths": {"https://index.docker.io/v1/": {"auth": "YWRhOmh1bnRlcjI="}}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    found = credentials.find(registry.parse("docker.io/ada/x").host)
    assert found is not None
    assert found.auth_config() == {"username": "ada", "password": "hunter2"}
    assert "hunter2" not in repr(found)
    assert credentials.find("nvcr.io") is None


def test_an_unreachable_registry_is_an_environment_error_in_seconds() -> None:
    start = time.monotonic()
    with pytest.raises(HostError) as refused:
        registry.require_reachable("registry.invalid/x:1", purpose="base ngc", hint="use --base open")
    assert time.monotonic() - start < 10
    assert "registry.invalid" in str(refused.value)
    assert "--base open" in str(refused.value)
