"""Steps of GitHub's jobs, and what a job may do: checkout, artifacts, login."""

from __future__ import annotations

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
# What is written there is shown on the page of the run.
SUMMARY = '"$GITHUB_STEP_SUMMARY"'


def registry(options: Options) -> str:
    """A word of the shell: GitHub's own registry takes lower case only (distribution-spec, <name>)."""
    return options.registry or "ghcr.io/${GITHUB_REPOSITORY,,}"


def writes(options: Options) -> Mapping[str, str]:
    """Another registry has credentials of its own: the job's token need not write packages."""
    return READ if options.registry else {**READ, "packages": "write"}


def passed_on() -> dict[str, str]:
    """Credentials of another registry than GitHub's own: secrets of the repository."""
    return {name: f"${{{{ secrets.{name} }}}}" for name in ("REGISTRY_USER", "REGISTRY_PASSWORD")}


def logged_in(options: Options, line: str) -> tuple[Data, ...]:
    """Log in, run a line, and log out whatever became of it: the machine may be shared."""
    own = {"REGISTRY_USER": "${{ github.actor }}", "REGISTRY_PASSWORD": "${{ secrets.GITHUB_TOKEN }}"}
    return (
        {"name": "docker login", "env": passed_on() if options.registry else own, "run": steps.LOGIN},
        {"run": line},
        {"name": "docker logout", "if": "always()", "run": steps.LOGOUT},
    )


def checkout(*, clean: bool = True) -> Data:
    """The sources; without `clean` what earlier runs left stays."""
    return {"uses": CHECKOUT, "with": {"persist-credentials": False, **({} if clean else {"clean": False})}}


def upload(name: str, *paths: str, when: str = "always()") -> Data:
    """Keep files below the work folder, those that there are; paths in the artifact count from it."""
    return {
        "if": when,
        "uses": UPLOAD,
        "with": {
            "name": name,
            "path": "\n".join(paths) + ("\n" if len(paths) > 1 else ""),
            "include-hidden-files": True,
            "if-no-files-found": "ignore",
            "overwrite": True,  # else a job that is run again fails on its own artifact
        },
    }


def download(name: str) -> Data:
    """An artifact, into the work folder."""
    return {"uses": DOWNLOAD, "with": {"name": name, "path": ".ftbuild"}}


def download_all(pattern: str) -> Data:
    """All artifacts whose names match, into the work folder."""
    return {"uses": DOWNLOAD, "with": {"pattern": pattern, "merge-multiple": True, "path": ".ftbuild"}}


def said(what: str) -> Data:
    """A line for the page of the run, whatever became of the job."""
    return {
        "if": "always()",
        "env": {"STATUS": "${{ job.status }}"},
        "run": f'echo "$CELL, {what}: $STATUS" >> {SUMMARY}',
    }
