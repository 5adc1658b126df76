"""GitLab CI: `.gitlab-ci.yml` with three jobs for each cell, written out.

Legs of a `parallel:matrix` cannot need each other one by one in the versions of GitLab in use, so one broken
cell would hold up all others. So every cell has jobs of its own, and a changed matrix makes the file
stale, which `invoke dev.ci --check` reports.
"""

from __future__ import annotations

from typing import Any

from ftbuild.ci import steps, yaml_file
from ftbuild.ci.options import ENVIRONMENT, STAGE, Options
from ftbuild.matrix import Cell
from ftbuild.sm import sm_list

Data = dict[str, Any]

PATH = ".gitlab-ci.yml"
PATHS = (PATH,)
IMAGE = "debian:bookworm-slim"
# Anyone who may push can run any command as root on the runner of the tests, so it is not the one that
# builds and publishes: the compiler cache and the layers of its engine go into images.
TEST = ("privileged", "test")
CPU = ("privileged", "nightly")
GPU = ("gpu",)
BUILD_TIME = "12 hours"
NIGHTLY_TIME = "24 hours"
KEPT = "30 days"
_SOURCE = '$CI_PIPELINE_SOURCE == "{}"'
_PUSHED = _SOURCE.format("push")
# Schedules and pipelines by hand can be of any branch.
_PUBLISHES = '$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH && $CI_COMMIT_REF_PROTECTED == "true"'
NIGHTLY = tuple(f"{_SOURCE.format(source)} && {_PUBLISHES}" for source in ("schedule", "web"))


def files(options: Options) -> dict[str, str]:
    """Return the text by path in the repository."""
    jobs = _one_host(options) if options.one_host else _nightly(options)
    about = (
        "Tests on push; nightly runs over the matrix on a schedule (Build > Pipeline schedules) or by hand.",
        *(() if options.one_host else ("Cells do not wait for each other.",)),
    )
    data = {**_frame(options), "test": _test(options), **jobs}
    return {PATH: yaml_file.render(options.header("gitlab", *about), data)}


def _frame(options: Options) -> Data:
    stages = ["test", "nightly"] if options.one_host else ["test", "build", "smoke", "publish", "report"]
    return {
        "stages": stages,
        "workflow": {"rules": [{"if": source} for source in (*NIGHTLY, _PUSHED)]},
        "default": {"image": IMAGE, "tags": list(options.cpu or CPU), "interruptible": False},
        "variables": {
            "REGISTRY": options.registry or "$CI_REGISTRY_IMAGE",
            **({} if options.registry else _own_credentials()),
            "STAGE": STAGE,
            **options.environment,
        },
    }


def _own_credentials() -> dict[str, str]:
    """Return those of the job's token; another registry's are masked, protected variables of the project."""
    return {"REGISTRY_USER": "$CI_REGISTRY_USER", "REGISTRY_PASSWORD": "$CI_REGISTRY_PASSWORD"}


def _test(options: Options) -> Data:
    return {
        "stage": "test",
        "rules": [{"if": _PUSHED}],
        "tags": list(options.test or TEST),
        "timeout": "1 hour",
        "script": [steps.TEST],
        "artifacts": {"when": "on_failure", "expire_in": KEPT, "paths": [".ftbuild/**/*.log"]},
    }


def _nightly(options: Options) -> Data:
    made: Data = {
        ".nightly": {"rules": [{"if": source} for source in NIGHTLY]},
        "audit": {"extends": ".nightly", "stage": "test", "script": [steps.AUDIT]},
        **_templates(options),
    }
    for cell in options.cells:
        made |= _cell(cell, options.gpu or GPU)
    return {**made, "report": _report(options)}


def _templates(options: Options) -> Data:
    """Return the parts that the jobs of all cells share."""
    return {
        ".build": {
            "extends": ".nightly",
            "stage": "build",
            "needs": [],
            "timeout": BUILD_TIME,
            **({"variables": _signer()} if options.keyless else {}),
            "script": (
                [steps.LOGIN, steps.TAKE, steps.PUSH]
                if options.substitutes
                else [steps.BUILD, steps.LOGIN, steps.PUSH]
            ),
            "after_script": [steps.LOGOUT],
            "artifacts": _kept(steps.VERIFY_RECORD, steps.INVENTORIES, steps.PUSHED, steps.BUILD_LOG),
        },
        ".smoke": {
            "extends": ".nightly",
            "stage": "smoke",
            "timeout": BUILD_TIME,
            "script": [steps.READY, steps.LOGIN, steps.PULL, steps.SMOKE],
            "after_script": [steps.LOGOUT],
            "artifacts": {
                **_kept(steps.SMOKE_RECORD, steps.SMOKE_JUNIT),
                "reports": {"junit": steps.SMOKE_JUNIT},
            },
        },
        ".publish": {
            "extends": ".nightly",
            "stage": "publish",
            "environment": ENVIRONMENT,
            **_signing(options),
            "timeout": "1 hour",
            "script": [steps.READY, steps.LOGIN, steps.PUBLISH],
            "after_script": [steps.LOGOUT],
        },
    }


def _cell(cell: Cell, gpu: tuple[str, ...]) -> Data:
    """Return a cell's jobs in one resource group: those of two pipelines never run at the same time."""
    variables = {"TRITON": cell.triton, "SMS": sm_list(cell.sms), "BASE": cell.base}
    shared = {"variables": variables, "resource_group": cell.id}
    build, smoke, publish = (f"{step} {cell.id}" for step in ("build", "smoke", "publish"))
    return {
        build: {"extends": ".build", **shared},
        smoke: {"extends": ".smoke", "needs": [build], "tags": [*gpu, _label(cell)], **shared},
        publish: {"extends": ".publish", "needs": [build, smoke], **shared},
    }


def _label(cell: Cell) -> str:
    return f"sm{cell.sms[0]}"


def _report(options: Options) -> Data:
    """Return the job that waits for all others, by its stage, and gets all records."""
    return {
        "stage": "report",
        "rules": [{"if": source, "when": "always"} for source in NIGHTLY],
        "script": [f"{steps.summary(options.words)} > summary.md", "cat summary.md"],
        "artifacts": _kept("summary.md"),
    }


def _signing(options: Options) -> Data:
    """Return the token for cosign, and the signer: this file (docs.gitlab.com, ci_config_ref_uri)."""
    if not options.keyless:
        return {}
    return {
        "id_tokens": {"SIGSTORE_ID_TOKEN": {"aud": "sigstore"}},
        "variables": _signer(),
    }


def _signer() -> dict[str, str]:
    """Return the options that sign what is published, and those that name trusted signers."""
    return {
        "FTBUILD_SIGN_IDENTITY": f"$CI_PROJECT_URL//{PATH}@refs/heads/$CI_COMMIT_BRANCH",
        "FTBUILD_SIGN_ISSUER": "$CI_SERVER_URL",
    }


def _one_host(options: Options) -> Data:
    signing = _signing(options)
    job = {
        "stage": "nightly",
        "environment": ENVIRONMENT,
        "rules": [{"if": source} for source in NIGHTLY],
        "tags": list(options.gpu or GPU),
        "timeout": NIGHTLY_TIME,
        "resource_group": "nightly",
        **signing,
        "variables": {"GIT_CLEAN_FLAGS": "-ffdx -e .ftbuild -e .venv", **signing.get("variables", {})},
        "script": [
            steps.BEGIN_NIGHTLY,
            steps.READY,
            steps.LOGIN,
            steps.nightly(options.words, substitutes=options.substitutes),
        ],
        "after_script": [steps.COLLECT_REPORT, steps.LOGOUT],
        "artifacts": {**_kept(steps.REPORT), "reports": {"junit": f"{steps.REPORT}/junit.xml"}},
    }
    return {"nightly": job}


def _kept(*paths: str) -> Data:
    return {"when": "always", "expire_in": KEPT, "paths": list(paths)}
