"""A good nightly run and a bad one, as the scheduler records them.

The bad one contains texts that break careless reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ftbuild.nightly.record import (
    CellRecord,
    Image,
    NightlyRun,
    PastRun,
    Patch,
    Reason,
    State,
    Step,
    Unit,
    outcome,
)
from ftbuild.text.results import CheckResult
from ftbuild.text.results import State as Verdict

REGISTRY = "registry.example.org/inference"
GB = 10**9
MINUTE = 60.0

MARKUP = "<script>alert('x')</script><img src=https://evil.invalid/x onerror=alert(1)>"
CDATA = "end ]]> of & section | `pipe` and **stars** [link](javascript:alert(1)) </pre></details>"
ANSI = "\x1b[1;31merror:\x1b[0m \x1b]0;title\x07\x1b[2Kred\x00\x08\x0b\ufffe\ud800 text"
FOREIGN = "größe 大きさ ошибка 🔥 \u202etfel ot thgir"  # codespell:ignore ot
LONG = "nvcc " + "x" * 10_000
HOSTILE = (MARKUP, CDATA, ANSI, FOREIGN, LONG)


def step(name: str, cell: str, start: float, seconds: float, code: int = 0, jobs: int | None = None) -> Step:
    release, sm, base = (*cell.replace("-sm", "-").split("-"), "")[:3]
    command = f"invoke {name} --triton {release} --sm {sm.replace('_', ',')}"
    command += f"{' --base ' + base if base else ''}{' --jobs 4' if jobs else ''}"
    return Step(name, command, f"logs/{cell}/{name}.log", start, seconds, code, jobs)


def units(count: int, scale: float = 1.0) -> tuple[Unit, ...]:
    """Return a compile of `count` units on four slots, long and short ones mixed."""
    free, made = [0.0] * 4, []
    for number in range(count):
        lane = free.index(min(free))
        length = (0.4 + (number * 7919 % 97) ** 2 / 300) * scale
        suffix = (".cu.o", ".cc.o", ".so", "/cmake_device_link.o")[0 if number % 5 else number % 4]
        output = f"_deps/repo-ft-build/src/CMakeFiles/Target{number % 9}.dir/kernels/unit_{number}{suffix}"
        made.append(Unit(free[lane], free[lane] + length, output))
        free[lane] += length
    return tuple(made)


def images(cell: str, size: float, digest: bool = True) -> dict[str, Image]:
    return {
        product: Image(
            f"sha256:{number:064x}",
            int(size * GB * (1 if product == "runtime" else 3.9)),
            f"{REGISTRY}/triton_with_ft:{cell}{suffix}" if digest else "",
            f"sha256:{number + 7:064x}" if digest else "",
        )
        for number, (product, suffix) in enumerate(
            (("runtime", ""), ("sdk", "-sdk")), sum(map(ord, cell)) ** 9
        )
    }


PATCHES = (
    Patch("ft/0010-python3-interpreter.patch", "by ftbuild"),
    Patch(
        "ft/0080-pyt-abi.backport",
        "backport, https://github.com/NVIDIA/FasterTransformer/commit/fe692ff6656d9cc1eb867637cf20b5717acae605",
    ),
    Patch("backend/0150-invalid-requests.patch", "by ftbuild"),
)
FETCH = (
    "FasterTransformer cannot be fetched\n"
    "  where: https://github.com/NVIDIA/FasterTransformer\n  next:  invoke lock --check"
)
CHECKS = "22.12-sm80: 2 of 24 checks failed\n    machine code (runtime): no SASS for sm_80"
FIGURES: Mapping[str, Mapping[str, float]] = {
    "gpt-fp16-1gpu": {"ready_seconds": 6.41, "tokens_per_second": 1843, "gpu_memory_bytes": 2_415_919_104},
    "t5-fp32-1gpu": {"ready_seconds": 7.9, "tokens_per_second": 902},
}


def cell(
    release: str,
    sms: Sequence[int],
    start: float,
    codes: Mapping[str, int],
    *,
    base: str = "open",
    state: State | None = None,
    reason: Reason | None = None,
    **more: object,
) -> CellRecord:
    """Return a cell whose steps ended with `codes`; state and reason follow from the last unless given."""
    name = f"{release}-sm{'_'.join(map(str, sms))}" + ("" if base == "open" else f"-{base}")
    took = {"build": 38 * MINUTE + sms[0], "smoke": 4 * MINUTE, "publish": 96.0}
    steps, at = [], start
    for job, code in codes.items():
        seconds = took[job] * (0.4 if code else 1)
        steps.append(step(job, name, at, seconds, code, 4 if job == "build" else None))
        at += seconds
    last = steps[-1].code if steps else 0
    ended, why = outcome(last)
    record = CellRecord(
        name,
        release,
        tuple(sms),
        base,
        state or ended,
        reason if reason is not None else why,
        exit_code=last,
        key="459080f92dcc" if steps else "",
        start=start,
        seconds=at - start,
        steps=tuple(steps),
    )
    return replace(record, **more)  # type: ignore[arg-type]


ALL = {"build": 0, "smoke": 0, "publish": 0}


def passed(release: str, sm: int, start: float, size: float, **more: object) -> CellRecord:
    found = cell(release, [sm], start, ALL)
    return replace(
        found,
        tail=("#80 exporting layers 17.5s done", "#80 writing image done", "22.12: all checks passed"),
        patches=PATCHES,
        images=images(found.cell, size),
        compiles={"backend": units(120), "pyt": units(300, 0.5)},
        figures=FIGURES,
        **more,  # type: ignore[arg-type]
    )


def excluded(release: str, sm: int) -> CellRecord:
    why = f"CUDA of Triton {release} has no sm_{sm}; it needs 11.8 (CUDA 11.8 release notes)"
    return cell(release, [sm], 0, {}, state=State.SKIPPED, reason=Reason.EXCLUDED, detail=why)


def past(cells: Sequence[CellRecord], count: int = 9) -> tuple[PastRun, ...]:
    """Return the runs before, with one failure among them."""
    names = [c.cell for c in cells if c.reason is not Reason.EXCLUDED]
    return tuple(
        PastRun(
            f"202611{n + 11:02}T020000Z",
            9000.0 + n * 40,
            7 if n == 4 else 0,
            {c: "failed" if n == 4 and i == 1 else "passed" for i, c in enumerate(names)},
            {c: 2500.0 + (n * 37 + i * 91) % 240 for i, c in enumerate(names)},
            {c: int((1.57 + (n > 5) * 0.04) * GB) for c in names},
        )
        for n in range(count)
    )


def run(
    cells: Sequence[CellRecord], exit_code: int, audit: Sequence[CheckResult], **more: object
) -> NightlyRun:
    made = NightlyRun(
        id="20261121T020000Z",
        started="2026-11-21T02:00:00+00:00",
        seconds=max((c.start + c.seconds for c in cells), default=0.0) + 40,
        exit_code=exit_code,
        command="invoke nightly --registry registry.example.org/inference --budget 6h",
        ftbuild="0.1.0",
        revision="15ddf0e1c6a7e2f94d1c5a0b6e2b7a3d9c8f4e21",
        registry=REGISTRY,
        cores=16,
        memory_bytes=64 * GB,
        jobs=4,
        cells=tuple(cells),
        audit=tuple(audit),
        past=past(cells),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def good() -> NightlyRun:
    published = cell(
        "22.03",
        [80],
        0,
        {},
        state=State.SKIPPED,
        reason=Reason.PUBLISHED,
        detail="the registry has key 459080f92dcc",
        images=images("22.03-sm80", 1.5),
    )
    cells = [
        published,
        excluded("22.03", 90),
        passed("22.07", 80, 0, 1.57),
        excluded("22.07", 90),
        passed("22.12", 80, 2700, 1.61),
        passed("22.12", 90, 5400, 1.58, notes=("the first run of this cell",)),
    ]
    return run(cells, 0, [CheckResult("licences of runtime images", Verdict.OK, "41 packages, all known")])


def bad() -> NightlyRun:
    """Return a run with every state and every reason, and all hostile texts."""
    compile_error = (
        "[412/530] Building CUDA object src/kernels/decoder_masked_multihead_attention_128.cu.o",
        *HOSTILE,
        "ptxas fatal : Value 'sm_89' is not defined for option 'gpu-name'",
        "ninja: build stopped: subcommand failed.",
    )
    skip = State.SKIPPED
    cells = [
        cell("22.03", [75], 0, {"build": 5}, detail=FETCH),
        cell("22.03", [80], 900, {"build": 6}, detail="ft/0040-sm-89.patch does not apply to v5.0"),
        excluded("22.03", 89),
        excluded("22.03", 90),
        cell(
            "22.07",
            [75],
            1200,
            {**ALL, "smoke": 0, "publish": 10},
            images=images("22.07-sm75", 1.5, False),
            detail="the registry refused: HTTP 403",
        ),
        cell(
            "22.07", [80], 3900, {"build": 4}, detail="building 22.07 needs 60 GiB of disk, 12.4 GiB are free"
        ),
        cell("22.07", [86], 4100, {"build": 1}, detail="KeyError: " + MARKUP),
        excluded("22.07", 90),
        cell(
            "22.12",
            [60],
            0,
            {},
            state=skip,
            reason=Reason.PUBLISHED,
            detail="the registry has key 459080f92dcc",
            images=images("22.12-sm60", 1.5),
        ),
        passed("22.12", 75, 5200, 1.57),
        cell(
            "22.12",
            [80],
            7800,
            {"build": 8},
            detail=CHECKS,
            tail=("machine code  runtime  fail",),
            images=images("22.12-sm80", 1.6, False),
        ),
        cell(
            "22.12",
            [86],
            9000,
            {"build": 0, "smoke": 9},
            detail="gpt answers wrongly: token 7 of 16",
            tail=("server ended",),
        ),
        cell(
            "22.12",
            [89],
            11000,
            {"build": 7},
            detail=CDATA + "\n" + ANSI,
            tail=compile_error,
            notes=(MARKUP, FOREIGN),
            compiles={"backend": units(530)},
            patches=(*PATCHES, Patch(MARKUP, "javascript:alert(1) " + CDATA)),
        ),
        cell(
            "22.12",
            [90],
            12000,
            {"build": 0},
            state=skip,
            reason=Reason.NO_GPU,
            detail="no GPU with SM 90 on this machine",
        ),
        cell(
            "22.12",
            [80, 86],
            0,
            {},
            state=skip,
            reason=Reason.NOT_RUN,
            detail="the budget of 6 h was used up",
        ),
        passed("22.12", 70, 14000, 1.62),
        cell(
            "22.12",
            [90],
            16800,
            ALL,
            base="ngc",
            images=images("22.12-sm90-ngc", 1.59),
            compiles={"backend": units(531, 0.3)},
        ),
    ]
    audit = [
        CheckResult(
            "images of cells that left the matrix", Verdict.WARN, "22.07-sm61 is 40 days old " + MARKUP
        ),
        CheckResult("digests of base images", Verdict.FAIL, "nvcr.io/nvidia/tritonserver:22.12-py3 | moved"),
        CheckResult(
            "sources still on their pins", Verdict.OK, "12 repositories, see https://github.com/NVIDIA."
        ),
    ]
    return run(cells, 10, audit)


def logs(folder: Path, made: NightlyRun) -> None:
    """Write the log files that the steps name, as the scheduler leaves them."""
    for record in made.cells:
        for job in record.steps:
            (folder / job.log).parent.mkdir(parents=True, exist_ok=True)
            (folder / job.log).write_text(f"$ {job.command}\n")
