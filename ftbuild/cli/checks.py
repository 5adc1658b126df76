"""The project's own checks, which `invoke test` and CI run: the linters, and beside them the tests."""

from __future__ import annotations

import os
import sysconfig
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
    ("shellcheck", "bootstrap", "invoke", ".ci/run", "dockerfiles/steps/*.sh"),
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


def run(
    root: Path,
    work: Path,
    select: str = "",
    tools: Sequence[Sequence[str]] = TOOLS,
    tests: Sequence[str] = TESTS,
) -> int:
    """Run the linters one by one, and beside them the tests, in `root`; 0 when all passed, else 1.

    `select` restricts the tests to a path. Programs are taken from this Python environment alone, which has
    the pinned versions. One that is missing fails, and so does a pattern that matches no file.
    """
    work.mkdir(parents=True, exist_ok=True)
    log = work / "test.log"
    log.unlink(missing_ok=True)
    # The tests wait for downloads and builds, above all at their beginning on a bare machine.
    with ThreadPoolExecutor(1) as beside:
        linted = [beside.submit(_passes_quietly, root, log, *tool) for tool in tools]
        try:
            tested = _passes(root, log, _show, *tests, *([select] if select else []))
        except KeyboardInterrupt:
            beside.shutdown(wait=False, cancel_futures=True)
            shell.interrupt()
            raise
        passed = {tool: done.result() for tool, done in zip(map(tuple, tools), linted, strict=True)}
    failed = [" ".join(command) for command, good in {**passed, tuple(tests): tested}.items() if not good]
    print(f"failed: {', '.join(failed)} (log: {log})" if failed else "all checks passed")
    return 1 if failed else 0


def _passes_quietly(root: Path, log: Path, *command: str) -> bool:
    """Run a linter and show its output at its end, so that it does not mix with that of the tests."""
    lines: list[str] = []
    passed = _passes(root, log, lines.append, *command)
    _show("\n".join(lines))
    return passed


def _passes(root: Path, log: Path, show: Callable[[str], None], tool: str, *arguments: str) -> bool:
    show(f"== {' '.join((tool, *arguments))}")
    scripts = Path(sysconfig.get_path("scripts"))
    if not (scripts / tool).is_file():
        show(f"{tool} is not installed in {scripts}: run ./bootstrap test")
        return False
    command = [str(scripts / tool)]
    for argument in arguments:
        found = (
            sorted(str(path.relative_to(root)) for path in root.glob(argument))
            if "*" in argument
            else [argument]
        )
        if not found:
            show(f"no file matches {argument}")
            return False
        command += found
    # actionlint looks for shellcheck there.
    path = os.pathsep.join([str(scripts), os.environ.get("PATH", os.defpath)])
    return shell.stream(command, log=log, cwd=root, env={"PATH": path}, on_line=show) == 0


def _show(line: str) -> None:
    print(line, flush=True)
