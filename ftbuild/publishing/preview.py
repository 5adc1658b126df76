"""What publishing would do for each cell: the checks of the real run, which writes nothing here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ftbuild.errors import FtbuildError
from ftbuild.gates.report import VERIFY
from ftbuild.host import failures
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import (
    gates,
    names,
    pinned,
    publish,
    tagging,
    trust,
)
from ftbuild.publishing.session import Options, PublishSession, local_ids
from ftbuild.publishing.status import PublishStatus, query
from ftbuild.text.reporter import Reporter, prefixed

NOTHING, NOTHING_UNTESTED = "nothing: published", "nothing: published as untested"
PUBLISH, PUBLISH_UNTESTED = "push, attest, set all tags", "push, attest, set the tags of untested images"
SIGN, MOVE = "sign", "set the moving tags"
REFUSED = "refused"


@dataclass(frozen=True)
class Planned:
    """What is to do for a cell; `error` is why it would be refused."""

    plan: Plan
    action: str
    error: FtbuildError | None = None

    @property
    def exit_code(self) -> int:
        """Return the code with which the real run would end for this cell, as far as it is known before."""
        return self.error.exit_code if self.error else 0


def preview(plans: Sequence[Plan], options: Options, *, report: Reporter = print) -> list[Planned]:
    """Return what publishing would do; errors as `publish.publish_cells`, those of a cell in its entry."""
    session = PublishSession(options)
    return [_planned(session, status, report) for status in query(plans, session.repository)]


def _planned(session: PublishSession, status: PublishStatus, report: Reporter) -> Planned:
    try:
        with failures.reported():
            return Planned(status.plan, _action(session, status, prefixed(report, status.plan.cell.id)))
    except FtbuildError as refused:
        return Planned(status.plan, REFUSED, refused)


def _action(session: PublishSession, status: PublishStatus, report: Reporter) -> str:
    plan, options = status.plan, session.options
    if not status.is_complete:
        pinned.require(plan)
    there = {product: digest for product, digest in status.published.items() if digest}
    if status.is_published:
        signed = publish.signed(session, there, report)
        to_sign = options.signer is not None and len(signed) < len(there)
        if status.is_complete and not to_sign:
            return NOTHING
        trust.require(session, plan, there, signed)
        if status.is_complete:
            return SIGN
        _require_newer(session, plan, there)
        return MOVE
    if options.allow_unsmoked and not publish.is_smoked(session.folder(plan)):
        if publish.complete_unsmoked(session, status, report):
            return NOTHING_UNTESTED
        built = session.built(plan)
        gates.require(plan, session.folder(plan), local_ids(built), [VERIFY])
        publish.require_built(session, plan, built, report)
        return SIGN if status.is_unsmoked else PUBLISH_UNTESTED
    trust.require(session, plan, there)
    _require_tested(session, plan, report)
    if not options.force:
        for product in PRODUCTS:
            tag = names.tag(plan, product, moving=True)
            tagging.require_later(session.repository, plan.revision.time, tag)
    return PUBLISH


def _require_newer(session: PublishSession, plan: Plan, digests: Mapping[str, str]) -> None:
    if not session.options.force:
        for product, digest in digests.items():
            tagging.require_newer(session.repository, digest, names.tag(plan, product, moving=True))


def _require_tested(session: PublishSession, plan: Plan, report: Reporter) -> None:
    """Raise PublishError unless images that may be published are staged, or built here."""
    staged, local = publish.ready(session, plan)
    publish.require_built(session, plan, local, report)
    for product, there in staged.items():
        labels = session.staging.config(there.image).labels
        publish.require_publishable(session, plan, product, labels, report)
