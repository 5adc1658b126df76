"""A tag in a registry is made to point to something that is in the registry already."""

from __future__ import annotations

from ftbuild.errors import PublishError
from ftbuild.publishing import retry
from ftbuild.registry.client import Repository
from ftbuild.text.reporter import Reporter

PATIENCE_SECONDS = 1800


def promote(source: Repository, digest: str, target: Repository, tag: str, report: Reporter) -> None:
    """Let `tag` of `target` mean what `digest` means in `source`; layers are copied within the registry.

    A tag changes with one request, and only after everything that it means is there (distribution-spec,
    "Push"), so it never means half an image. Raises PublishError when the registry refuses, or changes the
    digest.
    """
    argv = ["docker", "buildx", "imagetools", "create", "--progress", "plain"]
    argv += ["--tag", f"{target.name}:{tag}", f"{source.name}@{digest}"]
    retry.command(
        argv,
        report,
        timeout=PATIENCE_SECONDS,
        what="the tag could not be set",
        where=f"{target.name}:{tag}",
        hint="docker login with an account that may push",
    )
    found = target.head(tag)
    if found is None or found.digest != digest:
        raise PublishError(
            f"{target.name}:{tag} does not mean what it was set to",
            where=f"{found.digest if found else 'nothing'} instead of {digest}",
            hint="somebody else publishes the same cell, or the registry rewrites manifests",
        )
