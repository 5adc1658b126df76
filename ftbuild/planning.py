"""How plans are made: from configuration, lock and cell, without a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial

from packaging.utils import canonicalize_name

from ftbuild import cmake, matrix, proven, triton
from ftbuild.config import holes, recipe
from ftbuild.config.bases import BaseConfig
from ftbuild.config.recipe import RecipeFile
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.input_key import digest_of, input_key, patch_key, source_key
from ftbuild.matrix import Cell
from ftbuild.plan import BASE, IN_IMAGES, Plan, PlannedBase, PlannedWheel, Revision
from ftbuild.sources import planned, requirements
from ftbuild.sources.debian.pinned import locked
from ftbuild.sources.inputs import PlannedPatch, PlannedSource
from ftbuild.sources.patches import series
from ftbuild.sources.patches.series import Entry

# What the plan itself and the CMake options refer to, below the source root (ftbuild/cmake.py).
COMPONENTS = ("ft", "backend")
PLACES = ("ft", "backend", "repo-core-src", "common", "triton-backend")


def make_plans(config: Config, cells: Iterable[Cell], revision: Revision) -> list[Plan]:
    """Make the plans of cells, of which all have the same series: it is read once.

    Raises PinError where the lock lacks a pin or a requirement its hash, PatchError where the series is
    malformed, ConfigError where a file that the recipe names is missing.
    """
    read = cache(partial(series.read_series, config))
    return [_plan(config, cell, revision, read) for cell in cells]


def make_plan(config: Config, cell: Cell, revision: Revision) -> Plan:
    """Make the plan of one cell; errors as those of `make_plans`."""
    return make_plans(config, [cell], revision)[0]


def _plan(
    config: Config, cell: Cell, revision: Revision, read: Callable[[], Mapping[str, tuple[Entry, ...]]]
) -> Plan:
    base = config.bases.bases[cell.base]
    release = config.matrix.releases[cell.triton]
    _require_sources(config, cell.triton)
    planned_sources = tuple(_sources(config, cell, base))
    versions = {s.repository: s.version for s in planned_sources}
    patches = tuple(_patches(config, read(), versions, lean=bool(cell.left_out)))
    cuda = matrix.cuda_version(config, cell)
    toolchain = cmake.Toolchain(*base.host_compiler, cuda)
    files = tuple(recipe.files(config, base))
    draft = Plan(
        cell=cell,
        image=config.matrix.image,
        server=base.server or release.server,
        cuda=cuda,
        driver=base.driver or release.driver,
        base=_base(config, cell, base, files, tuple(_compiled(planned_sources, patches))),
        sources=planned_sources,
        patches=patches,
        toolchain=toolchain,
        toolchain_packages=base.toolchain_packages,
        wheel_libraries=base.wheel_libraries,
        sdk_without=base.sdk_without,
        families=config.models.served(versions["ft"] or ""),
        trees=cmake.trees(
            cell.sms, versions["ft"] or "", versions["backend"] or "", toolchain, cell.left_out
        ),
        files=files,
        max_bytes=_max_bytes(base, cell),
        wheels=tuple(_wheels(base, files)),
        wheel_options=requirements.pip_options(base),
        revision=revision,
        objects=config.lock.objects.get(cell.id, ""),
        tried=proven.tried(config, cell),
        support_end=proven.support_end(config, cell),
        compression=config.matrix.compression,
    )
    known = holes.known(
        config.holes, _contents(draft), local=base.local is not None, patches=draft.patch_names()
    )
    return replace(draft, holes=known, key=input_key(draft))


def _max_bytes(base: BaseConfig, cell: Cell) -> dict[str, int]:
    """Return the limits of a cell of one SM; each further one adds its machine code."""
    limits = base.max_megabytes.get(cell.triton, {}) if len(cell.sms) == 1 else {}
    return {str(product): 10**6 * megabytes for product, megabytes in limits.items()}


def _contents(draft: Plan) -> dict[str, str]:
    """Return what a plan knows of the contents of its images: package URL without a version -> version."""
    packages = draft.base.debian.installed("serving") if draft.base.debian else ()
    return {
        triton.PURL: f"v{draft.server}",
        **{
            f"pkg:pypi/{canonicalize_name(wheel.name)}": wheel.version
            for wheel in draft.wheels
            if wheel.role in IN_IMAGES
        },
        **{f"pkg:deb/debian/{package.name}": package.version for package in packages},
    }


def _require_sources(config: Config, release: str) -> None:
    """Raise ConfigError where a release lacks a repository, or a version, without which no build starts."""
    sources, repositories = config.sources.releases[release], config.sources.repositories
    built = config.sources.built(release)
    places = {repositories[name].path for name in built}
    lacking = [name for name in COMPONENTS if name not in built]
    lacking += [f"one at {place}" for place in PLACES if place not in places and place not in lacking]
    if lacking:
        raise ConfigError(
            f"release {release} lacks a repository: {', '.join(lacking)}",
            where=config.place("sources.yaml", "releases", release),
            hint="docs/adding-a-release.md lists what a release needs",
        )
    for name in COMPONENTS:
        if sources[name].version is None:
            raise ConfigError(
                f"{name} of release {release} has no version",
                where=config.place("sources.yaml", "releases", release, name),
                hint="CMake options depend on it: give it a `version`",
            )


def _sources(config: Config, cell: Cell, base: BaseConfig) -> Iterator[PlannedSource]:
    release, compiles_server = cell.triton, base.local is not None and base.local.compiles_server
    for name in config.sources.built(release):
        repository = config.sources.repositories[name]
        if repository.server and not compiles_server:
            continue
        yield planned.source(config, release, name, cell.sms)


def _patches(
    config: Config,
    by_component: Mapping[str, tuple[Entry, ...]],
    versions: Mapping[str, str | None],
    *,
    lean: bool,
) -> Iterator[PlannedPatch]:
    for component, entries in by_component.items():
        for entry in series.applicable(entries, versions.get(component) or "", lean=lean):
            yield planned.patch(config, entry)


def _wheels(base: BaseConfig, files: tuple[RecipeFile, ...]) -> Iterator[PlannedWheel]:
    for file in files:
        if file.role in base.requirements_by_role():
            text = file.content.decode("utf-8", "replace")
            for pinned in requirements.parsed(file.path, text).locked():
                yield PlannedWheel(file.role, pinned.name, pinned.version, pinned.wheel, pinned.sha256)


def _compiled(sources: Iterable[PlannedSource], patches: Iterable[PlannedPatch]) -> Iterator[list[object]]:
    """Yield what decides the server that a base compiles."""
    compiled = {s.repository: s for s in sources if s.server}
    yield from (source_key(source) for source in compiled.values())
    yield from (patch_key(patch) for patch in patches if patch.component in compiled)


def _base(
    config: Config,
    cell: Cell,
    base: BaseConfig,
    files: tuple[RecipeFile, ...],
    compiled: tuple[list[object], ...],
) -> PlannedBase:
    if base.local is None:
        assert base.image is not None
        image = base.image.format(release=cell.triton)
        digest = config.lock.bases.get(cell.base, {}).get(cell.triton)
        pinned = f"{image}@{digest}" if digest else image
        origin = (
            "bases.yaml, digest from the lock"
            if digest
            else "bases.yaml, no digest in the lock: the tag decides"
        )
        return PlannedBase(
            cell.base,
            pinned,
            pinned,
            digest,
            None,
            origin,
            None,
            base.architecture,
            cell_gib=base.cell_gib,
        )
    roles = {"base", "server", *(["toolchain"] if compiled else [])}
    content = [(f.role, f.sha256) for f in files if f.role.partition("/")[0] in roles]
    packages = locked(config, cell.base)
    key = digest_of([content, packages.model_dump(mode="json"), dict(base.local.arguments), *compiled])
    name = f"{BASE}{cell.base}"
    origin = f"built here by invoke base, Debian {base.local.debian.suite} of {packages.snapshot}"
    return PlannedBase(
        cell.base,
        f"{name}:{key}",
        f"{name}:{key}-devel",
        None,
        base.local,
        origin,
        packages,
        base.architecture,
        cell_gib=base.cell_gib,
        base_gib=base.base_gib,
    )
