"""GitHub Actions: workflows for the tests, for nightly runs, and for one cell of a nightly run.

A matrix job waits for all legs of the job before it, so one broken cell would hold up all others. So the
chain build, smoke, publish is a workflow of its own, which the nightly workflow calls once per cell.
"""

from __future__ import annotations

from typing import Any

from ftbuild.ci import actions, steps, yaml_file
from ftbuild.ci.options import ENVIRONMENT, STAGE, Options
from ftbuild.errors import ConfigError

Data = dict[str, Any]

FOLDER = ".github/workflows"
TEST, NIGHTLY, CELL = (f"{FOLDER}/{name}.yml" for name in ("test", "nightly", "cell"))
PATHS = (TEST, NIGHTLY, CELL)
# docs.github.com, Actions limits: jobs that a matrix generates in one run.
MAX_CELLS = 256
HOSTED = "ubuntu-24.04"
CPU = ("self-hosted", "linux", "x64")
GPU = (*CPU, "gpu")
# The variables of a cell, in the records of `invoke matrix --format github`.
CELL_VARIABLES = ("triton", "sms", "base")
# The label of the GPU that tests an image: the first of several SMs.
FIRST_SM = "sm${{ fromJSON(format('[{0}]', inputs.sms))[0] }}"
BUILD_MINUTES = 720
# The lifetime of the job's token, with which it logs in (docs.github.com, GITHUB_TOKEN).
NIGHTLY_MINUTES = 24 * 60
SHORT_MINUTES = 60

_SHELL = {"run": {"shell": "bash"}}  # with pipefail, which the default shell lacks
_PER_PUSH = "github.ref_name == github.event.repository.default_branch && github.sha"
# A branch of this repository is tested on push, and not again for its pull request.
_FROM_FORK = "github.event.pull_request.head.repo.full_name != github.repository"


def files(options: Options) -> dict[str, str]:
    """Return the texts by path in the repository; raise ConfigError for more cells than a matrix may have."""
    if not options.one_host and len(options.cells) > MAX_CELLS:
        raise ConfigError(
            f"{len(options.cells)} cells are selected, GitHub's limit for a matrix is {MAX_CELLS} jobs",
            hint="select fewer with --triton, --sm or --cell, or use --one-host",
        )
    nightly = _one_host(options) if options.one_host else _nightly(options)
    made = {
        TEST: _render(options, _test(), "All checks and tests, on push and for pull requests from forks."),
        NIGHTLY: _render(options, nightly, *_about(options)),
    }
    if not options.one_host:
        made[CELL] = _render(
            options, _cell(options), "One cell of a nightly run: published if both gates pass."
        )
    return made


def _about(options: Options) -> tuple[str, ...]:
    if options.one_host:
        return ("The whole matrix on one machine with a GPU.",)
    return (
        "The audit, and for each cell: build and verify, smoke test on a GPU, publish if both gates pass.",
        "Cells do not wait for each other.",
    )


def _render(options: Options, data: Data, *about: str) -> str:
    return yaml_file.render(options.header("github", *about), data, {**actions.VERSIONS, **actions.REASONS})


def _test() -> Data:
    return {
        "name": "test",
        "on": {"push": {}, "pull_request": {}},
        "permissions": actions.READ,
        # A push to a branch ends the test of what it replaces; on the default branch each push is tested.
        "concurrency": {"group": f"test-${{{{ {_PER_PUSH} || github.ref }}}}", "cancel-in-progress": True},
        "jobs": {
            "test": {
                "name": "checks and tests",
                "if": f"github.event_name == 'push' || {_FROM_FORK}",
                "runs-on": HOSTED,
                "timeout-minutes": SHORT_MINUTES,
                "steps": [
                    actions.checkout(),
                    {"run": steps.TEST},
                    actions.upload("logs", ".ftbuild/**/*.log", when="failure()"),
                ],
            }
        },
    }


def _frame(options: Options, name: str, jobs: Data) -> Data:
    return {
        "name": name,
        "on": {"schedule": [{"cron": options.cron}], "workflow_dispatch": {}},
        "permissions": actions.READ,
        "concurrency": {"group": "nightly", "cancel-in-progress": False},
        "defaults": _SHELL,
        **({"env": options.environment} if options.environment else {}),
        "jobs": jobs,
    }


def _nightly(options: Options) -> Data:
    return _frame(
        options,
        "nightly",
        {"matrix": _matrix(options), "audit": _audit(), "cell": _call(options), "report": _report(options)},
    )


def _matrix(options: Options) -> Data:
    """Return the job that lists the cells and names the registry for the others."""
    return {
        "name": "matrix",
        "if": actions.DEFAULT_BRANCH,
        "runs-on": HOSTED,
        "timeout-minutes": SHORT_MINUTES,
        "outputs": {
            "matrix": "${{ steps.cells.outputs.matrix }}",
            "count": "${{ steps.cells.outputs.count }}",
            "registry": "${{ steps.registry.outputs.registry }}",
        },
        "steps": [
            actions.checkout(),
            {"id": "cells", "run": f'./bootstrap matrix{options.words} --format github >> "$GITHUB_OUTPUT"'},
            {"id": "registry", "run": f'echo registry={actions.registry(options)} >> "$GITHUB_OUTPUT"'},
        ],
    }


def _audit() -> Data:
    return {
        "name": "audit",
        "if": actions.DEFAULT_BRANCH,
        "runs-on": HOSTED,
        "timeout-minutes": SHORT_MINUTES,
        "steps": [
            actions.checkout(),
            {"run": f"{steps.AUDIT} | tee audit.txt"},
            {
                "if": "always()",
                "run": f"printf '~~~\\n%s\\n~~~\\n' \"$(cat audit.txt)\" >> {actions.SUMMARY}",
            },
        ],
    }


def _call(options: Options) -> Data:
    return {
        "name": "${{ matrix.id }}",
        "needs": "matrix",
        "if": "needs.matrix.outputs.count != '0'",
        "strategy": {"fail-fast": False, "matrix": "${{ fromJSON(needs.matrix.outputs.matrix) }}"},
        "permissions": actions.publish_permissions(options),
        "uses": f"./{CELL}",
        "with": {
            "cell": "${{ matrix.id }}",
            **{name: f"${{{{ matrix.{name} }}}}" for name in CELL_VARIABLES},
            "registry": "${{ needs.matrix.outputs.registry }}",
        },
        **({"secrets": actions.registry_secrets()} if options.registry else {}),
    }


def _report(options: Options) -> Data:
    return {
        "name": "report",
        "needs": ["matrix", "audit", "cell"],
        "if": f"always() && ({actions.DEFAULT_BRANCH})",
        "runs-on": HOSTED,
        "timeout-minutes": SHORT_MINUTES,
        "steps": [
            actions.checkout(),
            actions.download_all("{verify,smoke}-*"),
            {"run": f"{steps.summary(options.words)} >> {actions.SUMMARY}"},
        ],
    }


def _cell(options: Options) -> Data:
    inputs = ("cell", *CELL_VARIABLES, "registry")
    call: Data = {"inputs": {name: {"type": "string", "required": True} for name in inputs}}
    if options.registry:
        call["secrets"] = {name: {"required": True} for name in actions.registry_secrets()}
    return {
        "name": "cell",
        "on": {"workflow_call": call},
        "permissions": actions.READ,
        "defaults": _SHELL,
        "env": {
            **{name.upper(): f"${{{{ inputs.{name} }}}}" for name in inputs},
            "STAGE": STAGE,
            **options.environment,
        },
        "jobs": {"build": _build(options), "smoke": _smoke(options), "publish": _publish(options)},
    }


def _build(options: Options) -> Data:
    return {
        "name": "build and verify",
        "runs-on": list(options.cpu or CPU),
        "timeout-minutes": BUILD_MINUTES,
        "permissions": actions.write_permissions(options),
        **_signing(options, CELL),
        "steps": [
            actions.checkout(),
            *([] if options.substitutes else [{"run": steps.BUILD}]),
            *actions.logged_in(options, *([steps.TAKE] if options.substitutes else []), steps.PUSH),
            actions.upload("verify-${{ inputs.cell }}", steps.VERIFY_RECORD, steps.INVENTORIES, steps.PUSHED),
            actions.upload("log-${{ inputs.cell }}", steps.BUILD_LOG),
            actions.status_line("build and verify"),
        ],
    }


def _smoke(options: Options) -> Data:
    return {
        "name": "smoke",
        "needs": "build",
        "runs-on": [*(options.gpu or GPU), FIRST_SM],
        "timeout-minutes": BUILD_MINUTES,
        "permissions": {**actions.READ, **({} if options.registry else {"packages": "read"})},
        "steps": [
            actions.checkout(),
            {"run": steps.READY},
            # It says which images were staged, so that no others run here.
            actions.download("verify-${{ inputs.cell }}"),
            *actions.logged_in(options, steps.PULL),
            {"run": steps.SMOKE},
            actions.upload("smoke-${{ inputs.cell }}", steps.SMOKE_RECORD, steps.SMOKE_JUNIT),
            actions.status_line("smoke"),
        ],
    }


def _publish(options: Options) -> Data:
    return {
        "name": "publish",
        "needs": ["build", "smoke"],
        "if": actions.DEFAULT_BRANCH,
        "environment": ENVIRONMENT,
        "runs-on": list(options.cpu or CPU),
        "timeout-minutes": SHORT_MINUTES,
        "permissions": actions.publish_permissions(options),
        **_signing(options, CELL),
        "steps": [
            actions.checkout(),
            {"run": steps.READY},
            actions.download("verify-${{ inputs.cell }}"),
            actions.download("smoke-${{ inputs.cell }}"),
            *actions.logged_in(options, steps.PUBLISH),
            actions.status_line("publish"),
        ],
    }


def _signing(options: Options, workflow: str) -> Data:
    variables = actions.signing(options, workflow)
    return {"env": variables} if variables else {}


def _one_host(options: Options) -> Data:
    """Return one job; its work folder stays, so that the report shows trends."""
    job = {
        "name": "nightly",
        "if": actions.DEFAULT_BRANCH,
        "environment": ENVIRONMENT,
        "runs-on": list(options.gpu or GPU),
        "timeout-minutes": NIGHTLY_MINUTES,
        "permissions": actions.publish_permissions(options),
        **_signing(options, NIGHTLY),
        "steps": [
            actions.checkout(clean=False),
            {"run": f'echo REGISTRY={actions.registry(options)} >> "$GITHUB_ENV"'},
            {"run": steps.BEGIN_NIGHTLY},
            {"run": steps.READY},
            *actions.logged_in(options, steps.nightly(options.words, substitutes=options.substitutes)),
            {
                "if": "always()",
                "run": f"{steps.COLLECT_REPORT}"
                f"if [ -d {steps.REPORT} ]; then cat {steps.REPORT}/report.md >> {actions.SUMMARY}; fi\n",
            },
            actions.upload(steps.REPORT, steps.REPORT),
        ],
    }
    return _frame(options, "nightly", {"nightly": job})
