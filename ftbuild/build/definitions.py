"""What bake files hold: the targets of cells and bases, with labels, contexts and places to go to.

Target names have no dot, which bake would read as a nested attribute (docker/buildx docs/bake-reference.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ftbuild.build import machine, packages, proxies
from ftbuild.build.machine import Host
from ftbuild.plan import LABELS, PRODUCTS, Plan

# The named contexts with the wheels of each role, in folders of their own, and with the patched sources.
WHEELS = "wheels"
SOURCES = "sources"
# That with what was compiled elsewhere, and the stage with what was used of ccache.
OBJECTS, USED_OBJECTS = "objects", "used-objects"
# A secret changes no cache key.
SECRETS = [f"type=env,id=host,env={machine.SETTINGS}"]
# The label of images whose objects may come from other machines: their builds are trusted as well.
CACHE_LABEL = f"{LABELS}.compiler-cache"
REMOTE = "remote"
# The label of images for which objects were brought from a registry: `repository@digest`.
OBJECTS_LABEL = f"{LABELS}.objects"
# The time in an image's configuration and history (moby/buildkit docs/build-repro.md). No Dockerfile declares
# it, so it changes no step; the times of files are those of steps/fixed-times.sh.
EPOCH = "SOURCE_DATE_EPOCH"


@dataclass(frozen=True)
class Staging:
    """Where a builder pushes the images of a cell, for an engine that it does not load them into.

    `tags` by product are for builders whose pushes need one; without, they push by digest. `serving` and
    `devel` are names of the base's images that the builder can pull.
    """

    repository: str
    serving: str
    devel: str
    tags: Mapping[str, str] | None = None

    def target(self, product: str) -> dict[str, Any]:
        """Return the part of a bake target that decides where its image goes."""
        if self.tags:
            return {"tags": [f"{self.repository}:{self.tags[product]}"], "output": ["type=image,push=true"]}
        by_digest = "push-by-digest=true,name-canonical=true,push=true"
        return {"tags": [], "output": [f"type=image,name={self.repository},{by_digest}"]}


def cell(plan: Plan, host: Host, staging: Staging | None = None, objects: str = "") -> dict[str, object]:
    """Return the bake file of a cell, for its staged folder: one target per image kind.

    Two more targets export the figures of both compiles (configure and ninja log, ccache, SASS) to `info/`;
    another one, on request, what they have used of ccache. With `staging`, the builder pushes the images
    instead of loading them into the engine. `objects` names what was brought into the folder, if anything.
    """
    targets = {target_name(plan, product): image(plan, product, host, staging) for product in PRODUCTS}
    for target in targets.values():
        target["labels"] |= {OBJECTS_LABEL: objects} if objects else {}
    figures = {target_name(plan, f"{tree.name}-info"): info(plan, tree.name, staging) for tree in plan.trees}
    return bake_file(
        {**targets, **figures}, {target_name(plan, USED_OBJECTS): _objects_target(plan, staging)}
    )


def _objects_target(plan: Plan, staging: Staging | None) -> dict[str, Any]:
    output = [f"type=local,dest={USED_OBJECTS}"]
    return {**_common(plan, staging), "target": USED_OBJECTS, "output": output}


def image(plan: Plan, product: str, host: Host, staging: Staging | None = None) -> dict[str, Any]:
    """Return the target of an image; its stage in the Dockerfile has the name of the image kind."""
    # Into the engine, also from a remote builder.
    loaded = {"tags": [plan.tag(product)], "output": ["type=docker"]}
    return {
        **_common(plan, staging),
        "target": product,
        **(staging.target(product) if staging else loaded),
        "labels": {**plan.labels(product), **({CACHE_LABEL: REMOTE} if machine.compiles_online() else {})},
        **_attestations(host),
        **_layer_cache(plan, host),
    }


def info(plan: Plan, tree: str, staging: Staging | None = None) -> dict[str, Any]:
    """Return the target that exports the figures of a build tree's compile to `info/`."""
    return {**_common(plan, staging), "target": f"{tree}-info", "output": [f"type=local,dest=info/{tree}"]}


def _common(plan: Plan, staging: Staging | None) -> dict[str, Any]:
    base = staging or plan.base
    return {
        "context": "recipe",
        "dockerfile": "Dockerfile",
        "contexts": {
            "base": f"docker-image://{base.serving}",
            "toolchain-base": f"docker-image://{base.devel}",
            SOURCES: SOURCES,
            "recipe": "recipe",
            WHEELS: WHEELS,
            OBJECTS: OBJECTS,
        },
        "args": {EPOCH: str(plan.revision.epoch), **plan.arguments(), **proxies.arguments()},
        "secret": SECRETS,
        "platforms": [plan.base.platform],
    }


def target_name(plan: Plan, target: str) -> str:
    """Return the name of a target in the bake file of a cell."""
    return _without_dots(f"{plan.cell.id}-{target}")


def _attestations(host: Host) -> dict[str, list[str]]:
    """Return BuildKit's own provenance, unless a build argument may be a proxy with a password."""
    return {"attest": ["type=provenance,mode=max"]} if host.full and not proxies.are_set() else {}


def _layer_cache(plan: Plan, host: Host) -> dict[str, list[str]]:
    """Return the layer cache in a registry, for builders without a shared disk; its loss fails no build."""
    if not host.cache:
        return {}
    place = f"type=registry,ref={host.cache}:{plan.cell.id}"
    fill = {"cache-to": [f"{place},mode=max,ignore-error=true"]} if host.full else {}
    return {"cache-from": [place], **fill}


def local_base(plan: Plan, os_image: str, host: Host) -> dict[str, object]:
    """Return the bake file of a local base: the image to serve from and the one to compile in."""
    assert plan.base.local is not None
    assert plan.base.debian is not None
    arguments = {
        EPOCH: str(int(plan.base.debian.time.timestamp())),
        "OS_IMAGE": os_image,
        **plan.base.local.arguments,
        **proxies.arguments(),
    }
    contexts = [packages.CONTEXT, WHEELS, *([SOURCES] if plan.server_sources else [])]
    targets = {
        _without_dots(f"base-{plan.base.name}-{target}"): {
            "context": ".",
            "contexts": {name: name for name in contexts},
            "dockerfile": "Dockerfile",
            "target": target,
            "args": arguments,
            "labels": {f"{LABELS}.snapshot": plan.base.snapshot},
            "secret": SECRETS,
            "platforms": [plan.base.platform],
            "tags": [tag],
            "output": ["type=docker"],
        }
        for target, tag in (("serving", plan.base.serving), ("devel", plan.base.devel))
    }
    return bake_file(targets)


def bake_file(
    targets: Mapping[str, object], on_request: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return a bake file whose default is all of `targets`, and that has others `on_request`."""
    return {"group": {"default": {"targets": list(targets)}}, "target": {**targets, **(on_request or {})}}


def _without_dots(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)
