"""The project's own checks, in the order in which they fail fastest: `invoke test` and CI run them."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence
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
    ("zizmor", "--offline", "--quiet", ".github"),
    ("check-jsonschema", "--builtin-schema=vendor.github-workflows", ".github/workflows/*.yml"),
    ("check-jsonschema", "--builtin-schema=vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/*.yml"),
    ("check-jsonschema", "--builtin-schema=vendor.gitlab-ci", "--data-transform=gitlab-ci", ".gitlab-ci.yml"),
    ("check-jsonschema", "--builtin-schema=vendor.renovate", "renovate.json"),
    ("proselint", "check", "*.md", "docs/*.md"),
    ("mypy",),
    # A file is the unit of work: its tests share what they have made.
    ("pytest", "--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder"),
)


def run(root: Path, work: Path, select: str = "", tools: Sequence[Sequence[str]] = TOOLS) -> int:
    """Run every check in `root`, even after one failed; 0 when all passed, else 1.

    `select` restricts the tests to a path. Tools are taken from this Python environment alone, which has the
    pinned versions. A tool that is missing fails, and so does a pattern that matches no file.
    """
    work.mkdir(parents=True, exist_ok=True)
    log = work / "test.log"
    log.unlink(missing_ok=True)
    commands = [[*tool, select] if select and tool[0] == "pytest" else list(tool) for tool in tools]
    failed = [" ".join(command) for command in commands if not _passes(root, log, *command)]
    print(f"failed: {', '.join(failed)} (log: {log})" if failed else "all checks passed")
    return 1 if failed else 0


def _passes(root: Path, log: Path, tool: str, *arguments: str) -> bool:
    _show(f"== {' '.join((tool, *arguments))}")
    scripts = Path(sysconfig.get_path("scripts"))
    if not (scripts / tool).is_file():
        _show(f"{tool} is not installed in {scripts}: run ./bootstrap test")
        return False
    command = [str(scripts / tool)]
    for argument in arguments:
        found = (
            sorted(str(path.relative_to(root)) for path in root.glob(argument))
            if "*" in argument
            else [argument]
        )
        if not found:
            _show(f"no file matches {argument}")
            return False
        command += found
    # actionlint looks for shellcheck there.
    path = os.pathsep.join([str(scripts), os.environ.get("PATH", os.defpath)])
    return shell.stream(command, log=log, cwd=root, env={"PATH": path}, on_line=_show) == 0


def _show(line: str) -> None:
    print(line, flush=True)
