"""The index of a registry: every moving tag with its annotations, as JSON and Markdown.

The registry is the only source, so the index is never older than what `docker pull` gets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from packaging.version import Version
from pydantic import BaseModel, Field, StringConstraints, TypeAdapter, ValidationError

from ftbuild.architecture import DEFAULT, Architecture
from ftbuild.config.types import SmNumber, VersionText
from ftbuild.errors import ConfigError, FtbuildError
from ftbuild.host import reading
from ftbuild.input_key import KEY_DIGITS
from ftbuild.plan import LABELS
from ftbuild.publishing import remote_image
from ftbuild.registry.answers import Digest
from ftbuild.registry.client import Manifest, Repository
from ftbuild.registry.malformed import Malformed
from ftbuild.sm import Sm, parse_sms
from ftbuild.text import bounded_json, markdown, tables, terminal
from ftbuild.text.reporter import Reporter, to_stderr
from ftbuild.text.units import MIB

# Base, what is left out and image kind may follow the SMs. A key may not.
_KEY = f"[0-9a-f]{{{KEY_DIGITS}}}(?:-|$)"
_MOVING = re.compile(rf"\d\d\.\d\d-sm\d+(?:_\d+)*(?:-(?!{_KEY})[a-z0-9_]+)*")
# Whatever an id says that it leaves out, known here or not.
_LEAN = re.compile(r"-(?:without|heads)-")
# An image takes some 1000 bytes.
MAX_BYTES = 16 * MIB
# Annotations are set by whoever may push: nothing that a terminal or Markdown would act on gets through.
Word = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_.:/-]{1,255}$")]
Sentence = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_.,:;/ -]{0,255}$")]
Number = Annotated[VersionText, StringConstraints(pattern=r"^[0-9][A-Za-z0-9.+-]{0,49}$")]


@dataclass(frozen=True)
class Entry:
    """One published image: its moving tag, the digest behind it, and the machines that run it."""

    name: Word
    tag: Word
    digest: Digest
    product: Annotated[str, StringConstraints(pattern=r"^(?:runtime|sdk)$")]
    cell: Word
    key: Word
    base: Word
    triton: Number
    server: Number
    cuda: Number
    driver: Number
    sms: Annotated[tuple[SmNumber, ...], Field(min_length=1, max_length=100, fail_fast=True)]
    # Images of before this label have none.
    tried: Sentence = ""
    architecture: Architecture = DEFAULT

    @property
    def pull(self) -> str:
        """Return the command that pulls this image by digest."""
        return f"docker pull {self.name}@{self.digest}"

    @property
    def is_whole(self) -> bool:
        """Whether it leaves nothing out, as its cell is called."""
        return not _LEAN.search(self.cell)

    def runs_on(self, sm: Sm) -> bool:
        """Return whether it has machine code for a GPU of this SM."""
        return any(code.runs_on(sm) for code in self.sms)


_ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)


class _File(BaseModel):
    """The part of an index.json that the tables are made from."""

    images: Annotated[tuple[Entry, ...], Field(max_length=10_000, fail_fast=True)]


def read(repository: Repository, report: Reporter = to_stderr) -> tuple[Entry, ...]:
    """Return the images behind all moving tags, by tag; one that is not as ftbuild sets it is left out."""
    found: list[Entry] = []
    for tag in sorted(tag for tag in repository.tags() if _MOVING.fullmatch(tag)):
        try:
            manifest = repository.manifest(tag)
            found += _entries(repository.name, tag, manifest) if manifest else []
        except (Malformed, ValueError) as odd:
            why = f"{odd.what}: {odd.where}" if isinstance(odd, Malformed) else str(odd)
            report(f"{tag} is left out of the index: {terminal.printable(why[:300])}")
    return tuple(found)


def fitting(
    entries: Iterable[Entry], sm: Sm, product: str = "runtime", architecture: Architecture = DEFAULT
) -> list[Entry]:
    """Return the images for a GPU of this SM: those compiled for it first, then the newest release.

    One that leaves something out comes after all others that are compiled for it. Of several, the one with
    the fewest SMs comes first, then by name.
    """
    here = (entry for entry in entries if (entry.product, entry.architecture) == (product, architecture))
    fit = [entry for entry in here if entry.runs_on(sm)]
    fit.sort(key=lambda e: (len(e.sms), e.name, e.tag))
    return sorted(fit, key=lambda e: (sm in e.sms, e.is_whole, Version(e.triton)), reverse=True)


def as_json(entries: Sequence[Entry], sms: Iterable[Sm]) -> str:
    """Return `images`, and `gpus`: compute capability -> the names that fit, best first."""
    gpus = {
        name: [f"{e.name}:{e.tag}@{e.digest}" for e in fit] for name, fit in _by_gpu(entries, sms).items()
    }
    return json.dumps({"images": [asdict(entry) for entry in entries], "gpus": gpus}, indent=2) + "\n"


def from_json(text: str) -> tuple[Entry, ...]:
    """Read what `as_json` wrote; ValueError for anything else."""
    return bounded_json.model(_File, text.encode()).images


def as_markdown(entries: Sequence[Entry], sms: Iterable[Sm]) -> str:
    """Return two tables: the image for each GPU, and all images."""
    gpus = [(name, *_best(fit)) for name, fit in _by_gpu(entries, sms).items()]
    images = [
        (
            f"`{e.tag}`",
            *map(markdown.escaped, (e.product, e.server, e.cuda, e.driver, e.base, e.tried)),
            f"`{e.digest}`",
        )
        for e in entries
    ]
    titles = ("Tag", "Kind", "Server", "CUDA", "Driver from", "Base", "Run on", "Digest")
    return "\n".join(
        [
            "# Images",
            "",
            "## Which image for my GPU?",
            "",
            markdown.table(("Compute capability", "Image", "Driver from", "Pull"), gpus),
            "",
            "## All images",
            "",
            markdown.table(titles, images),
            "",
        ]
    )


def _by_gpu(entries: Sequence[Entry], sms: Iterable[Sm]) -> dict[str, list[Entry]]:
    """Return compute capability -> fitting images; those of another architecture stand under `9.0 arm64`."""
    sms = tuple(sms)
    found = {sm.capability: fitting(entries, sm) for sm in sms}
    for name in sorted({entry.architecture for entry in entries} - {DEFAULT}):
        others = {f"{sm.capability} {name}": fitting(entries, sm, architecture=name) for sm in sms}
        found |= {gpu: fit for gpu, fit in others.items() if fit}
    return found


def _best(fit: Sequence[Entry]) -> tuple[str, str, str]:
    return (f"`{fit[0].tag}`", fit[0].driver, f"`{fit[0].pull}`") if fit else ("none", "", "")


def _entries(name: str, tag: str, manifest: Manifest) -> Iterator[Entry]:
    """Yield the entry of a tag that ftbuild has set; others lack its annotations."""
    annotations = manifest.content.annotations or {}
    values = {
        key.removeprefix(f"{LABELS}."): value for key, value in annotations.items() if key.startswith(LABELS)
    }
    wanted = ("product", "cell", "key", "base", "triton", "server", "cuda", "driver")
    if not {*wanted, "sm"} <= values.keys():
        return
    remote_image.only_image(manifest, "its index")
    there = (key for key in (*wanted, "tried", "architecture") if key in values)
    found: dict[str, Any] = {key: values[key] for key in there}
    try:
        sms = parse_sms(values["sm"])
    except ConfigError as odd:
        raise ValueError(odd.what) from odd
    place = {"name": name, "tag": tag, "digest": manifest.descriptor.digest}
    try:
        yield _ENTRY.validate_python({**place, **found, "sms": sms})
    except ValidationError as odd:
        first = odd.errors()[0]
        raise ValueError(f"its annotation {first['loc'][0]} is {first['input']!a}"[:200]) from None


def from_file(file: Path) -> tuple[Entry, ...]:
    """Read an index.json; ConfigError if it cannot be read."""
    try:
        return from_json(reading.read_text(file, max_bytes=MAX_BYTES))
    except (FtbuildError, bounded_json.Unfit) as wrong:
        why = wrong.what if isinstance(wrong, FtbuildError) else wrong
        raise ConfigError(
            "the index cannot be read",
            where=f"{file}: {why}",
            hint="invoke publish writes index.json; without --index the registry is queried",
        ) from wrong


def answer(sm: Sm, fit: Sequence[Entry], driver: str) -> str:
    """Return the images for an SM as a table; `driver` is the version on this machine, if any."""
    head = f"compute capability {sm.capability}" + (f", driver {driver}" if driver else "")
    rows = []
    for entry in fit:
        too_old = driver and Version(driver) < Version(entry.driver)
        needs = f"driver {entry.driver}" + (", newer than the installed one" if too_old else "")
        holds = f"server {entry.server}, CUDA {entry.cuda}"
        rows.append((entry.tag, holds, needs, entry.tried, entry.pull))
    return (
        f"{head}\n{tables.render(('Image', 'Holds', 'Needs', 'Run on', 'Get it'), rows)}"
        if rows
        else f"{head}: none"
    )
