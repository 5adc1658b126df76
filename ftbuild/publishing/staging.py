"""Staged images: pushed where they are built, pulled where a GPU can test them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

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
            for product, staged in session.staged(plan).items():
                tags = [plan.tag(product, moving=moving) for moving in (False, True)]
                digest = staged.tagged.descriptor.digest
                with daemon.replacing(session.client, *tags):
                    fetch(session, product, digest, tags, report=cell_report)


def fetch(
    session: PublishSession, product: str, digest: str, tags: Sequence[str], *, report: Reporter
) -> None:
    """Pull an image by digest from the staging repository to this engine, under the names `tags` alone."""
    from docker.errors import DockerException

    name = f"{session.staging.name}@{digest}"
    report(f"pulling {product} {name}")
    try:
        daemon.pull(session.client, name)
    except PullRefused as refused:
        raise refused.converted(PublishError) from refused
    for tag in tags:
        daemon.tag(session.client, name, tag)
    with suppress(DockerException):  # a digest left as a name would keep the image when its tags are removed
        session.client.images.remove(name, noprune=True)
