"""Tags in a registry, set to content that the registry already has, and the order of moving ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ftbuild.errors import PublishError
from ftbuild.publishing import retry
from ftbuild.registry.client import Manifest, Repository
from ftbuild.registry.malformed import Malformed
from ftbuild.text.reporter import Reporter

TIMEOUT_SECONDS = 1800
# Between the machine of a commit and the one that publishes.
CLOCKS_DIFFER = timedelta(days=1)
CREATED = "org.opencontainers.image.created"


def set_tag(source: Repository, digest: str, target: Repository, tag: str, report: Reporter) -> None:
    """Point `tag` of `target` to `digest` of `source`; layers are copied within the registry.

    A tag changes with one request, and only after all its content is there (distribution-spec, "Push"), so
    it never points to half an image. Raises PublishError if the registry refuses, or changes the digest.
    """
    if source.name == target.name:
        _tag_present(target, digest, tag)
    else:
        _copy(source, digest, target, tag, report)
    found = target.head(tag)
    if found is None or found.digest != digest:
        raise PublishError(
            f"{target.name}:{tag} does not point to the digest that it was set to",
            where=f"{found.digest if found else 'nothing'} instead of {digest}",
            hint="another run publishes the same cell, or the registry rewrites manifests",
        )


def _tag_present(repository: Repository, digest: str, tag: str) -> None:
    found = repository.manifest(digest)
    if found is None:
        raise PublishError("an image vanished from the registry", where=f"{repository.name}@{digest}")
    repository.put_manifest(tag, found.raw, found.descriptor.media_type)


def _copy(source: Repository, digest: str, target: Repository, tag: str, report: Reporter) -> None:
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


def require_newer(repository: Repository, digest: str, tag: str) -> None:
    """Raise PublishError if a moving tag refers to a newer build than the one that it would get.

    Builds are ordered by the time of the commit that they were made from, an annotation of their indexes.
    What has no such time, or one that is still to come, is not of ftbuild, and older than everything: whoever
    may push could keep a tag from moving for ever.
    """
    present = repository.head(tag)
    if present is None or present.digest == digest:
        return
    _require_order(repository, tag, present.digest, _created(repository, digest))


def require_later(repository: Repository, time: str, tag: str) -> None:
    """Raise PublishError as `require_newer` would for an image of a commit of this time (RFC 3339)."""
    present = repository.head(tag)
    if present is not None:
        _require_order(repository, tag, present.digest, _parsed(time))


def _require_order(repository: Repository, tag: str, digest: str, after: datetime | None) -> None:
    before = _created(repository, tag)
    if before and (after is None or after < before):
        raise PublishError(
            f"{tag} would go back from a build of {before.isoformat()} to one of "
            f"{after.isoformat() if after else 'unknown time'}",
            where=f"{repository.name}: {digest}",
            hint="publish from the newer checkout; --force moves the tag back nevertheless",
        )


def _created(repository: Repository, reference: str) -> datetime | None:
    try:
        found = repository.manifest(reference)
        return _time(found) if found else None
    except Malformed:
        return None


def _time(index: Manifest) -> datetime | None:
    return _parsed((index.content.annotations or {}).get(CREATED, ""))


def _parsed(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo and time < datetime.now(UTC) + CLOCKS_DIFFER else None
