"""The same inputs give the same files: the sample cell, built again without any cache of layers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.build import definitions, machine
from ftbuild.build.machine import Host
from ftbuild.plan import PRODUCTS, Plan
from testing import nvcc_names
from testing.layers import differences

if TYPE_CHECKING:
    import docker

LONG = "FTBUILD_LONG"
_ETC = re.compile(r"layer \d+: etc: ")


def test_what_nvcc_makes_depends_neither_on_the_time_of_a_source_nor_on_the_tree(
    client: docker.DockerClient, built: Plan
) -> None:
    nvcc_names.assert_fixed(client, built)


@pytest.mark.skipif(not os.environ.get(LONG), reason=f"takes minutes: {LONG}=1 runs it")
@pytest.mark.timeout(1200)
def test_a_second_build_without_caches_gives_the_same_files_and_runtime_image(
    client: docker.DockerClient, built: Plan, work: Path
) -> None:
    folder, again = built.folder(work), f"{built.image}:again"
    names = {product: f"{again}-{product}" for product in PRODUCTS}
    targets = {product: definitions.target_name(built, product) for product in PRODUCTS}
    tags = [word for product in PRODUCTS for word in ("--set", f"{targets[product]}.tags={names[product]}")]
    command = [
        "docker",
        "buildx",
        "bake",
        "--file",
        "docker-bake.json",
        "--no-cache",
        *tags,
        *targets.values(),
    ]
    # The objects are compiled again, too.
    settings = {**os.environ, machine.SETTINGS: f"{Host(jobs=2).lines()}CCACHE_RECACHE=1\n"}
    try:
        done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        for product, name in names.items():
            first, second = (client.images.get(image) for image in (built.tag(product), name))
            found = set()
            if first.id != second.id:
                found = set(differences(built.tag(product), name))
            # BuildKit keeps two files in /etc during a step; the engine does not always record the folder.
            other = {line for line in found if product == "runtime" or not _ETC.match(line)}
            assert not other, f"{product}: {len(other)} differences\n" + "\n".join(sorted(other)[:40])
            print(f"{product}: {first.id}, then {second.id} {sorted(found)}")
    finally:
        for name in names.values():
            if client.images.list(name=name):
                client.images.remove(name, force=True)
