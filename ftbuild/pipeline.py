"""The main job, for each cell: ensure its base, stage, bake, verify, move the tags.

A published image of the same inputs may take the place of staging and baking; it is verified all the same.

A failed cell does not stop the others; the caller ends with the worst exit code. Moving tags move only after
both images of a cell are built and verified, so an interruption leaves no cell half-tagged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock

from ftbuild.build import bake, base, buildable, definitions
from ftbuild.build import objects as build_objects
from ftbuild.build.run import BuildOptions, CellBuild, host_settings
from ftbuild.engine import buildx, daemon, orphans, side_by_side
from ftbuild.errors import FtbuildError, HostError, Interrupted, PublishError, VerifyError
from ftbuild.gates.subject import Subject
from ftbuild.gates.verify import gate, sources
from ftbuild.gates.verify.gate import NOTHING_BEFORE, Beforehand
from ftbuild.host import failures, locks
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import bases, from_builder, objects, substituted, substitution
from ftbuild.publishing.names import Names
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.publishing.substituted import Substituted
from ftbuild.publishing.substitution import Found, Substitutes
from ftbuild.publishing.verifying import Verifier
from ftbuild.text import reporter
from ftbuild.text.reporter import Reporter
from ftbuild.text.units import duration, size

# How often what an engine unpacks is written to disk meanwhile.
_FLUSH_SECONDS = 2


@dataclass(frozen=True)
class Outcome:
    """Outcome of a cell's build: `state` is built, substituted, present or failed.

    `images` are the sizes in bytes of the images that there are now, by product; `folder` has log and script.
    """

    plan: Plan
    state: str
    seconds: float
    error: FtbuildError | None = None
    images: Mapping[str, int] = field(default_factory=dict)
    folder: Path = Path()

    @property
    def exit_code(self) -> int:
        """Return 0 if the images exist, else the error's code."""
        return self.error.exit_code if self.error else 0


@dataclass(frozen=True)
class Registries:
    """Where a builder pushes to, and where images are taken from in place of a build; None: nowhere.

    `objects_of` are those whose objects are brought before sources are compiled; None: none are.
    """

    staging: PublishSession | None = None
    substitutes: Substitutes | None = None
    objects_of: Sequence[Verifier] | None = None


def build_cells(
    plans: Sequence[Plan],
    options: BuildOptions,
    names: Names | None = None,
    substitutes: Substitutes | None = None,
    objects_of: Sequence[Verifier] | None = None,
    *,
    report: Reporter = print,
) -> list[Outcome]:
    """Build every plan in turn, each even after another failed.

    With `names`, the builder pushes the images to the staging repository, from where they come here to be
    verified. What `substitutes` have is not built but pulled; what the lock has of objects is brought if
    one of `objects_of` has signed it. Raises HostError before any work if engine, buildx or builder is
    missing or the staging registry does not answer; the failure of a cell is in its `Outcome`.
    """
    client = daemon.connect()
    buildx.version()
    orphans.remove(client, report)
    staging = _staging(names, options)
    registries = Registries(staging, substitutes, objects_of)
    host = host_settings(client, options, pushes=staging is not None)
    return [
        _outcome(CellBuild(plan, client, host, options, reporter.prefixed(report, plan.cell.id)), registries)
        for plan in plans
    ]


def make_bases(
    plans: Iterable[Plan],
    options: BuildOptions,
    names: Names | None = None,
    substitutes: Substitutes | None = None,
    *,
    compiles: bool = True,
    report: Reporter = print,
) -> None:
    """Ensure the base of each plan, once where they share it.

    With `names`, those that are made here are also pushed to the staging repository, for builders elsewhere.
    What `substitutes` have is pulled, without the compiler image if nothing `compiles` with it. Raises
    HostError before any work if engine or buildx is missing or the staging registry does not answer;
    HostError, PinError, PatchError or BuildError for the first base that cannot be made
    (`build.base.ensure`); PublishError if the registry refuses.
    """
    client = daemon.connect()
    buildx.version()
    staging = _staging(names, options)
    host = host_settings(client, options)
    for plan in {plan.base.serving: plan for plan in plans}.values():
        work, cache, rebuild = options.work, options.cache, options.rebuild
        if substitutes and not rebuild:
            bases.take(substitutes, client, plan, cache, report, compiles=compiles)
        if compiles or not base.is_comparable(client, plan, cache, report):
            base.ensure(client, plan, host, work, cache, rebuild=rebuild, report=report)
        if staging:
            from_builder.push_base(staging, plan, report=report)
        report(f"base {plan.base.name}: {plan.base.serving}, {base.tools(client, plan.base)}")


def _staging(names: Names | None, options: BuildOptions) -> PublishSession | None:
    """Return the session in which built images are pushed, if they are; its registry answers."""
    if names is None:
        return None
    session = PublishSession(Options(names, options.work))
    session.require_reachable()
    return session


def summary(outcomes: Iterable[Outcome]) -> str:
    """Return for each cell its state, its time and its images, with their log; failures come last."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.error is not None)
    return "\n".join(line for outcome in ordered for line in _summary(outcome))


def _summary(outcome: Outcome) -> Iterator[str]:
    plan = outcome.plan
    yield f"{plan.cell.id:<24}  {outcome.state:<8}  {duration(outcome.seconds)}"
    for product, count in outcome.images.items():
        yield f"  {product:<8} {size(count):>8}  {plan.tag(product)}"
    log, script = (outcome.folder / name for name in (bake.LOG, bake.SCRIPT))
    if log.is_file():
        yield f"  {'log':<8} {'':>8}  {log}"
    if script.is_file():
        yield f"  {'again':<8} {'':>8}  {script}, with Docker alone"
    if outcome.error:
        yield f"  {'error':<8} {'':>8}  {outcome.error.what.splitlines()[0]}"


def _outcome(cell: CellBuild, registries: Registries) -> Outcome:
    start = time.monotonic()
    try:
        with failures.reported():
            state = _ensure_images(cell, registries)
            sizes = _sizes(cell)
    except FtbuildError as error:
        cell.report(f"failed: {error}")
        return Outcome(cell.plan, "failed", time.monotonic() - start, error, folder=cell.folder)
    return Outcome(cell.plan, state, time.monotonic() - start, images=sizes, folder=cell.folder)


def _sizes(cell: CellBuild) -> dict[str, int]:
    """Return the bytes of the images that there are, by product."""
    images = {product: daemon.image(cell.client, cell.plan.tag(product)) for product in PRODUCTS}
    return {product: int(image.attrs["Size"]) for product, image in images.items() if image}


def _ensure_images(cell: CellBuild, registries: Registries) -> str:
    """Build, fetch, verify, move the tags; return whether the images were built, substituted or present."""
    names = [cell.plan.tag(product, moving=moving) for product in PRODUCTS for moving in (False, True)]
    with daemon.replacing(cell.client, *names):
        substitutes = None if not cell.options.rebuild and cell.is_made() else registries.substitutes
        if substitutes and not cell.options.rebuild and _substituted(cell, substitutes):
            return "substituted"
        if substitutes:
            _take_base(cell, substitutes)
        if registries.objects_of is not None:
            cell = replace(cell, objects=partial(_brought, cell, registries.objects_of))
        return _ensure_named(cell, registries.staging)


def _brought(cell: CellBuild, trusted: Sequence[Verifier], folder: Path) -> tuple[str, str]:
    """Bring the objects that the lock has of a cell into a folder; return their name and who has signed them.

    What is refused is reported, and no reason not to build.
    """
    plan, report = cell.plan, cell.report
    if not plan.objects:
        report("all is compiled: the lock has no objects of this cell (invoke lock --objects-from REGISTRY)")
        return "", ""
    try:
        return plan.objects, str(objects.bring(plan, trusted, folder, report))
    except (PublishError, HostError) as refused:
        report(f"{plan.objects} is not used, so all of it is compiled: {refused.what}")
        return "", ""


def _substituted(cell: CellBuild, substitutes: Substitutes) -> bool:
    """Take published images of this key and verify them; return whether they are here now.

    What is refused, by its signature or by the gate, is reported, and no reason not to build.
    """
    plan, report, session = cell.plan, cell.report, substitutes.session()
    published = substitution.find(session, plan, substitutes.trusted, report)
    if not published:
        return False
    try:
        with locks.cell(cell.folder, report):
            taken, before = _taken(cell, substitutes, session, published)
        if not _is_comparable(cell):
            cell.make_base()
        _accept(cell, before)
    except FtbuildError as failed:
        substitution.drop(session, plan)
        substituted.RECORD.discard(cell.folder)
        if not isinstance(failed, PublishError | VerifyError):
            raise
        report(f"what {session.repository.name} has is refused, so this cell is built: {failed.what}")
        return False
    for sentence in substituted.sentences(taken):
        report(sentence)
    return True


def _taken(
    cell: CellBuild, substitutes: Substitutes, session: PublishSession, published: Mapping[str, Found]
) -> tuple[dict[str, Substituted], Beforehand]:
    """Pull images; do of verify what can be done while the engine still unpacks the largest.

    Returns what was taken, which the record tells as well, and what was done.
    """
    taken: dict[str, Substituted] = {}
    recording, is_all_here = Lock(), Event()
    largest, *others = sorted(published, key=lambda product: published[product].bytes, reverse=True)

    def pull(product: str) -> None:
        pulled = substitution.take(session, cell.plan, {product: published[product]}, cell.report)
        with recording:
            taken.update(pulled)
            substituted.RECORD.write(cell.folder, taken)

    def pull_largest() -> Beforehand:
        try:
            pull(largest)
        finally:
            is_all_here.set()
        return NOTHING_BEFORE

    def pull_others() -> Beforehand:
        for product in others:
            pull(product)
        # The engine has most of the base by now: the images stand on it.
        _take_base(cell, substitutes, compiles=False)
        before = _verified(cell, {product: taken[product].image for product in others})
        # Else the first container that verify removes would wait until gigabytes are written.
        while not is_all_here.wait(_FLUSH_SECONDS):
            daemon.flush(cell.client)
        return before

    # In this order also where one processor does one after the other.
    _, before = side_by_side.run(cell.client, [pull_largest, pull_others])
    return taken, before


def _verified(cell: CellBuild, images: Mapping[str, str]) -> Beforehand:
    """Verify these images alone if the base is here, and prepare what the sources are compared with."""
    subject, checked = _subject(cell), []
    if _is_comparable(cell):
        cell.report(f"verifying the {' and '.join(images)} image meanwhile")
        checked = [gate.check_product(subject, product, image) for product, image in images.items()]
    try:
        return Beforehand(checked, sources.prepare(subject))
    except Interrupted:
        raise
    except FtbuildError:  # verify meets it again, and tells of it
        return Beforehand(checked)


def _is_comparable(cell: CellBuild) -> bool:
    return base.is_comparable(cell.client, cell.plan, cell.options.cache, cell.report)


def _take_base(cell: CellBuild, substitutes: Substitutes, *, compiles: bool = True) -> None:
    bases.take(substitutes, cell.client, cell.plan, cell.options.cache, cell.report, compiles=compiles)


def _ensure_named(cell: CellBuild, session: PublishSession | None) -> str:
    plan, report = cell.plan, cell.report
    cell = replace(cell, elsewhere=_destination(cell, session)) if session else cell
    job = buildable.ensure(cell, cell.host, rebuild=cell.options.rebuild, report=report)
    if job and (made := build_objects.RECORD.read(cell.folder)):
        made = build_objects.taken(made.name, made.signer, cell.folder / "info", [t.name for t in plan.trees])
        build_objects.RECORD.write(cell.folder, made)
        report(made.sentence())
    digests = _fetched(cell, session, job) if session and job else {}
    if not job:
        report(f"{plan.tag('runtime')} is already built from these inputs (--rebuild builds it anyway)")
    _accept(cell)
    if session and job:
        from_builder.stage(session, plan, digests, report=report)
    if job:
        substituted.RECORD.discard(cell.folder)
        report(f"built {plan.tag('runtime')} and {plan.tag('sdk')}")
    return "built" if job else "present"


def _destination(cell: CellBuild, session: PublishSession) -> Callable[[], definitions.Staging]:
    """Return what says where a builder pushes, once the base is made, which it brings there."""
    by_digest = not cell.host.is_engine
    return partial(from_builder.destination, session, cell.plan, by_digest=by_digest, report=cell.report)


def _fetched(cell: CellBuild, session: PublishSession, job: bake.Job) -> dict[str, str]:
    """Bring by digest what the builder has pushed; return the digests by product."""
    digests = from_builder.pushed(job.metadata, cell.plan)
    from_builder.fetch(session, cell.plan, digests, report=cell.report)
    return digests


def _accept(cell: CellBuild, before: Beforehand = NOTHING_BEFORE) -> None:
    """Verify both images but for what was done `before`, then point the moving tags at them."""
    with locks.cell(cell.folder, cell.report):
        for product, image in gate.require(_subject(cell), before).items():
            # By id: a name may refer to another image by now.
            daemon.tag(cell.client, image, cell.plan.tag(product, moving=True))


def _subject(cell: CellBuild) -> Subject:
    return Subject(cell.client, cell.plan, cell.folder, cell.options.cache, cell.report)
