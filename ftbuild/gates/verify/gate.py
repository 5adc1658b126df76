"""Verify, the gate without a GPU: requirements on a built pair of images before the smoke test.

Every check looks at the images themselves, by id, and not at the build's own output. A new check is a
function in `checks/` and a row in `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from ftbuild.build import context
from ftbuild.engine import daemon, side_by_side
from ftbuild.engine.daemon import ImageNotBuilt
from ftbuild.errors import FtbuildError, Interrupted, VerifyError
from ftbuild.gates import records
from ftbuild.gates.records import Demand
from ftbuild.gates.report import VERIFY, Gate, GateReport
from ftbuild.gates.subject import Subject
from ftbuild.gates.verify.checks import files, libraries, programs, recipe
from ftbuild.gates.verify.images import Images
from ftbuild.gates.verify.sources import Expected
from ftbuild.gates.verify.verdict import REPORT_BUG, Verdict
from ftbuild.host import locks
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.text.results import CheckResult, State

Check = Callable[[Images, str], Iterator[Verdict]]
_Outcomes = dict[tuple[str, str], list[Verdict]]

RUNTIME, SDK = (("runtime",), ("sdk",))
CHECKS: tuple[tuple[str, Sequence[str], Check], ...] = (
    ("machine code", PRODUCTS, libraries.machine_code),
    ("libraries resolve", RUNTIME, libraries.resolve),
    ("all libraries", RUNTIME, libraries.complete),
    ("multi GPU", RUNTIME, libraries.multi_gpu),
    ("NCCL", RUNTIME, libraries.collectives),
    ("search paths", PRODUCTS, libraries.search_paths),
    ("server starts", RUNTIME, programs.starts),
    ("labels", PRODUCTS, recipe.labels),
    ("patches", SDK, recipe.patched),
    ("python library", SDK, programs.importable),
    ("tokenization", RUNTIME, programs.tokenization),
    ("left-overs", PRODUCTS, files.leftovers),
    ("owners", PRODUCTS, files.owners),
    ("rights", PRODUCTS, files.rights),
    ("user", PRODUCTS, recipe.user),
    ("environment", PRODUCTS, recipe.environment),
    ("layers", PRODUCTS, recipe.layers),
    ("size", PRODUCTS, recipe.unpacked_size),
)
# What these read, no other check reads: they run beside the others.
APART = (programs.starts, recipe.patched, programs.importable)


@dataclass(frozen=True)
class Checked:
    """Verdicts of all checks of one product, on the image of this id."""

    product: str
    image: str
    outcomes: _Outcomes


@dataclass(frozen=True)
class Beforehand:
    """What was done of verify while an image was not here yet: `expected` is of the pinned sources."""

    checked: Sequence[Checked] = ()
    expected: Expected | None = None


NOTHING_BEFORE = Beforehand()


@dataclass(frozen=True)
class Verify:
    """The gate as a `CellTest`."""

    gate: ClassVar[Gate] = VERIFY

    @staticmethod
    def demands(plan: Plan) -> tuple[Demand, ...]:
        """Return what a record must show, the same of every cell."""
        return demands()

    def prepare(self, subject: Subject) -> None:
        """Do nothing: images are all that it needs."""

    def run(self, subject: Subject) -> GateReport:
        """Verify the images of a cell while no other command works on them."""
        subject.report("verifying")
        with locks.cell(subject.folder, subject.report):
            return run(subject)


def demands() -> tuple[Demand, ...]:
    """Return the results that a record must hold: every check, passed, for every product that it is for."""
    return tuple(Demand(name, product) for name, products, _ in CHECKS for product in products)


def run(subject: Subject, before: Beforehand = NOTHING_BEFORE) -> GateReport:
    """Verify the images of a cell, with the staged sources of its build, and write the record.

    What was checked `before` is not checked again if the image is the same. Raises VerifyError when an image
    does not exist, HostError when the base or its compiler image cannot be had.
    """
    VERIFY.discard(subject.folder)
    report = verify(subject, staged=subject.folder / context.SOURCES, before=before)
    report.write(subject.folder)
    return report


def check_product(subject: Subject, product: str, image: str) -> Checked:
    """Run the checks of one product on the image of this id, before the other is there. Errors as `run`."""
    return Checked(product, image, _all_outcomes(Images(subject, {product: image})))


def require(subject: Subject, before: Beforehand = NOTHING_BEFORE) -> Mapping[str, str]:
    """Verify unless the record shows that these very checks have passed these very images; return their ids.

    `before` is as for `run`. Raises VerifyError with every failed check, and errors as `run`.
    """
    ids = _ids(subject, _names(subject))
    if _is_passed(subject, ids):
        return ids
    subject.report("verifying both images")
    report = run(subject, before)
    report.require()
    return report.images


def _is_passed(subject: Subject, ids: Mapping[str, str]) -> bool:
    try:
        known = records.read(VERIFY, subject.folder)
    except VerifyError as damaged:
        subject.report(f"ignoring a record: {damaged.what}")
        return False
    image_ids = {product: (image,) for product, image in ids.items()}
    return known is not None and not records.objection(known, VERIFY, subject.plan, demands(), image_ids)


def verify(
    subject: Subject,
    *,
    images: Mapping[str, str] | None = None,
    staged: Path | None = None,
    before: Beforehand = NOTHING_BEFORE,
) -> GateReport:
    """Run every check on the images of a cell, or on other `images` (product -> name) in their place.

    `staged` is the folder of the build's sources, if it still exists; `before` is as for `run`. A check that
    cannot be made fails. Errors as `run`.
    """
    ids = _ids(subject, images or _names(subject))
    known = [each for each in before.checked if ids[each.product] == each.image]
    done = {each.product for each in known}
    rest = {product: image for product, image in ids.items() if product not in done}
    outcomes = _all_outcomes(Images(subject, rest, staged, before.expected)) if rest else {}
    for each in known:
        outcomes.update(each.outcomes)
    results = tuple(
        CheckResult(name, verdict.state, verdict.detail, verdict.hint, product, verdict.facts)
        for name, products, _ in CHECKS
        for product in products
        for verdict in outcomes[name, product]
    )
    return GateReport(VERIFY, subject.plan, ids, results)


def _all_outcomes(images: Images) -> _Outcomes:
    """Return the verdicts of all checks of the products that there are images of, by name and product."""
    parts = [partial(_common_outcomes, images), partial(_outcomes, images, apart=True)]
    common, apart = side_by_side.run(images.client, parts)
    return {**common, **apart}


def _outcomes(images: Images, *, apart: bool) -> _Outcomes:
    """Return the verdicts of the checks that are `APART`, or of the others."""
    return {
        (name, product): _outcome(check, images, product)
        for name, products, check in CHECKS
        if (check in APART) == apart
        for product in products
        if product in images.ids
    }


def _common_outcomes(images: Images) -> _Outcomes:
    _run_together(images)
    return _outcomes(images, apart=False)


def _run_together(images: Images) -> None:
    """Run in one container what several checks run; what fails here, a check tells of."""
    from docker.errors import DockerException
    from requests import RequestException

    (product,) = RUNTIME
    if product not in images.ids:
        return
    with suppress(FtbuildError, DockerException, RequestException):
        images.run_together(product, [*libraries.scripts(images, product), programs.TOKENIZERS])


def _names(subject: Subject) -> dict[str, str]:
    return {product: subject.plan.tag(product) for product in PRODUCTS}


def _ids(subject: Subject, names: Mapping[str, str]) -> dict[str, str]:
    try:
        return {product: daemon.require_image(subject.client, name) for product, name in names.items()}
    except ImageNotBuilt as absent:
        raise absent.converted(VerifyError) from absent


def _outcome(check: Check, images: Images, product: str) -> list[Verdict]:
    """Return a check's verdicts; a check that breaks, or gives none, has failed, as it has shown nothing."""
    from docker.errors import DockerException
    from requests import RequestException

    try:
        verdicts = list(check(images, product))
        shown = any(verdict.state is not State.SKIP for verdict in verdicts)
        return (
            verdicts
            if shown
            else [*verdicts, Verdict(State.FAIL, "the check has proved nothing", REPORT_BUG)]
        )
    except Interrupted:
        raise
    except FtbuildError as error:
        return [Verdict(State.FAIL, error.what, error.hint or REPORT_BUG)]
    except (DockerException, RequestException) as refused:
        return [Verdict(State.FAIL, f"the engine refused: {refused}", REPORT_BUG)]
