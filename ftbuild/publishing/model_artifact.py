"""Model repositories in an OCI registry: pushed as an image of nothing but files, pulled by digest.

The layout is that of an image (image-spec v1.1, manifest.md and layer.md), so that a container runtime mounts
it as a volume (Kubernetes' image volumes, Docker's mounts of the type image), and `oras pull` fetches its
layers as files. The repository is in the folder `models` of the image, as in KServe's modelcars.
"""

from __future__ import annotations

import io
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from ftbuild.errors import ConfigError, PublishError
from ftbuild.host import archives, disk
from ftbuild.publishing.attest.manifests import canonical
from ftbuild.publishing.signing import KeySigner, Signer
from ftbuild.registry.answers import Part
from ftbuild.registry.client import Manifest, Repository, digest_of
from ftbuild.text.reporter import Reporter
from ftbuild.text.units import size

ARTIFACT = "application/vnd.ftbuild.model-repository.v1"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
# Weights do not compress.
LAYER = "application/vnd.oci.image.layer.v1.tar"
TITLE = "org.opencontainers.image.title"
FOLDER = "models"
SCHEME = "oci://"
# A layer is in memory while it is sent. Storage drivers take some 120 layers.
LAYER_BYTES, MAX_LAYERS = 512 * 2**20, 100
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class Place:
    """Where a model repository is in a registry: `repository` as images are named, with a tag or a digest."""

    repository: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Place:
        """Return the place that `oci://HOST/PATH[:TAG][@DIGEST]` names; ConfigError for anything else."""
        name, at, digest = text.removeprefix(SCHEME).partition("@")
        head, slash, last = name.rpartition("/")
        last, colon, tag = last.partition(":")
        right = text.startswith(SCHEME) and slash and last and bool(at) == bool(_DIGEST.fullmatch(digest))
        if not right or (colon and not _TAG.fullmatch(tag)):
            raise ConfigError(
                f"{text[:200]!r} is no place in a registry",
                hint="oci://HOST/PATH:TAG to push, oci://HOST/PATH@sha256:DIGEST to pull",
            )
        return cls(f"{head}/{last}", tag, digest)

    @property
    def pinned(self) -> str:
        """The name by digest, as container runtimes take it; ConfigError without a digest."""
        if not self.digest:
            raise ConfigError(
                f"{SCHEME}{self.repository} has no digest: a tag may name another repository tomorrow",
                hint="invoke model-repo.push prints it: oci://HOST/PATH@sha256:DIGEST",
            )
        return f"{self.repository}@{self.digest}"


class PublicKey(KeySigner):
    """The public half of a key, in a file: it recognises signatures, and makes none."""

    hint = "--verify-key is the public key of whoever pushed it; --no-sign-log if the log has no entry"

    @cached_property
    def public_key(self) -> str:
        """Return the key; ConfigError where there is none."""
        try:
            return Path(self.key).read_text(encoding="utf-8")
        except (OSError, ValueError) as wrong:
            raise ConfigError("the public key cannot be read", where=self.key) from wrong


def push(folder: Path, place: Place, signer: Signer | None, report: Reporter) -> str:
    """Push a model repository and sign it; return `oci://HOST/PATH@DIGEST`.

    The same files give the same digest. Layers that the registry has are not sent again. Raises ConfigError
    for a folder that is no model repository, PublishError where the registry refuses.
    """
    if place.digest:
        raise ConfigError("what is pushed gets its digest from its content", hint="oci://HOST/PATH:TAG")
    files = _files(folder)
    repository = Repository(place.repository)
    layers, diffs = [], []
    parts = list(_divided(files))
    for number, part in enumerate(parts):
        content = _layer(folder, part, _folders(folder) if number == 0 else ())
        name = f"{FOLDER}-{number:03}.tar"
        report(f"{name}: {size(len(content))}, {number + 1} of {len(parts)}")
        sent = repository.put_blob(content, LAYER)
        layers.append({**sent.as_dict(), "annotations": {TITLE: name}})
        diffs.append(sent.digest)
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": diffs}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": ARTIFACT,
        "config": repository.put_blob(canonical(config), CONFIG).as_dict(),
        "layers": layers,
        "annotations": {TITLE: FOLDER, "io.ftbuild.models": ",".join(_models(folder))},
    }
    raw = canonical(manifest)
    digest = digest_of(raw)
    repository.put_manifest(place.tag or digest, raw, MANIFEST)
    name = f"{place.repository}@{digest}"
    if signer:
        signer.sign(name, report)
    return f"{SCHEME}{name}"


def pull(place: Place, out: Path, signer: Signer | None, report: Reporter) -> None:
    """Fetch a model repository into a folder that does not exist yet.

    Everything is compared with its digest before the folder appears; with a `signer`, the signature too.
    Raises ConfigError for a place without a digest or a folder that is there, PublishError for what is no
    model repository, is not signed, or has changed.
    """
    name = place.pinned
    if out.exists():
        raise ConfigError("the folder to write exists already", where=str(out), hint="another --out")
    repository = Repository(place.repository)
    manifest = repository.manifest(place.digest)
    if manifest is None:
        raise PublishError("the registry has no such model repository", where=name)
    layers = _layers(manifest)
    if signer and not signer.has_signed(name, report):
        raise PublishError("the model repository is not signed by this key", where=name, hint=signer.hint)
    disk.require(out, 2 * sum(layer.size for layer in layers), f"pulling {name}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".ftbuild-pull-") as scratch:
        for number, layer in enumerate(layers):
            report(f"layer {number + 1} of {len(layers)}: {size(layer.size)}")
            _unpack(repository, layer, Path(scratch))
        found = Path(scratch) / FOLDER
        if not found.is_dir():
            raise PublishError("there are no models in it", where=name)
        shutil.move(found, out)


def _files(folder: Path) -> list[tuple[str, int]]:
    """Return the files of a model repository below its folder, sorted, with their sizes."""
    found = sorted(folder.rglob("*")) if folder.is_dir() else []
    if not _models(folder):
        raise ConfigError(
            "no model repository", where=str(folder), hint="a folder that invoke model-repo wrote"
        )
    for path in found:
        if path.is_symlink() and (path.is_dir() or not path.resolve().is_relative_to(folder.resolve())):
            raise ConfigError(
                "a link to a folder, or out of the model repository",
                where=str(path),
                hint="cp -rL copies what links lead to",
            )
        if not path.is_dir() and not path.is_file():
            raise ConfigError("neither a file nor a folder", where=str(path))
    files = (path for path in found if path.is_file())
    return [(str(PurePosixPath(path.relative_to(folder))), path.stat().st_size) for path in files]


def _folders(folder: Path) -> list[str]:
    """Return all folders, empty ones too: Triton finds the versions of a model by theirs."""
    return sorted(str(PurePosixPath(path.relative_to(folder))) for path in folder.rglob("*") if path.is_dir())


def _models(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/config.pbtxt") if path.is_file())


def _divided(files: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Yield the files of each layer: few enough layers, none larger than it has to be."""
    most = max(LAYER_BYTES, sum(count for _, count in files) // MAX_LAYERS)
    part, held = list[str](), 0
    for name, count in files:
        if part and held + count > most:
            yield part
            part, held = [], 0
        part.append(name)
        held += count
    yield part


def _layer(folder: Path, names: Sequence[str], folders: Sequence[str]) -> bytes:
    """Return files and folders as a tar archive that depends on their names and contents alone."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        above = {str(parent) for name in names for parent in PurePosixPath(FOLDER, name).parents} - {"."}
        for name in sorted(above | {f"{FOLDER}/{name}" for name in folders}):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name in names:
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.mode, entry.size = 0o644, (folder / name).stat().st_size
            try:
                with (folder / name).open("rb") as file:
                    archive.addfile(entry, file)
            except OSError as wrong:
                raise ConfigError(f"cannot be read, or changes meanwhile: {wrong}", where=name) from wrong
    return content.getvalue()


def _layers(manifest: Manifest) -> list[Part]:
    """Return the layers of a manifest; PublishError if it is that of something else."""
    layers = manifest.content.layers or []
    if not layers or any(layer.media_type != LAYER for layer in layers):
        raise PublishError(
            "this is no model repository that invoke model-repo.push made", where=manifest.descriptor.digest
        )
    return layers


def _unpack(repository: Repository, layer: Part, folder: Path) -> None:
    """Fetch a layer, compare it with its digest, then unpack it."""
    with tempfile.TemporaryFile(dir=folder) as content:
        for piece in repository.pieces(layer):
            content.write(piece)
        content.seek(0)
        try:
            archives.unpack(content, folder)
        except (archives.Unsound, OSError) as wrong:
            raise PublishError(f"a layer cannot be unpacked: {wrong}", where=layer.digest) from wrong
