"""Images: additions of the runtime to its base, compressed layers, contents of the base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from shutil import which
from typing import TYPE_CHECKING

from benchmarks.harness.chart import Bars
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.workspace import Workspace, measured
from benchmarks.tools import layers
from benchmarks.tools.layers import Layer
from ftbuild.engine import container, daemon
from ftbuild.errors import HostError
from ftbuild.plan import Plan
from ftbuild.text.reporter import to_stderr

if TYPE_CHECKING:
    import docker

NAME = "images"
OVERHEAD = 1.1
TOTAL_BYTES = 2.2e9
MAX = 12
_LIBRARIES = "find /opt/tritonserver/backends/fastertransformer -name '*.so' -type f -printf '%s\\n'"
# Sizes in KiB. Files that dpkg did not install lie in these two folders, and are counted one by one.
_CONTENTS = r"""
if command -v dpkg-query > /dev/null; then
    dpkg-query --show --showformat='${Installed-Size}\tDebian ${Package}\n'
fi
find /opt /usr/local -xdev -type f -printf '%k\t%h\n'
"""


def needs(workspace: Workspace) -> str | None:
    """Require an engine, zstd and, of the real stack, the image: the sample is built if it is missing."""
    if which("zstd") is None:
        return "zstd is not installed"
    try:
        client = daemon.connect()
    except HostError as missing:
        return missing.what
    plan = workspace.plan()
    if workspace.real and built(client, plan) is None:
        return f"{plan.tag('runtime', moving=True)} is not built: invoke build --cell {plan.cell.id}"
    return None


def run(workspace: Workspace) -> Result:
    """Save the image, measure its layers, and list the contents of its base."""
    client, plan = daemon.connect(), workspace.plan()
    image = built(client, plan)
    if image is None:
        image = plan.tag("runtime")
        to_stderr(f"building {image}")
        workspace.invoke("build", "--cell", plan.cell.id, "--jobs", str(workspace.jobs))
    below = len(client.images.get(plan.base.serving).attrs["RootFS"]["Layers"])
    to_stderr(f"docker save {image}")
    parts = layers.read(client, image, workspace.work)
    libraries = sum(map(int, container.run(client, image, _LIBRARIES).split()))
    contents = parsed(container.run(client, plan.base.serving, _CONTENTS, user="0"))
    data = {
        "layers": [asdict(layer) for layer in parts],
        "below": below,
        "libraries": libraries,
        "base": contents,
    }
    charts = [layer_chart(plan, parts), base_chart(plan, contents)]
    cells = [measured(plan, {"runtime": str(client.images.get(image).id)})]
    return workspace.result(NAME, figures(workspace, parts, below, libraries), data, charts, cells=cells)


def built(client: docker.DockerClient, plan: Plan) -> str | None:
    """Return the image of these inputs, else the newest of the cell, whose size seldom differs."""
    tags = (plan.tag("runtime"), plan.tag("runtime", moving=True))
    return next((tag for tag in tags if daemon.image(client, tag)), None)


def parsed(listing: str) -> dict[str, int]:
    """Return bytes by Debian package and by folder, largest first."""
    sizes: dict[str, int] = {}
    for line in listing.splitlines():
        kib, _, name = line.partition("\t")
        sizes[name] = sizes.get(name, 0) + int(kib or 0) * 1024
    return dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def figures(workspace: Workspace, parts: Sequence[Layer], below: int, libraries: int) -> list[Figure]:
    """Return the sizes; goals are for the real libraries only, since the miniature ones are tiny."""
    own = sum(layer.unpacked for layer in parts[below:])
    total = sum(layer.unpacked for layer in parts)
    how = "measured: tars of `docker save`"
    of_ours = f"layers over the base ({own / 1e6:.1f} MB) / stripped libraries ({libraries / 1e6:.1f} MB)"
    goals = (OVERHEAD, TOTAL_BYTES) if workspace.real else (None, None)
    return [
        Figure(Topic.IMAGES, of_ours, own / libraries, "", goals[0], how),
        Figure(Topic.IMAGES, "base with the backend, unpacked", total, "B", goals[1], how),
        *compressed("base with the backend", parts),
        *compressed("layers over the base", parts[below:]),
    ]


def compressed(what: str, part: Sequence[Layer]) -> list[Figure]:
    """Return the compressed sizes, which a pull transfers."""
    levels = {"gzip": layers.GZIP_LEVEL, "zstd": layers.ZSTD_LEVEL}
    return [
        Figure(
            Topic.IMAGES,
            f"{what}, {kind}",
            sum(getattr(layer, kind) for layer in part),
            "B",
            None,
            f"measured: {kind} -{level} of each layer",
        )
        for kind, level in levels.items()
    ]


def layer_chart(plan: Plan, parts: Sequence[Layer]) -> Bars:
    """Return the chart of all layers above 1 MB."""
    shown = [layer for layer in parts if layer.unpacked > 1e6]
    series = {
        kind: tuple(getattr(layer, kind) / 1e6 for layer in shown) for kind in ("unpacked", "gzip", "zstd")
    }
    title = f"Layers of the runtime image, {plan.cell.id}"
    return Bars("images", title, "MB", tuple(layer.step for layer in shown), series)


def base_chart(plan: Plan, contents: Mapping[str, int]) -> Bars:
    """Return the chart of the largest parts of the base."""
    shown = list(contents.items())[:MAX]
    sizes = tuple(size / 1e6 for _, size in shown)
    return Bars(
        "base", f"What the base {plan.base.name} holds", "MB", tuple(n for n, _ in shown), {"size": sizes}
    )
