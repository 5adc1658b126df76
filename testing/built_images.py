"""Images that an engine has: their tags, and the cells that they are of, as their labels tell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ftbuild import matrix
from ftbuild.cli import selection
from ftbuild.config.schema import Config
from ftbuild.errors import FtbuildError
from ftbuild.plan import LABELS, Plan
from ftbuild.planning import make_plan
from ftbuild.sm import sm_list

if TYPE_CHECKING:
    import docker


def tags(client: docker.DockerClient, image: str) -> set[str]:
    """Return the tags under the name of an image; what they mean may have other names, too."""
    listed = {tag for found in client.images.list(name=image) for tag in found.tags}
    return {tag for tag in listed if tag.startswith(f"{image}:")}


def remove(client: docker.DockerClient, image: str, keep: Collection[str] = ()) -> None:
    """Remove the tags under the name of an image but those to `keep`; what has other names stays."""
    for tag in tags(client, image).difference(keep):
        client.images.remove(tag, force=True)


def plans(config: Config, labels: Iterable[Mapping[str, str]]) -> list[Plan]:
    """Return the plan of every image that this checkout would build so today, whatever its SMs and base.

    `labels` are those of all images of an engine, in any order.
    """
    found = {plan.key: plan for written in labels if (plan := _plan(config, written))}
    return sorted(found.values(), key=lambda plan: plan.cell.id)


def _plan(config: Config, labels: Mapping[str, str]) -> Plan | None:
    """Return the plan with the labels' key, None where the configuration no longer gives it."""
    try:
        (cell,) = matrix.select(
            config,
            triton=[labels[f"{LABELS}.triton"]],
            sms=[labels[f"{LABELS}.sm"]],
            bases=[labels[f"{LABELS}.base"]],
        )
        plan = make_plan(config, cell, selection.revision())
    except (KeyError, FtbuildError):
        return None
    return plan if plan.key == labels.get(f"{LABELS}.key") else None


def options(plan: Plan) -> list[str]:
    """Return the options of a command that select exactly this cell; globs know cells of one SM only."""
    return ["--triton", plan.cell.triton, "--sm", sm_list(plan.cell.sms), "--base", plan.base.name]
