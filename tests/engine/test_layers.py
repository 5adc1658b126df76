"""No layer holds what a later one hides: a pull brings every layer, and verify sees what a container sees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.plan import PRODUCTS, Plan
from testing.layers import hidden
from testing.sample import Derive

if TYPE_CHECKING:
    import docker

# Lists of groups and libraries, which later steps extend.
REPLACED = {f"etc/{name}" for name in (".pwd.lock", "group", "group-", "gshadow", "gshadow-", "ld.so.cache")}


@pytest.mark.parametrize("product", PRODUCTS)
def test_verify_sees_every_file_of_every_layer(
    client: docker.DockerClient, built: Plan, product: str, tmp_path: Path
) -> None:
    assert set(hidden(client, built.tag(product), tmp_path)) <= REPLACED


def test_what_a_step_removes_again_is_found(
    client: docker.DockerClient, derive: Derive, tmp_path: Path
) -> None:
    image = derive(
        "runtime",
        "RUN mkdir /root/keys && echo x > /root/keys/id_rsa && echo x > /root/.netrc && echo x > /etc/motd\n"
        "RUN rm /root/.netrc && rm -r /root/keys && echo y > /etc/motd",
    )
    found = set(hidden(client, image, tmp_path)) - REPLACED
    assert found == {"root/.netrc", "root/keys/id_rsa", "etc/motd"}
