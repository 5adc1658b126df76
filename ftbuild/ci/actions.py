"""Steps and permissions of GitHub's jobs: checkout, artifacts, login."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ftbuild.ci import steps
from ftbuild.ci.options import Options

Data = dict[str, Any]

# Commit and version: renovate.json reads this form, and updates the rendered files with it.
VERSIONS = {
    "actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683": "v4.2.2",
    "actions/upload-artifact@ea165f8d65b6e75b540449e92b4886f43607fa02": "v4.6.2",
    "actions/download-artifact@d3f86a106a0bac45b974a628896c90dbdf5c8093": "v4.3.0",
}
CHECKOUT, UPLOAD, DOWNLOAD = VERSIONS

READ = {"contents": "read"}
# Who issues the tokens of jobs (docs.github.com, OpenID Connect).
ISSUER = "https://token.actions.githubusercontent.com"
# The reason for each permission beyond reading the sources, written beside it.
REASONS = {
    "packages: write": "push images to ghcr.io",
    "packages: read": "pull staged images from ghcr.io",
    "id-token: write": "sign with a token of this job",
}
# Anyone with write access may start a workflow on a branch of their own. Scheduled runs are always
# the default branch's, and their event does not name it.
DEFAULT_BRANCH = (
    "github.event_name == 'schedule'"
    " || github.ref == format('refs/heads/{0}', github.event.repository.default_branch)"
)
# GitHub shows the contents of this file on the page of the run.
SUMMARY = '"$GITHUB_STEP_SUMMARY"'


def registry(options: Options) -> str:
    """Return the registry as a shell word; GitHub's own takes lower case only (distribution-spec, <name>)."""
    return shlex.quote(options.registry) if options.registry else '"ghcr.io/${GITHUB_REPOSITORY,,}"'


def write_permissions(options: Options) -> Mapping[str, str]:
    """Return the permissions of a job that pushes; another registry has its own credentials."""
    return READ if options.registry else {**READ, "packages": "write"}


def publish_permissions(options: Options) -> Mapping[str, str]:
    """Return the permissions of a job that publishes, and of one that calls it."""
    return {**write_permissions(options), **({"id-token": "write"} if options.keyless else {})}


def signing(options: Options, workflow: str) -> dict[str, str]:
    """Return the variables of `invoke publish` about the signer, which is the workflow file of the job.

    That is `job_workflow_ref` of the job's token (docs.github.com, OpenID Connect reference).
    """
    if not options.keyless:
        return {}
    path = f"${{{{ github.server_url }}}}/${{{{ github.repository }}}}/{workflow}@${{{{ github.ref }}}}"
    return {"FTBUILD_SIGN_IDENTITY": path, "FTBUILD_SIGN_ISSUER": ISSUER}


def registry_secrets() -> dict[str, str]:
    """Return the credentials of a registry other than GitHub's own: secrets of the repository."""
    return {name: f"${{{{ secrets.{name} }}}}" for name in ("REGISTRY_USER", "REGISTRY_PASSWORD")}


def logged_in(options: Options, *lines: str) -> tuple[Data, ...]:
    """Log in, run some lines, and log out in any case: the machine may be shared."""
    own = {"REGISTRY_USER": "${{ github.actor }}", "REGISTRY_PASSWORD": "${{ secrets.GITHUB_TOKEN }}"}
    return (
        {"name": "docker login", "env": registry_secrets() if options.registry else own, "run": steps.LOGIN},
        *({"run": line} for line in lines),
        {"name": "docker logout", "if": "always()", "run": steps.LOGOUT},
    )


def checkout(*, clean: bool = True) -> Data:
    """Check out the sources; without `clean`, files of earlier runs stay."""
    return {"uses": CHECKOUT, "with": {"persist-credentials": False, **({} if clean else {"clean": False})}}


def upload(name: str, *paths: str, when: str = "always()") -> Data:
    """Upload those of the files below the work folder that exist; paths in the artifact start there."""
    return {
        "if": when,
        "uses": UPLOAD,
        "with": {
            "name": name,
            "path": "\n".join(paths) + ("\n" if len(paths) > 1 else ""),
            "include-hidden-files": True,
            "if-no-files-found": "ignore",
            "overwrite": True,  # else a repeated job fails on its own artifact
        },
    }


def download(name: str) -> Data:
    """Download an artifact into the work folder."""
    return {"uses": DOWNLOAD, "with": {"name": name, "path": ".ftbuild"}}


def download_all(pattern: str) -> Data:
    """Download all artifacts with matching names into the work folder."""
    return {"uses": DOWNLOAD, "with": {"pattern": pattern, "merge-multiple": True, "path": ".ftbuild"}}


def status_line(what: str) -> Data:
    """Write the job's status to the page of the run, in any case."""
    return {
        "if": "always()",
        "env": {"STATUS": "${{ job.status }}"},
        "run": f'echo "$CELL, {what}: $STATUS" >> {SUMMARY}',
    }
