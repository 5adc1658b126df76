"""What the helper of tests and benchmarks removes from an engine, and what it leaves."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from testing import built_images
from testing.sample import sample_plan

if TYPE_CHECKING:
    import docker


def test_an_image_that_has_another_name_keeps_it(client: docker.DockerClient, base: None) -> None:
    ours, other = (f"ftbuild-test-{uuid.uuid4().hex[:12]}" for _ in range(2))
    image = client.images.get(sample_plan().base.serving)
    for name, tag in ((ours, "1"), (ours, "2"), (other, "1")):
        image.tag(name, tag)
    built_images.remove(client, ours, keep=[f"{ours}:2"])
    assert built_images.tags(client, ours) == {f"{ours}:2"}
    built_images.remove(client, ours)
    assert built_images.tags(client, ours) == set()
    assert built_images.tags(client, other) == {f"{other}:1"}
    built_images.remove(client, other)
    assert client.images.get(sample_plan().base.serving).id == image.id
