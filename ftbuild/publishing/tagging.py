"""Tags in a registry, set to content that the registry already has."""

from __future__ import annotations

from ftbuild.errors import PublishError
from ftbuild.publishing import retry
from ftbuild.registry.client import Repository
from ftbuild.text.reporter import Reporter

TIMEOUT_SECONDS = 1800


def set_tag(source: Repository, digest: str, target: Repository, tag: str, report: Reporter) -> None:
    """Point `tag` of `target` to `digest` of `source`; layers are copied within the registry.

    A tag changes with one request, and only after all its content is there (distribution-spec, "Push"), so
    it never points to half an image. Raises PublishError if the registry refuses, or changes the digest.
    """
    argv = ["docker", "buildx", "imagetools", "create", "--progress", "plain"]
    argv += ["--tag", f"{target.name}:{tag}", f"{source.name}@{digest}"]
    retry.command(
        argv,
        report,
        timeout=TIMEOUT_SECONDS,
        what="the tag could not be set",
        where=f"{target.name}:{tag}",
        hint="docker login with an account that may push",
    )
    found = target.head(tag)
    if found is None or found.digest != digest:
        raise PublishError(
            f"{target.name}:{tag} does not point to the digest that it was set to",
            where=f"{found.digest if found else 'nothing'} instead of {digest}",
            hint="another run publishes the same cell, or the registry rewrites manifests",
        )
