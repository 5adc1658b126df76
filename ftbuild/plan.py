"""Plans: everything that decides an image, from configuration, lock and cell, and nothing of a machine.

A plan is closed: it holds pins, diffs and the bytes of recipe files, so that later steps (staging, bake,
verify) need a plan and a place, and what is edited after it was made changes nothing of its build. Two plans
with the same input key give the same image.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path

from packaging.utils import canonicalize_name

from ftbuild import cmake, matrix, triton
from ftbuild.architecture import DEFAULT, Architecture, platform
from ftbuild.config import holes, recipe
from ftbuild.config.debian import LockedDebian
from ftbuild.config.holes import Known
from ftbuild.config.recipe import RecipeFile
from ftbuild.config.schema import BaseConfig, Config, LocalBase
from ftbuild.errors import ConfigError
from ftbuild.matrix import Cell
from ftbuild.sm import sm_list
from ftbuild.sources import planned, requirements
from ftbuild.sources.debian.pinned import locked
from ftbuild.sources.inputs import PlannedPatch, PlannedSource
from ftbuild.sources.patches import series

# Raised by hand when the build changes, but no file that the key covers.
RECIPE = 2
KEY_DIGITS = 12
# The names of bases that are built here begin with this.
BASE = "ftbuild-base-"
LABELS = "io.ftbuild"
HOLES_LABELS = (f"{LABELS}.holes", f"{LABELS}.holes-known")
PRODUCTS = ("runtime", "sdk")
# The roles of wheels that stay in images; those of the others compile.
IN_IMAGES = ("server", *PRODUCTS)
# What the plan itself and the CMake options refer to, below the source root (ftbuild/cmake.py).
COMPONENTS = ("ft", "backend")
PLACES = ("ft", "backend", "repo-core-src", "common", "triton-backend")


DIRTY = "-dirty"


@dataclass(frozen=True)
class Revision:
    """The revision of this repository for labels; never part of the input key.

    `commit` ends with `DIRTY` where files that make images are not those of the commit.
    """

    commit: str
    time: str
    url: str = ""

    @property
    def epoch(self) -> int:
        """Its time in seconds since 1970, for SOURCE_DATE_EPOCH (reproducible-builds.org)."""
        return int(datetime.fromisoformat(self.time).timestamp())


@dataclass(frozen=True)
class PlannedBase:
    """The base of an image: the image to serve from and the one to compile in."""

    name: str
    serving: str
    devel: str
    digest: str | None
    local: LocalBase | None
    origin: str
    debian: LockedDebian | None = None
    architecture: Architecture = DEFAULT

    @property
    def platform(self) -> str:
        """Return the platform of its images, and of those made on it: `linux/amd64`."""
        return platform(self.architecture)

    @property
    def snapshot(self) -> str:
        """Return the time of the Debian archive that its packages are from; "" for a registry's image."""
        return self.debian.snapshot if self.debian else ""


@dataclass(frozen=True)
class PlannedWheel:
    """A Python package that a stage installs, or, with the role `server`, that a local base unpacks."""

    role: str
    name: str
    version: str
    file: str
    sha256: str


@dataclass(frozen=True)
class Plan:
    """One image pair (runtime and SDK) to build.

    `families` are the models that it serves, each of which the smoke test must have compared. `tried` names
    the GPUs on which images like these have run.
    """

    cell: Cell
    image: str
    server: str
    cuda: str
    driver: str
    tried: str
    base: PlannedBase
    sources: tuple[PlannedSource, ...]
    patches: tuple[PlannedPatch, ...]
    toolchain: cmake.Toolchain
    toolchain_packages: tuple[str, ...]
    wheel_libraries: tuple[str, ...]
    families: tuple[str, ...]
    trees: tuple[cmake.Tree, cmake.Tree]
    files: tuple[RecipeFile, ...]
    wheels: tuple[PlannedWheel, ...]
    # Options by which pip finds the wheels for the base's Python, on this machine's.
    wheel_options: tuple[str, ...]
    revision: Revision
    # Like the revision, no part of the input key: what is learnt of an image does not change it.
    holes: Known = field(default_factory=Known)
    # The objects that the lock has, `repository@digest`; no part of the key, as compiling gives the same.
    objects: str = ""
    key: str = ""

    def tag(self, product: str, *, moving: bool = False) -> str:
        """Return `name:22.12-sm80-<key>`, or the moving `name:22.12-sm80`; the SDK image ends with `-sdk`."""
        parts = [self.cell.id, *([] if moving else [self.key]), *([product] if product != "runtime" else [])]
        return f"{self.image}:{'-'.join(parts)}"

    def folder(self, work: Path) -> Path:
        """Return the folder below `work` with the staged context, bake file, log and gate records."""
        return work / self.cell.id / self.key

    def file(self, role: str) -> RecipeFile:
        """Return the recipe file of a role: dockerfile, base, server, toolchain, pyt, runtime or sdk."""
        return next(f for f in self.files if f.role == role)

    def steps(self, role: str) -> tuple[RecipeFile, ...]:
        """Return the programs that the Dockerfile of a role (dockerfile or base) copies into its stages."""
        return tuple(f for f in self.files if f.role.startswith(f"{role}/"))

    @property
    def own_sources(self) -> tuple[PlannedSource, ...]:
        """Return the sources that the cell itself compiles."""
        return tuple(source for source in self.sources if not source.server)

    @property
    def server_sources(self) -> tuple[PlannedSource, ...]:
        """Return the sources of the server, if its base compiles it."""
        return tuple(source for source in self.sources if source.server)

    def source(self, repository: str) -> PlannedSource:
        """Return the pinned source of a repository."""
        return next(s for s in self.sources if s.repository == repository)

    def takes(self, component: str, file: str) -> bool:
        """Return whether an entry of a component's series applies to this cell."""
        return any((patch.component, patch.file) == (component, file) for patch in self.patches)

    def patch_names(self) -> tuple[str, ...]:
        """Return the patches that the cell takes, as `component/file`, in order of application."""
        return tuple(patch.name for patch in self.patches)

    def arguments(self) -> dict[str, str]:
        """Return the build arguments of the Dockerfile, the same for every stage."""
        backend, pyt = self.trees
        return {
            "HOST_CC": self.toolchain.cc,
            "HOST_CXX": self.toolchain.cxx,
            "TOOLCHAIN_APT": " ".join(self.toolchain_packages),
            "BACKEND_TARGETS": " ".join(backend.targets),
            "PYT_TARGETS": " ".join(pyt.targets),
            "PYT_WHEEL_LIBS": " ".join(self.wheel_libraries),
            "ABOUT": self.about(),
        }

    def about(self) -> str:
        """Return in a line what an image says of itself when it is run without a command."""
        return (
            f"{self.cell.id}: Triton Inference Server {self.server} with the FasterTransformer backend "
            f"{self.source('backend').version}, for GPUs of SM {sm_list(self.cell.sms)}, CUDA {self.cuda}, "
            f"driver {self.driver} or later"
        )

    def labels(self, product: str) -> dict[str, str]:
        """Return OCI image labels (image-spec v1.1 annotations.md) and our own, for one product.

        All standard keys are set, since an image would inherit those of its base.
        """
        ft, backend = self.source("ft"), self.source("backend")
        sms = sm_list(self.cell.sms)
        return {
            **{
                f"org.opencontainers.image.{name}": value
                for name, value in {
                    "title": f"{self.image} {self.cell.id}{'' if product == 'runtime' else '-' + product}",
                    "description": f"Triton Inference Server {self.server} with FasterTransformer backend "
                    f"{backend.version}, SM {sms} ({product})",
                    "version": f"{self.cell.triton}-{self.key}",
                    "revision": self.revision.commit,
                    "created": self.revision.time,
                    "source": self.revision.url,
                    "url": self.revision.url,
                    "documentation": self.revision.url,
                    "vendor": "ftbuild",
                    "authors": "ftbuild",
                    "licenses": "Apache-2.0 AND BSD-3-Clause",
                    "ref.name": self.tag(product).rsplit(":", 1)[1],
                    "base.name": self.base.serving,
                    "base.digest": self.base.digest or "",
                }.items()
            },
            f"{LABELS}.cell": self.cell.id,
            f"{LABELS}.key": self.key,
            f"{LABELS}.product": product,
            f"{LABELS}.base": self.base.name,
            f"{LABELS}.snapshot": self.base.snapshot,
            **{f"{LABELS}.architecture": name for name in _architecture_key(self.base)},
            f"{LABELS}.triton": self.cell.triton,
            f"{LABELS}.server": self.server,
            f"{LABELS}.cuda": self.cuda,
            f"{LABELS}.driver": self.driver,
            f"{LABELS}.tried": self.tried,
            f"{LABELS}.sm": sms,
            # What verify must find in the libraries; PTX is embedded for the very same SMs.
            f"{LABELS}.sass": ",".join(sm.code for sm in self.cell.sms),
            f"{LABELS}.ptx": ",".join(sm.ptx for sm in self.cell.sms),
            f"{LABELS}.ft": ft.commit,
            f"{LABELS}.backend": backend.commit,
            f"{LABELS}.patches": " ".join(self.patch_names()),
            f"{LABELS}.patch-origins": json.dumps(
                dict(zip(self.patch_names(), (patch.origin for patch in self.patches), strict=True))
            ),
            **self.holes_labels(),
            f"{LABELS}.upstream": "FasterTransformer and its backend are unmaintained since October 2023",
        }

    def holes_labels(self) -> dict[str, str]:
        """Return the labels with the known holes, the worst first, and the day up to which they are known."""
        ids = " ".join(hole.id for hole in self.holes.open())
        return dict(zip(HOLES_LABELS, (ids, self.holes.day), strict=True))

    def as_dict(self) -> dict[str, object]:
        """Return the plan as plain data, for `--format json` and the record beside the log."""
        return {
            "cell": self.cell.id,
            "key": self.key,
            "tags": {p: [self.tag(p), self.tag(p, moving=True)] for p in PRODUCTS},
            "triton": self.cell.triton,
            "server": self.server,
            "cuda": self.cuda,
            "driver": self.driver,
            "tried": self.tried,
            "sms": list(self.cell.sms),
            "families": list(self.families),
            "base": {
                **asdict(replace(self.base, local=None, debian=None)),
                "debian": self.base.snapshot or None,
            },
            "sources": [s.record() for s in self.sources],
            "patches": [p.record() for p in self.patches],
            "trees": [asdict(t) for t in self.trees],
            "environment": dict(self.toolchain.environment()),
            "arguments": self.arguments(),
            "labels": {p: self.labels(p) for p in PRODUCTS},
            "files": {f.role: {"path": str(f.path), "sha256": f.sha256} for f in self.files},
            "wheels": [asdict(w) for w in self.wheels],
            **({"objects": self.objects} if self.objects else {}),
        }


def make_plan(config: Config, cell: Cell, revision: Revision) -> Plan:
    """Make the plan of one cell.

    Raises PinError where the lock lacks a pin or a requirement its hash, PatchError where the series is
    malformed, ConfigError where a file that the recipe names is missing.
    """
    base = config.bases.bases[cell.base]
    release = config.matrix.releases[cell.triton]
    _require_sources(config, cell.triton)
    planned_sources = tuple(_sources(config, cell, base))
    versions = {s.repository: s.version for s in planned_sources}
    patches = tuple(_patches(config, versions))
    cuda = matrix.cuda_version(config, cell)
    toolchain = cmake.Toolchain(*base.host_compiler, cuda)
    files = tuple(recipe.files(config, base))
    draft = Plan(
        cell=cell,
        image=config.matrix.image,
        server=base.server or release.server,
        cuda=cuda,
        driver=base.driver or release.driver,
        tried=matrix.tried(config, cell),
        base=_base(config, cell, base, files, tuple(_compiled(planned_sources, patches))),
        sources=planned_sources,
        patches=patches,
        toolchain=toolchain,
        toolchain_packages=base.toolchain_packages,
        wheel_libraries=base.wheel_libraries,
        families=config.models.served(versions["ft"] or ""),
        trees=cmake.trees(cell.sms, versions["ft"] or "", versions["backend"] or "", toolchain),
        files=files,
        wheels=tuple(_wheels(base, files)),
        wheel_options=requirements.pip_options(base),
        revision=revision,
        objects=config.lock.objects.get(cell.id, ""),
    )
    known = holes.known(
        config.holes, _contents(draft), local=base.local is not None, patches=draft.patch_names()
    )
    return replace(draft, holes=known, key=input_key(draft))


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


def _patches(config: Config, versions: Mapping[str, str | None]) -> Iterator[PlannedPatch]:
    for component, entries in series.read_series(config).items():
        for entry in series.applicable(entries, versions.get(component) or ""):
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
    yield from (_source_key(source) for source in compiled.values())
    yield from (_patch_key(patch) for patch in patches if patch.component in compiled)


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
        return PlannedBase(cell.base, pinned, pinned, digest, None, origin, None, base.architecture)
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
    )


def input_key(draft: Plan) -> str:
    """Return the key of everything that decides the images of a plan, their labels included.

    Left out are the image's name, which stands beside the key in every tag, the places that inputs come
    from, and what decides the tests but not the image.
    """
    base = draft.base
    return digest_of(
        {
            "recipe": RECIPE,
            "cell": asdict(draft.cell),
            "versions": [draft.server, draft.cuda, draft.driver],
            "base": [base.name, base.serving, base.devel, base.digest, *_architecture_key(base)],
            "sources": [_source_key(source) for source in draft.sources],
            "patches": [_patch_key(patch) for patch in draft.patches],
            "trees": [
                [t.name, t.source, [[o.name, o.value] for o in t.options], t.targets] for t in draft.trees
            ],
            "environment": dict(draft.toolchain.environment()),
            "packages": [draft.toolchain_packages, draft.wheel_libraries],
            "files": [[f.role, f.sha256] for f in draft.files],
        }
    )


def _architecture_key(base: PlannedBase) -> list[str]:
    """Return what decides an image where a digest may not (OCI image-spec, image-index.md)."""
    return [] if base.architecture == DEFAULT else [base.architecture]


def _source_key(source: PlannedSource) -> list[object]:
    s = source
    place = ["server"] if s.server else []
    return [s.repository, s.path, s.commit, s.tree, s.sparse, s.without, s.version, *place]


def _patch_key(patch: PlannedPatch) -> list[object]:
    return [patch.component, patch.file, patch.fingerprint, patch.origin]


def digest_of(data: object) -> str:
    """Return the first 12 hex digits of the sha256 of `data` as canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]
