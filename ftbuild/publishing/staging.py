"""Staged images: pushed where they are built, pulled where a GPU can test them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain

from ftbuild.engine import daemon
from ftbuild.engine.daemon import PullRefused
from ftbuild.errors import PublishError
from ftbuild.gates.report import VERIFY
from ftbuild.host import locks
from ftbuild.plan import Plan
from ftbuild.publishing import gates
from ftbuild.publishing.session import Options, PublishSession, local_ids
from ftbuild.text.reporter import Reporter, prefixed


def stage(plans: Sequence[Plan], options: Options, *, report: Reporter = print) -> None:
    """Push verified images to the staging repository; PublishError if one is not verified."""
    session = PublishSession(options)
    for plan in plans:
        cell_report = prefixed(report, plan.cell.id)
        with locks.cell(session.folder(plan), cell_report):
            images = session.built(plan)
            gates.require(plan, session.folder(plan), local_ids(images), [VERIFY])
            for product, image in images.items():
                tag = session.options.names.staged(plan, product)
                staged = session.stage(plan, product, image, tag, cell_report)
                session.inventory(plan, product, staged, plan.tag(product))
                cell_report(f"staged {product} {image[:19]}")


def pull(plans: Sequence[Plan], options: Options, *, report: Reporter = print) -> None:
    """Pull staged images to this engine under the names that a build gives them, for their smoke test."""
    session = PublishSession(options)
    for plan in plans:
        cell_report = prefixed(report, plan.cell.id)
        with locks.cell(session.folder(plan), cell_report):
            staged = session.staged(plan)
            digests = {product: image.tagged.descriptor.digest for product, image in staged.items()}
            tags = {
                product: [plan.tag(product, moving=moving) for moving in (False, True)] for product in staged
            }
            with daemon.replacing(session.client, *chain.from_iterable(tags.values())):
                fetch(session, digests, tags, report=cell_report)


def fetch(
    session: PublishSession,
    digests: Mapping[str, str],
    tags: Mapping[str, Sequence[str]],
    *,
    report: Reporter,
) -> None:
    """Pull images from the staging repository to this engine, under their `tags` alone.

    `digests` are theirs by what they are called here. Raises PublishError for one that the registry does not
    give: none has a tag then.
    """
    from docker.errors import DockerException

    names = {image: f"{session.staging.name}@{digest}" for image, digest in digests.items()}
    try:
        for image, name in names.items():
            report(f"pulling {image} {name}")
            daemon.pull(session.client, name)
        for image, name in names.items():
            for tag in tags[image]:
                daemon.tag(session.client, name, tag)
    except PullRefused as refused:
        raise refused.converted(PublishError) from refused
    finally:
        # A digest left as a name would keep the image when its tags are removed.
        for name in names.values():
            with suppress(DockerException):
                session.client.images.remove(name, noprune=True)
