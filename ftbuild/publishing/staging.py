"""Images that wait: pushed where they are built, fetched where a GPU can test them."""

from __future__ import annotations

from collections.abc import Sequence

from ftbuild.engine import daemon
from ftbuild.errors import PublishError
from ftbuild.gates.report import VERIFY
from ftbuild.plan import Plan
from ftbuild.publishing import gates
from ftbuild.publishing.retry import Say
from ftbuild.publishing.session import Desk, Options, only, saying


def stage(plans: Sequence[Plan], options: Options, *, report: Say = print) -> None:
    """Push verified images to where they wait for their smoke test; PublishError when one may not."""
    desk = Desk(options)
    for plan in plans:
        images = desk.built(plan)
        gates.require(plan, desk.folder(plan), only(images), [VERIFY])
        for product, image in images.items():
            staged = desk.push(product, image, desk.options.names.staged(plan, product), saying(plan, report))
            desk.inventory(plan, product, staged, plan.tag(product))
            report(f"[{plan.cell.id}] staged {product} {image[:19]}")


def pull(plans: Sequence[Plan], options: Options, *, report: Say = print) -> None:
    """Bring staged images to this engine under the names that a build gives them, to be tested."""
    desk = Desk(options)
    for plan in plans:
        for product, staged in desk.staged(plan).items():
            name = f"{desk.staging.name}@{staged.whole.descriptor.digest}"
            report(f"[{plan.cell.id}] pulling {product} {name}")
            daemon.pull(desk.client, name, PublishError)
            for moving in (False, True):
                daemon.tag(desk.client, name, plan.tag(product, moving=moving))
