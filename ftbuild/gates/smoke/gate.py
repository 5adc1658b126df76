"""Smoke, the gate with a GPU: models, the suite on a cell's runtime image, the report (docs/smoke.md).

The suite is a pytest process of its own, so that it can be run by hand.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from packaging.specifiers import SpecifierSet

from ftbuild.config.schema import Config
from ftbuild.engine import daemon, gpu, orphans
from ftbuild.engine.daemon import ImageNotBuilt
from ftbuild.engine.gpu import Access, Gpu
from ftbuild.errors import HostError, SmokeError
from ftbuild.gates.cell_test import Skipped
from ftbuild.gates.records import Demand
from ftbuild.gates.report import SMOKE, Gate, GateReport
from ftbuild.gates.smoke import junit, models, places, settings
from ftbuild.gates.smoke.job import BF16, DTYPES, INT8, Job, Model, Variant
from ftbuild.gates.smoke.models import Prepared
from ftbuild.gates.subject import Subject
from ftbuild.host import locks, shell
from ftbuild.models import gpu_memory, int8
from ftbuild.plan import Plan
from ftbuild.sm import FIRST, sm_codes
from ftbuild.text.reporter import Reporter
from ftbuild.text.results import CheckResult, State

if TYPE_CHECKING:
    import docker

SUITE = Path(__file__).parent / "suite"
FOLDER, JOB, JUNIT, LOG = "smoke", "smoke-job.json", "smoke.xml", "smoke.log"
# The tests of the suite that compare tokens or vectors (suite/test_answers.py, suite/test_vectors.py).
COMPARED = "answers equal the references"
# The values in a head of the models that reference.py makes; encoders have no decoder's attention.
MOST_HEADS = 64
MODEL_HEADS = {"bloom": 32, "mpt": 32, "bert": None, "t5-encoder": None}
# What pytest says when a test begins or ends, in one process and in several, and how long it took; not of one
# that fails.
_OF_EACH_TEST = re.compile(
    r"(\[gw\d+\] +(\S+ +)*?(PASSED|SKIPPED) )"
    r"|((\d+\.\d s: )?\S+\.py::test_\S*( (PASSED|SKIPPED)( .*)?)?\s*$)"
)
# The patch that replays steps as CUDA graphs.
REPLAYS = "0450-step-graphs.patch"


@dataclass(frozen=True)
class Smoke:
    """The gate as a `CellTest`; options as those of `run`."""

    config: Config
    any_gpu: bool = False
    servers: int | None = None
    gate: ClassVar[Gate] = SMOKE

    @staticmethod
    def demands(plan: Plan) -> tuple[Demand, ...]:
        """Return what a record must show."""
        return demands(plan)

    def prepare(self, subject: Subject) -> None:
        """Make the models of a cell while no other command works on it, and tell where they are."""
        with locks.cell(subject.folder, subject.report):
            prepared = prepare(self.config, subject)
        count = len(prepared.families) + len(prepared.extra)
        subject.report(f"the {count} models are in {prepared.folder}")

    def run(self, subject: Subject) -> GateReport | Skipped:
        """Test the images of a cell while no other command works on them."""
        with locks.cell(subject.folder, subject.report):
            return run(self.config, subject, any_gpu=self.any_gpu, servers=self.servers)


def demands(plan: Plan) -> tuple[Demand, ...]:
    """Return the results that a record must hold: compared answers of every family in every data type.

    A family whose model has heads that the cell's images are not built for is none of them. Raises SmokeError
    when no family is left, as nothing could be compared then.
    """
    if plan.families and not served(plan):
        raise SmokeError(
            f"{plan.cell.id} has no kernels for the heads of any model that is compared",
            hint="--head-sizes with 64, which most of them have",
        )
    if not plan.families:
        raise SmokeError(
            f"{plan.cell.id} serves no family: there is nothing to test",
            where="models.yaml",
            hint=f"describe the converters of FasterTransformer {plan.source('ft').version} in models.yaml",
        )
    return tuple(
        Demand(COMPARED, "runtime", str(Variant(family, dtype)))
        for family in served(plan)
        for dtype in DTYPES
    )


def served(plan: Plan) -> tuple[str, ...]:
    """Return the families whose models, as reference.py makes them, a cell's images have kernels for."""
    sizes = {family: MODEL_HEADS.get(family, MOST_HEADS) for family in plan.families}
    return tuple(
        family for family, size in sizes.items() if size is None or plan.cell.left_out.has_heads(size)
    )


def needs_gpu(config: Config) -> bool:
    """Return whether the backend computes on GPUs; the sample stack's does not."""
    return config.models.device == "gpu"


def unfit(plan: Plan, access: Access) -> str | None:
    """Return why no GPU here can test a cell's images, or None."""
    if any(device.runs(plan.cell.sms) for device in access.gpus):
        return None
    here = ", ".join(dict.fromkeys(map(str, access.gpus)))
    return f"its machine code is for {sm_codes(plan.cell.sms)}, here is {here}"


def find_gpus(client: docker.DockerClient, plan: Plan, product: str = "runtime") -> Access:
    """Return the GPUs that an image of a cell gets.

    Raises SmokeError when the image is not built, HostError when it gets none.
    """
    gpus = gpu.find(client, image_id(client, plan, product))
    if gpus is None:
        raise HostError(
            "no GPU: nothing was tested, and nothing passed",
            where=f"containers of {plan.tag(product)}",
            hint="install nvidia-container-toolkit (`--gpus`) or write a CDI specification for the engine",
        )
    return gpus


def image_id(client: docker.DockerClient, plan: Plan, product: str) -> str:
    """Return the id of a cell's image; raise SmokeError when it is not built."""
    try:
        return daemon.require_image(client, plan.tag(product))
    except ImageNotBuilt as absent:
        raise absent.converted(SmokeError) from absent


def prepare(config: Config, subject: Subject) -> Prepared:
    """Return the models of a cell, below its work folder; see `models.ensure`."""
    return models.ensure(config, subject, subject.folder / FOLDER)


def run(
    config: Config, subject: Subject, *, any_gpu: bool = False, servers: int | None = None
) -> GateReport | Skipped:
    """Test a cell's images, and write record, JUnit XML and log into its work folder.

    `servers` run side by side at most; None: as many as the GPUs' memory and the processors allow. The cell
    is skipped when no GPU here runs its machine code, unless `any_gpu`. Raises SmokeError when there is
    nothing to test or the suite itself breaks, HostError when containers get no GPU, ConfigError for a
    setting of the suite that cannot be read.
    """
    settings.check()
    plan, folder = subject.plan, subject.folder
    plan_demands = demands(plan)
    access = find_gpus(subject.client, plan) if needs_gpu(config) else None
    if access and not any_gpu and (reason := unfit(plan, access)):
        return Skipped(reason)
    SMOKE.discard(folder)
    image = image_id(subject.client, plan, "runtime")
    prepared = prepare(config, subject)
    indices = (
        [n for n, each in enumerate(access.gpus) if any_gpu or each.runs(plan.cell.sms)] if access else []
    )
    gpus = [access.gpus[number] for number in indices] if access else []
    known = tested_models(config, plan, gpus)
    tested = {name: known[name] for name in prepared.families}
    tested |= {name: replace(known[family], family=family) for name, family in prepared.extra.items()}
    job = Job(
        image,
        prepared.folder,
        tested,
        access.style if access else None,
        [str(g) for g in gpus],
        replays=access is not None and replays(plan),
        indices=indices,
        tells_processes=access is not None and gpu.tells_processes(subject.client, image, access.style),
        left_out=plan.cell.left_out,
    )
    job.write(folder / JOB)
    servers = servers or places.side_by_side(gpus, len(os.sched_getaffinity(0)))
    subject.report(f"{_side_by_side(servers)}{_why_alone(job)}")
    try:
        _suite(folder, subject.report, servers)
    finally:
        orphans.remove(subject.client, subject.report)
    gate_report = GateReport(
        SMOKE,
        plan,
        {"runtime": image, "sdk": prepared.sdk},
        complete(junit.results(folder / JUNIT, "runtime"), plan_demands),
        facts={
            "device": config.models.device,
            "gpus": [asdict(g) for g in gpus],
            "junit": JUNIT,
            "figures": junit.figures(folder / JUNIT),
            "servers": servers,
        },
    )
    gate_report.write(folder)
    return gate_report


def tested_models(config: Config, plan: Plan, gpus: Sequence[Gpu]) -> dict[str, Model]:
    """Return the families that a cell serves, with what release, SMs and GPUs can do of each."""
    return {name: _model(config, plan, name, gpus) for name in plan.families}


def replays(plan: Plan) -> bool:
    """Return whether a cell's servers replay the steps of a request as CUDA graphs."""
    return plan.takes("ft", REPLAYS)


def complete(results: Sequence[CheckResult], demands: Iterable[Demand]) -> tuple[CheckResult, ...]:
    """Return the results with a failure where a family was neither compared nor failed: a skip is no pass."""
    judged = {
        (result.check, result.facts.get("served")) for result in results if result.state is not State.SKIP
    }
    absent = [demand.served for demand in demands if (demand.check, demand.served) not in judged]
    if not absent:
        return tuple(results)
    hint = f"every family must be compared: the reasons are in {LOG}"
    return (
        *results,
        CheckResult(COMPARED, State.FAIL, f"not compared: {', '.join(absent)}", hint, "runtime"),
    )


def _model(config: Config, plan: Plan, name: str, gpus: Sequence[Gpu]) -> Model:
    family, version = config.models.families[name], config.version(plan.cell.triton, "backend")
    allocated = gpu_memory.rules(config.models, name)
    streams = family.streams is not None and SpecifierSet(family.streams).contains(version)
    bf16 = allocated is not None and allocated.computes_bf16(version)
    has_int8 = int8.rules(family, version) is not None
    return Model(
        family.tensors,
        streams,
        family.vectors,
        bf16=bf16 and all(each_gpu.sm >= FIRST[BF16] for each_gpu in gpus),
        int8=has_int8 and min(plan.cell.sms) >= FIRST[INT8] and "int8" not in plan.cell.left_out.features,
    )


def _side_by_side(servers: int) -> str:
    return f"up to {servers} servers side by side" if servers > 1 else "one server at a time"


def _why_alone(job: Job) -> str:
    """Return a note for the case that memory tests must run without other servers."""
    if job.style is None or job.tells_processes:
        return ""
    return "; tests of the memory come last and alone, as the driver does not tell that of each process"


def _suite(folder: Path, report: Reporter, servers: int = 1) -> None:
    """Run the suite's tests on so many servers at a time; their outcomes are in the JUnit XML."""
    xml, log = folder / JUNIT, folder / LOG
    for old in (xml, log):
        old.unlink(missing_ok=True)
    arguments = ["-c", str(SUITE / "pytest.ini"), f"--rootdir={SUITE}", f"--junitxml={xml}"]
    if servers > 1:
        # In the order that the suite gives them (suite/conftest.py).
        arguments += [f"--numprocesses={servers}", "--dist=loadscope", "--no-loadscope-reorder"]
    code = shell.stream(
        [sys.executable, "-m", "pytest", *arguments, "--job", str(folder / JOB), str(SUITE)],
        log=log,
        on_line=lambda line: report(line) if _is_news(line) else None,
    )
    if code not in (0, 1) or not xml.exists():  # pytest's 0 and 1: all tests ran
        raise SmokeError(f"the suite broke (pytest {shell.ending(code)})", where=str(log))


def _is_news(line: str) -> bool:
    """Return whether to show a line of pytest: not those about a test that begins or has passed."""
    return bool(line.strip()) and not _OF_EACH_TEST.match(line)
