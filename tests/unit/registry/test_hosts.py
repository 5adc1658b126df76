"""What is told to name in place of something that is no registry: it is one."""

from __future__ import annotations

import re

import pytest

from ftbuild.errors import ConfigError
from ftbuild.registry import reference

WRONG = ["myuser", "myuser/", "team/images", "h/x:tag", "h//x", "x y", "-x", ":", "h:99999/x", "h/X", "ünï/x",
         "https://h/x", "https://my host/x", "oci://", "a/../b"]  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_following_the_advice_leads_to_a_registry(name: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        reference.repository(name, "triton_with_ft")
    assert wrong.value.hint is not None
    (advised,) = re.findall(r"--registry ([^,]*)", wrong.value.hint)
    named = advised.replace("USER", "myuser")
    assert reference.repository(named, "triton_with_ft").endswith("/triton_with_ft")


@pytest.mark.parametrize("name", ["https://ghcr.io/team", "http://localhost:5000/x"])
def test_a_scheme_is_to_be_left_out(name: str) -> None:
    with pytest.raises(ConfigError, match=r"--registry (ghcr\.io/team|localhost:5000/x), without the scheme"):
        reference.repository(name, "triton_with_ft")


def test_a_name_alone_is_taken_for_a_user_of_docker_hub() -> None:
    with pytest.raises(ConfigError, match=r"--registry docker\.io/myuser$"):
        reference.repository("myuser", "triton_with_ft")
