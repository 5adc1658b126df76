"""No layer holds what a later one hides: a pull brings every layer, and verify sees what a container sees."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from testing.layers import hidden

if TYPE_CHECKING:
    import docker

# Lists of groups and libraries, which later steps extend.
REPLACED = {f"etc/{name}" for name in (".pwd.lock", "group", "group-", "gshadow", "gshadow-", "ld.so.cache")}
# In the order of a build: what a later step removes or replaces.
STEPS = """\
RUN mkdir /root/keys && echo x > /root/keys/id_rsa && echo x > /root/.netrc && echo x > /etc/motd
RUN rm /root/.netrc && rm -r /root/keys && echo y > /etc/motd
"""


def test_verify_sees_every_file_of_every_layer_and_what_a_step_removes_again_is_found(
    client: docker.DockerClient, built: Plan
) -> None:
    """Of both images, and of one with such steps: read in one go, since they have gigabytes in common."""
    ours = [built.tag(product) for product in PRODUCTS]
    spoilt = f"ftbuild-test:{uuid.uuid4().hex}"
    dockerfile = f"FROM {ours[0]}\nUSER root\n{STEPS}"
    shell.run(["docker", "buildx", "build", "--tag", spoilt, "-"], stdin=dockerfile)
    try:
        found = hidden(*ours, spoilt)
    finally:
        client.images.remove(spoilt, force=True)
    for image in ours:
        assert found[image] <= REPLACED, image
    assert found[spoilt] - REPLACED == {"root/.netrc", "root/keys/id_rsa", "etc/motd"}
