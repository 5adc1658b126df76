"""The project's own checks, which `invoke test` and CI run: the linters, and beside them the tests."""

from __future__ import annotations

import os
import sysconfig
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ftbuild.host import shell

# A `*` stands for files. The hooks of .pre-commit-config.yaml run the same tools on the files of a commit.
TOOLS = (
    ("ruff", "format", "--check", "."),
    ("ruff", "check", "."),
    ("codespell",),
    ("lint-imports", "--no-cache", "--no-logo"),
    ("shellcheck", "bootstrap", "invoke", ".ci/run", "dockerfiles/steps/*.sh", "ftserve/*.sh"),
    ("hadolint", "dockerfiles/*.Dockerfile"),
    ("actionlint", ".github/workflows/*.yml"),
    ("zizmor", "--offline", "--quiet", "--persona=pedantic", ".github"),
    ("check-jsonschema", "--builtin-schema=vendor.github-workflows", ".github/workflows/*.yml"),
    ("check-jsonschema", "--builtin-schema=vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/*.yml"),
    ("check-jsonschema", "--builtin-schema=vendor.gitlab-ci", "--data-transform=gitlab-ci", ".gitlab-ci.yml"),
    ("check-jsonschema", "--builtin-schema=vendor.renovate", "renovate.json"),
    ("proselint", "check", "*.md", "docs/*.md"),
    ("mypy",),
)
# A file is the unit of work: its tests share what they have made.
TESTS = ("pytest", "--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder")
# What failed, once more, one test after the other: on a busy machine a test can fail that is right. One that
# fails alone, too, is the end.
ALONE = ("pytest", "--last-failed", "--last-failed-no-failures=none", "--exitfirst", "-rfEp")
# Seconds in which bootstrap has made the machine ready.
PREPARED = "FTBUILD_PREPARED"
_SOME_TESTS_FAILED = 1  # pytest.ExitCode.TESTS_FAILED; errors of collection and usage have other codes
_CANNOT_RUN = 2


def run(
    root: Path,
    work: Path,
    select: str = "",
    tools: Sequence[Sequence[str]] = TOOLS,
    tests: Sequence[str] = TESTS,
    alone: Sequence[str] = ALONE,
) -> int:
    """Run the linters one by one, and beside them the tests, in `root`; 0 when all passed, else 1.

    Tests that failed run once more by `alone`, and count as passed if they pass then; the last line says so,
    and the one before it how many seconds all took, with the `PREPARED` of bootstrap.
    `select` restricts the tests to a path. Programs are taken from this Python environment alone, which has
    the pinned versions. One that is missing fails, and so does a pattern that matches no file.
    """
    start = time.monotonic()
    work.mkdir(parents=True, exist_ok=True)
    log = work / "test.log"
    log.unlink(missing_ok=True)
    below = [select] if select else []
    # The tests wait for downloads and builds, above all at their beginning on a bare machine.
    with ThreadPoolExecutor(1) as beside:
        linted = [beside.submit(_run_quietly, root, log, *tool) for tool in tools]
        try:
            tested = _run(root, log, _show, *tests, *below)
        except KeyboardInterrupt:
            beside.shutdown(wait=False, cancel_futures=True)
            shell.interrupt()
            raise
        codes = {tool: done.result() for tool, done in zip(map(tuple, tools), linted, strict=True)}
    only_alone = tested == _SOME_TESTS_FAILED and not _run(root, log, _show, *alone, *below)
    codes[tuple(tests)] = 0 if only_alone else tested
    print(_time(time.monotonic() - start, os.environ.get(PREPARED, "")))
    failed = [" ".join(command) for command, code in codes.items() if code]
    if failed:
        print(f"failed: {', '.join(failed)} (log: {log})")
    else:
        print("all checks passed" + (f", some tests only alone (log: {log})" if only_alone else ""))
    return 1 if failed else 0


def _time(seconds: float, prepared: str) -> str:
    """Return what the checks took; and all of it, where bootstrap says what the machine took before."""
    if not prepared.isdecimal():
        return f"checks: {seconds:.0f} s"
    return f"checks: {seconds:.0f} s, after {prepared} s for the machine: {seconds + int(prepared):.0f} s"


def _run_quietly(root: Path, log: Path, *command: str) -> int:
    """Run a linter and show its output at its end, so that it does not mix with that of the tests."""
    lines: list[str] = []
    code = _run(root, log, lines.append, *command)
    _show("\n".join(lines))
    return code


def _run(root: Path, log: Path, show: Callable[[str], None], tool: str, *arguments: str) -> int:
    """Run a program and return its exit code, or that of a usage error where it cannot run."""
    show(f"== {' '.join((tool, *arguments))}")
    scripts = Path(sysconfig.get_path("scripts"))
    if not (scripts / tool).is_file():
        show(f"{tool} is not installed in {scripts}: run ./bootstrap test")
        return _CANNOT_RUN
    command = [str(scripts / tool)]
    for argument in arguments:
        found = (
            sorted(str(path.relative_to(root)) for path in root.glob(argument))
            if "*" in argument
            else [argument]
        )
        if not found:
            show(f"no file matches {argument}")
            return _CANNOT_RUN
        command += found
    # actionlint looks for shellcheck there.
    path = os.pathsep.join([str(scripts), os.environ.get("PATH", os.defpath)])
    # Tests start hundreds of commands, which compile every module anew where nothing may write byte code.
    environment = {"PATH": path, "PYTHONDONTWRITEBYTECODE": ""}
    return shell.stream(command, log=log, cwd=root, env=environment, on_line=show)


def _show(line: str) -> None:
    print(line, flush=True)
