"""The index of a registry: every moving tag with its annotations, as JSON and Markdown.

The registry is the only source, so the index is never older than what `docker pull` gets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from ftbuild.errors import ConfigError
from ftbuild.plan import KEY_DIGITS, LABELS
from ftbuild.registry.client import Manifest, Repository
from ftbuild.sm import Sm, parse_sms
from ftbuild.text import tables

# Base and image kind may follow the SMs. A key, whose first digit may also be a letter, may not.
_KEY = f"[0-9a-f]{{{KEY_DIGITS}}}(?:-|$)"
_MOVING = re.compile(rf"\d\d\.\d\d-sm\d+(?:_\d+)*(?:-(?!{_KEY})[a-z][a-z0-9]*)*")


@dataclass(frozen=True)
class Entry:
    """One published image: its moving tag, the digest behind it, and the machines that run it."""

    name: str
    tag: str
    digest: str
    product: str
    cell: str
    key: str
    base: str
    triton: str
    server: str
    cuda: str
    driver: str
    sms: tuple[Sm, ...]

    @property
    def pull(self) -> str:
        """Return the command that pulls this image by digest."""
        return f"docker pull {self.name}@{self.digest}"

    def runs_on(self, sm: Sm) -> bool:
        """Return whether it has machine code for a GPU of this SM."""
        return any(code.runs_on(sm) for code in self.sms)


def read(repository: Repository) -> tuple[Entry, ...]:
    """Return the images behind all moving tags, by tag."""
    tags = sorted(tag for tag in repository.tags() if _MOVING.fullmatch(tag))
    manifests = ((tag, repository.manifest(tag)) for tag in tags)
    return tuple(
        entry for tag, found in manifests if found for entry in _entries(repository.name, tag, found)
    )


def fitting(entries: Iterable[Entry], sm: Sm, product: str = "runtime") -> list[Entry]:
    """Return the images for a GPU of this SM: those compiled for it first, then the newest release."""
    fit = [entry for entry in entries if entry.product == product and entry.runs_on(sm)]
    return sorted(fit, key=lambda e: (sm in e.sms, Version(e.triton), -len(e.sms)), reverse=True)


def as_json(entries: Sequence[Entry], sms: Iterable[Sm]) -> str:
    """Return `images`, and `gpus`: compute capability -> the names that fit, best first."""
    gpus = {sm.capability: [f"{e.name}:{e.tag}@{e.digest}" for e in fitting(entries, sm)] for sm in sms}
    return json.dumps({"images": [asdict(entry) for entry in entries], "gpus": gpus}, indent=2) + "\n"


def from_json(text: str) -> tuple[Entry, ...]:
    """Read what `as_json` wrote; ValueError for anything else."""
    try:
        return tuple(
            Entry(**{**image, "sms": tuple(map(Sm, image["sms"]))}) for image in json.loads(text)["images"]
        )
    except (KeyError, TypeError) as strange:
        raise ValueError(f"not an index of images: {strange}") from strange


def as_markdown(entries: Sequence[Entry], sms: Iterable[Sm]) -> str:
    """Return two tables: the image for each GPU, and all images."""
    gpus = [_row(sm.capability, *_best(fitting(entries, sm))) for sm in sms]
    images = [
        _row(f"`{e.tag}`", e.product, e.server, e.cuda, e.driver, e.base, f"`{e.digest}`") for e in entries
    ]
    return "\n".join(
        [
            "# Images",
            "",
            "## Which image for my GPU?",
            "",
            _row("Compute capability", "Image", "Driver from", "Pull"),
            _row(*["---"] * 4),
            *gpus,
            "",
            "## All images",
            "",
            _row("Tag", "Kind", "Server", "CUDA", "Driver from", "Base", "Digest"),
            _row(*["---"] * 7),
            *images,
            "",
        ]
    )


def _best(fit: Sequence[Entry]) -> tuple[str, str, str]:
    return (f"`{fit[0].tag}`", fit[0].driver, f"`{fit[0].pull}`") if fit else ("none", "", "")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _entries(name: str, tag: str, manifest: Manifest) -> Iterator[Entry]:
    """Yield the entry of a tag that ftbuild has set; others lack its annotations."""
    annotations: dict[str, Any] = manifest.content.get("annotations") or {}
    own = {key: value for key, value in annotations.items() if key.startswith(LABELS)}
    values = {key.removeprefix(f"{LABELS}."): value for key, value in own.items()}
    wanted = ("product", "cell", "key", "base", "triton", "server", "cuda", "driver")
    if not {*wanted, "sm"} <= values.keys():
        return
    found = {key: values[key] for key in wanted}
    yield Entry(name, tag, manifest.descriptor.digest, **found, sms=parse_sms(values["sm"]))


def from_file(file: Path) -> tuple[Entry, ...]:
    """Read an index.json; ConfigError if it cannot be read."""
    try:
        return from_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as unreadable:
        raise ConfigError(
            "the index cannot be read",
            where=f"{file}: {unreadable}",
            hint="invoke publish writes index.json; without --index the registry is queried",
        ) from unreadable


def answer(sm: Sm, fit: Sequence[Entry], driver: str) -> str:
    """Return the images for an SM as a table; `driver` is the version on this machine, if any."""
    from packaging.version import Version

    head = f"compute capability {sm.capability}" + (f", driver {driver}" if driver else "")
    rows = []
    for entry in fit:
        too_old = driver and Version(driver) < Version(entry.driver)
        needs = f"driver {entry.driver}" + (", newer than the installed one" if too_old else "")
        rows.append((entry.tag, f"server {entry.server}, CUDA {entry.cuda}", needs, entry.pull))
    return (
        f"{head}\n{tables.render(('Image', 'Holds', 'Needs', 'Get it'), rows)}" if rows else f"{head}: none"
    )
