"""Plans: everything that decides an image, and nothing of a machine; ftbuild/planning.py makes them.

A plan is closed: it holds pins, diffs and the bytes of recipe files, so that later steps (staging, bake,
verify) need a plan and a place, and what is edited after it was made changes nothing of its build. Two plans
with the same input key give the same image.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path

from ftbuild import cmake
from ftbuild.architecture import DEFAULT, Architecture, platform
from ftbuild.config.bases import LocalBase
from ftbuild.config.debian import LockedDebian
from ftbuild.config.holes import Known
from ftbuild.config.recipe import RecipeFile
from ftbuild.matrix import Cell
from ftbuild.sm import sm_list
from ftbuild.sources.inputs import PlannedPatch, PlannedSource

# The names of bases that are built here begin with this.
BASE = "ftbuild-base-"
LABELS = "io.ftbuild"
HOLES_LABELS = (f"{LABELS}.holes", f"{LABELS}.holes-known")
# The OCI has no key of its own for it, and reserves its prefix (image-spec v1.1, annotations.md, "Rules").
SUPPORT_LABEL = f"{LABELS}.support-end"
PRODUCTS = ("runtime", "sdk")
# The roles of wheels that stay in images; those of the others compile.
IN_IMAGES = ("server", *PRODUCTS)
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
    # Free disk that the build of a cell, or of this base, starts with.
    cell_gib: int = 0
    base_gib: int = 0

    @property
    def platform(self) -> str:
        """Return the platform of its images, and of those made on it: `linux/amd64`."""
        return platform(self.architecture)

    @property
    def tools(self) -> str:
        """Return the name of the image with those tools of `devel` that verify needs; "" of a registry's."""
        return f"{self.serving}-tools" if self.local else ""

    @property
    def snapshot(self) -> str:
        """Return the time of the Debian archive that its packages are from; "" for a registry's image."""
        return self.debian.snapshot if self.debian else ""

    @property
    def other_architecture(self) -> tuple[str, ...]:
        """Return what decides an image where a digest may not (OCI image-spec, image-index.md)."""
        return () if self.architecture == DEFAULT else (self.architecture,)


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
    sdk_without: tuple[str, ...]
    families: tuple[str, ...]
    trees: tuple[cmake.Tree, cmake.Tree]
    files: tuple[RecipeFile, ...]
    wheels: tuple[PlannedWheel, ...]
    # Options by which pip finds the wheels for the base's Python, on this machine's.
    wheel_options: tuple[str, ...]
    revision: Revision
    # Like the revision, no part of the input key: what is learnt of an image does not change it.
    holes: Known = field(default_factory=Known)
    # By product, what its image may weigh, unpacked; verify compares it.
    max_bytes: Mapping[str, int] = field(default_factory=dict)
    # The objects that the lock has, `repository@digest`; no part of the key, as compiling gives the same.
    objects: str = ""
    # The last day on which such images get fixes; "": none is promised, as on a base of another publisher.
    support_end: str = ""
    # Of the layers in a registry: zstd or gzip; no part of the key, as what they unpack to is the same.
    compression: str = "zstd"
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
            "SDK_WITHOUT": " ".join(self.sdk_without),
            "ABOUT": self.about(),
        }

    def about(self) -> str:
        """Return in a line what an image says of itself when it is run without a command."""
        return (
            f"{self.cell.id}: Triton Inference Server {self.server} with the FasterTransformer backend "
            f"{self.source('backend').version}, for GPUs of SM {sm_list(self.cell.sms)}, CUDA {self.cuda}, "
            f"driver {self.driver} or later"
            + "".join(f"; {what}" for what in self.cell.left_out.short())
            + (f"; fixes until {self.support_end}" if self.support_end else "")
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
            **{f"{LABELS}.architecture": name for name in self.base.other_architecture},
            f"{LABELS}.triton": self.cell.triton,
            f"{LABELS}.server": self.server,
            f"{LABELS}.cuda": self.cuda,
            f"{LABELS}.driver": self.driver,
            f"{LABELS}.tried": self.tried,
            f"{LABELS}.sm": sms,
            **self.cell.left_out.labels(LABELS),
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
            SUPPORT_LABEL: self.support_end,
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
            "support_end": self.support_end,
            "sms": list(self.cell.sms),
            **self.cell.left_out.record(),
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
            "max_bytes": dict(self.max_bytes),
            "labels": {p: self.labels(p) for p in PRODUCTS},
            "files": {f.role: {"path": str(f.path), "sha256": f.sha256} for f in self.files},
            "wheels": [asdict(w) for w in self.wheels],
            **({"objects": self.objects} if self.objects else {}),
        }
