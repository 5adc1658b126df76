"""Bases that are built from packages and sources, in a registry: published with objects, taken with images.

Who takes objects in place of compiling needs the base all the same, to compile in; who takes an image, to
compare with, and the tools of the other. The name of a base has the key of its inputs. It stands in the
annotation of a signed index, so that the signature is about the name, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache as memoised
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.build import base
from ftbuild.engine import daemon, made
from ftbuild.errors import HostError, PublishError
from ftbuild.plan import BASE, LABELS, Plan
from ftbuild.publishing import base_tools, push, remote_image, staging, verifying
from ftbuild.publishing.attest import manifests
from ftbuild.publishing.base_tools import Tools
from ftbuild.publishing.names import MARK
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.publishing.session import PublishSession
from ftbuild.publishing.substitution import Substitutes
from ftbuild.registry import reference
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    import docker

NAME = f"{LABELS}.base-image"


def tag(name: str) -> str:
    """Return the tag of an image of a base, of its local name."""
    image, _, key = name.removeprefix(BASE).rpartition(":")
    return reference.check_tag(f"base-{image}-{key}")


@dataclass(frozen=True)
class _Image:
    """An image of a base: whether one in a registry is this one, and what pushes it."""

    name: str
    is_in: Callable[[RemoteImage], bool]
    push: Callable[[], RemoteImage]


def publish(session: PublishSession, plan: Plan, report: Reporter) -> None:
    """Push both images of a base that was built here, and that of its tools, and sign them, once.

    Raises PublishError if the base is not here, if the registry refuses, or for another image under the tag.
    """
    if plan.base.local is None:
        return
    digests: dict[str, str] = {}
    for image in _images(session, plan, digests, report):
        digests[image.name] = _published(session, plan, image, report)


def _published(session: PublishSession, plan: Plan, image: _Image, report: Reporter) -> str:
    """Return the digest of the index of an image that is ours, pushed and signed if need be."""
    signer, there = session.options.signer, session.repository.head(tag(image.name))
    if there and signer and signer.has_signed(f"{session.repository.name}@{there.digest}", report):
        return there.digest
    if there:
        _require_own(session, image, there.digest)
    digest = there.digest if there else _push(session, plan, image, report)
    if signer:
        report(f"signing {image.name}")
        signer.sign(f"{session.repository.name}@{digest}", report)
    return digest


def _images(
    session: PublishSession, plan: Plan, digests: Mapping[str, str], report: Reporter
) -> Iterator[_Image]:
    """Yield the images, that of the tools last: it stands on the one of `digests` to serve from."""

    def is_local(name: str, found: RemoteImage) -> bool:
        return session.local(name) in found.ids

    def pushed(name: str) -> RemoteImage:
        staged_tag = f"{MARK}{tag(name)}"
        image = push.push_image(session.client, session.local(name), session.repository, staged_tag, report)
        return session.compressed(plan, session.repository, image, report)

    @memoised
    def tools() -> Tools:
        # Whoever may push can move the tag meanwhile.
        serving = remote_image.present(session.repository, digests[plan.base.serving])
        return base_tools.of(session.client, session.local(plan.base.devel), session.repository, serving)

    for name in (plan.base.serving, plan.base.devel):
        yield _Image(name, partial(is_local, name), partial(pushed, name))
    yield _Image(
        plan.base.tools,
        lambda found: found.image.descriptor == tools().manifest.descriptor,
        lambda: tools().put(session.repository),
    )


def _require_own(session: PublishSession, image: _Image, digest: str) -> None:
    """Raise PublishError unless an index in the registry is of the base that is here."""
    found = remote_image.read(session.repository, digest)
    if found is None or not image.is_in(found) or not _is_named(found, image.name):
        raise PublishError(
            f"the registry has another image under {tag(image.name)} than the base that was made here",
            where=f"{session.repository.name}@{digest}",
            hint="find out who set the tag; delete it in the registry, then publish again",
        )


def _is_named(found: RemoteImage, name: str) -> bool:
    return (found.tagged.content.annotations or {}).get(NAME) == name


def _push(session: PublishSession, plan: Plan, image: _Image, report: Reporter) -> str:
    report(f"pushing {image.name}")
    repository, name, remote = session.repository, image.name, image.push().image
    content = {
        "schemaVersion": 2,
        "mediaType": manifests.INDEX,
        "manifests": [{**remote.descriptor.as_dict(), "platform": repository.config(remote).platform}],
        "annotations": {NAME: name, f"{LABELS}.snapshot": plan.base.snapshot},
    }
    return repository.put_manifest(tag(name), manifests.canonical(content), manifests.INDEX).digest


def take(
    substitutes: Substitutes,
    client: docker.DockerClient,
    plan: Plan,
    cache: Path,
    report: Reporter,
    *,
    compiles: bool = True,
) -> None:
    """Pull the images of a base that are not here, if trusted keys have signed them.

    What only verifies, and no command `compiles` with, does without the compiler image if the tools are
    published. Whatever is refused is reported: the base is made here then.
    """
    is_here = base.is_present if compiles else base.is_comparable
    if plan.base.local is None or is_here(client, plan, cache, report):
        return
    session = substitutes.session()
    try:
        small = not compiles and session.repository.head(tag(plan.base.tools))
        names = (plan.base.serving, plan.base.tools if small else plan.base.devel)
        found = {name: digest for name in names if (digest := _found(session, name, substitutes, report))}
        if len(found) < len(names):
            report(f"{session.repository.name} has no base {plan.base.serving}: making it")
            return
        with daemon.replacing(client, *names):
            staging.fetch(session, found, {name: [name] for name in names}, report=report)
        for name in names:
            made.note(cache, name, daemon.require_image(client, name))
    except (PublishError, HostError) as refused:
        report(f"the base of {session.repository.name} is not used, so it is made here: {refused.what}")


def _found(session: PublishSession, name: str, substitutes: Substitutes, report: Reporter) -> str | None:
    """Return the digest of the signed index of an image; None if there is none."""
    repository = session.repository
    head = repository.head(tag(name))
    if head is None:
        return None
    where = f"{repository.name}@{head.digest}"
    if verifying.signer_of(where, substitutes.trusted, report) is None:
        raise PublishError(f"{name} is signed by nobody who is trusted here", where=where)
    found = remote_image.read(repository, head.digest)
    if found is None or not _is_named(found, name):
        raise PublishError(f"what is signed is not {name}", where=where)
    return head.digest
