"""The base with CUDA 13: what its nvcc makes of the sample stack for a GPU that CUDA 11.8 does not know."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.cli.demo import ask, model_repository
from ftbuild.cli.selection import Selection, plans
from ftbuild.client import server_container
from ftbuild.config import loader
from testing import ROOT, built_images
from testing.sample import Invoke, copy_of_sample

if TYPE_CHECKING:
    import docker

TRITON, SM, BASE = "24.10", "120", "open-cuda13"


@pytest.fixture
def folder(client: docker.DockerClient, tmp_path: Path) -> Iterator[Path]:
    """The sample configuration, with a name of its own for the images; the base stays on the machine."""
    image = f"ftbuild-test-{uuid.uuid4().hex[:12]}"
    yield copy_of_sample(tmp_path, image)
    built_images.remove(client, image)


# Compiles a source whose only definitions are templates, as compile.sh does: `$1` is the time of the source,
# `$2` the line that fixes it, `$3` the tree, `$4` the line that names the folder. Prints the object's digest.
COMPILE = """
export SOURCE_DATE_EPOCH=315532800 PATH=/usr/local/cuda/bin:$PATH
tree=$3
eval "$4"
mkdir -p /src "$build" /tmp
cat > /src/t.cu << 'EOF'
namespace { template<typename T> __global__ void twice(T* p) { p[threadIdx.x] *= 2; } }
template<typename T> void run(T* p) { twice<T><<<1, 32>>>(p); }
template void run<float>(float*);
EOF
touch -d "@$1" /src/t.cu
eval "$2"
echo 'int getpid(void) { return 1; }' | "$CC" -shared -fPIC -x c -o /tmp/process-id.so -
cd "$build"
LD_PRELOAD=/tmp/process-id.so nvcc -ccbin "$CUDAHOSTCXX" -c /src/t.cu -o /tmp/t.o
sha256sum < /tmp/t.o
"""


def test_cuda_13_compiles_for_a_blackwell_gpu_alone_and_what_it_made_passes_verify_and_serves(
    folder: Path, invoke: Invoke, work: Path, tmp_path: Path
) -> None:
    cell = ("--triton", TRITON, "--sm", SM, "--base", BASE)
    done = invoke("build", "--config", str(folder), *cell, "--progress", "plain")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    (plan,) = plans(loader.load(folder), Selection(folder, [TRITON], [SM], base=[BASE]))
    findings = json.loads((plan.folder(work) / "verify.json").read_text())["findings"]
    codes = [found["facts"] for found in findings if found["check"] == "machine code"]
    # SASS and PTX of both images.
    assert [set(sms) for facts in codes for sms in facts.values()] == [{f"sm_{SM}"}] * 4
    with server_container.serve(plan.tag("runtime"), model_repository(tmp_path / "models")) as running:
        ask(running)


def test_what_nvcc_makes_depends_neither_on_the_time_of_its_source_nor_on_the_tree(
    client: docker.DockerClient, folder: Path, invoke: Invoke
) -> None:
    done = invoke("base", "--config", str(folder), "--triton", TRITON, "--base", BASE)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    (plan,) = plans(loader.load(folder), Selection(folder, [TRITON], [SM], base=[BASE]))
    lines = (ROOT / "dockerfiles" / "steps" / "compile.sh").read_text().splitlines()
    (fixing,) = (line for line in lines if line.startswith("find /src"))
    (naming,) = (line for line in lines if line.startswith("build="))

    def compiled(time: int, line: str, tree: str) -> str:
        command = ["sh", "-euc", COMPILE, "sh", str(time), line, tree, naming]
        environment = dict(plan.toolchain.environment())
        run = client.containers.run(
            plan.base.devel, command, entrypoint="", environment=environment, remove=True
        )
        return str(run, "ascii").strip()

    first = compiled(10**9, fixing, "backend")
    assert {compiled(10**9 + 1, fixing, "backend"), compiled(10**9, fixing, "pyt")} == {first}
    assert compiled(10**9 + 1, "", "backend") != compiled(10**9, "", "backend")
