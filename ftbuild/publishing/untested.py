"""Images that no GPU has tested, published all the same: labelled so, under tags of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftbuild.errors import PublishError
from ftbuild.host import shell
from ftbuild.plan import LABELS, Plan

if TYPE_CHECKING:
    import docker

LABEL = f"{LABELS}.unsmoked"
PATIENCE_SECONDS = 300


def derive(client: docker.DockerClient, plan: Plan, product: str, name: str) -> str:
    """The id of a local image `name` that is the product of `plan` but for the label.

    Raises PublishError when it differs in more.
    """
    built = plan.tag(product)
    epoch = f"SOURCE_DATE_EPOCH={plan.revision.epoch}"
    argv = ["docker", "buildx", "build", "--tag", name, "--label", f"{LABEL}=true", "--build-arg", epoch]
    shell.run([*argv, "--provenance=false", "-"], stdin=f"FROM {built}\n", timeout=PATIENCE_SECONDS)
    derived = client.images.get(name)
    if derived.attrs["RootFS"] != client.images.get(built).attrs["RootFS"]:
        raise PublishError(
            f"labelling {built} changed its layers", hint="check the default builder: docker buildx ls"
        )
    return str(derived.id)
