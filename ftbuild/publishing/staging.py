"""Images that wait: pushed where they are built, fetched where a GPU can test them."""

from __future__ import annotations

from collections.abc import Sequence

from ftbuild.engine import daemon
from ftbuild.engine.daemon import PullRefused
from ftbuild.errors import PublishError
from ftbuild.gates.report import VERIFY
from ftbuild.plan import Plan
from ftbuild.publishing import gates
from ftbuild.publishing.session import Options, PublishSession, only, saying
from ftbuild.text.reporter import Reporter


def stage(plans: Sequence[Plan], options: Options, *, report: Reporter = print) -> None:
    """Push verified images to where they wait for their smoke test; PublishError when one may not."""
    session = PublishSession(options)
    for plan in plans:
        images = session.built(plan)
        gates.require(plan, session.folder(plan), only(images), [VERIFY])
        for product, image in images.items():
            staged = session.push(
                product, image, session.options.names.staged(plan, product), saying(plan, report)
            )
            session.inventory(plan, product, staged, plan.tag(product))
            report(f"[{plan.cell.id}] staged {product} {image[:19]}")


def pull(plans: Sequence[Plan], options: Options, *, report: Reporter = print) -> None:
    """Bring staged images to this engine under the names that a build gives them, to be tested."""
    session = PublishSession(options)
    for plan in plans:
        for product, staged in session.staged(plan).items():
            name = f"{session.staging.name}@{staged.whole.descriptor.digest}"
            report(f"[{plan.cell.id}] pulling {product} {name}")
            try:
                daemon.pull(session.client, name)
            except PullRefused as refused:
                raise refused.converted(PublishError) from refused
            for moving in (False, True):
                daemon.tag(session.client, name, plan.tag(product, moving=moving))
