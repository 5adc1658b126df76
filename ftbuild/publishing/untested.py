"""Images published without a smoke test: labelled, under tags of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftbuild.errors import PublishError
from ftbuild.host import shell
from ftbuild.plan import LABELS, Plan

if TYPE_CHECKING:
    import docker

LABEL = f"{LABELS}.unsmoked"
TIMEOUT_SECONDS = 300


def derive(client: docker.DockerClient, plan: Plan, product: str, name: str) -> str:
    """Build a local image `name` from an image of `plan` with one more label, and return its id.

    Raises PublishError if more than the label differs.
    """
    built = plan.tag(product)
    epoch = f"SOURCE_DATE_EPOCH={plan.revision.epoch}"
    argv = ["docker", "buildx", "build", "--tag", name, "--label", f"{LABEL}=true", "--build-arg", epoch]
    shell.run([*argv, "--provenance=false", "-"], stdin=f"FROM {built}\n", timeout=TIMEOUT_SECONDS)
    derived = client.images.get(name)
    if derived.attrs["RootFS"] != client.images.get(built).attrs["RootFS"]:
        raise PublishError(
            f"labelling {built} changed its layers", hint="check the default builder: docker buildx ls"
        )
    return str(derived.id)
