"""Options of the acceptance test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ftbuild.client import bleu
from ftbuild.client.connection import Protocol
from ftbuild.config.families import Tensors


@dataclass(frozen=True)
class BleuOptions:
    """Sentences to translate, their translations, and the score to reach (0 to 100)."""

    source: Path
    target: Path
    threshold: float | None = None
    prefix: str = bleu.PREFIX


@dataclass(frozen=True)
class AcceptanceOptions:
    """What to ask, over which protocols (address by protocol); `length` counts tokens of an answer."""

    tensors: Tensors
    addresses: Mapping[Protocol, str]
    batch_size: int = 8
    requests: int = 10
    length: int = 24
    tokenizer: Path | None = None
    expect: Path | None = None
    bleu: BleuOptions | None = None
