from __future__ import annotations

import time

import pytest

from ftbuild import registry
from ftbuild.errors import HostError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvcr.io/nvidia/tritonserver:22.12-py3", ("nvcr.io", "nvidia/tritonserver", "22.12-py3", None)),
        ("debian", ("registry-1.docker.io", "library/debian", "latest", None)),
        ("me/x:1", ("registry-1.docker.io", "me/x", "1", None)),
        ("localhost:5000/x@sha256:ab", ("localhost:5000", "x", "latest", "sha256:ab")),
    ],
)
def test_image_names_are_taken_apart_as_docker_does(name: str, expected: tuple[str, ...]) -> None:
    reference = registry.parse(name)
    assert (reference.host, reference.repository, reference.tag, reference.digest) == expected


def test_an_unreachable_registry_is_an_environment_error_in_seconds() -> None:
    start = time.monotonic()
    with pytest.raises(HostError) as refused:
        registry.require_reachable("registry.invalid/x:1", purpose="base ngc", hint="use --base open")
    assert time.monotonic() - start < 10
    assert "registry.invalid" in str(refused.value)
    assert "--base open" in str(refused.value)
