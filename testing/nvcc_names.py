"""What nvcc names by the time of a source and by its own folder, compiled as compile.sh does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftbuild.plan import Plan
from testing import ROOT

if TYPE_CHECKING:
    import docker

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


def assert_fixed(client: docker.DockerClient, plan: Plan) -> None:
    """Assert that neither decides an object, and that both would, in the image that a plan compiles in."""
    lines = (ROOT / "dockerfiles" / "steps" / "compile.sh").read_text().splitlines()
    (fixing,) = (line for line in lines if line.startswith("find /src"))
    (naming,) = (line for line in lines if line.startswith("build="))

    def compiled(time: int, tree: str, *, fixing: str = fixing, naming: str = naming) -> str:
        command = ["sh", "-euc", COMPILE, "sh", str(time), fixing, tree, naming]
        environment = dict(plan.toolchain.environment())
        run = client.containers.run(
            plan.base.devel, command, entrypoint="", environment=environment, remove=True
        )
        return str(run, "ascii").strip()

    first = compiled(10**9, "backend")
    assert {compiled(10**9 + 1, "backend"), compiled(10**9, "pyt")} == {first}
    assert compiled(10**9 + 1, "backend", fixing="") != compiled(10**9, "backend", fixing="")
    assert compiled(10**9, "pyt", naming="build=/build/$tree") != first
