"""The figures of docs/2026.md, against the records of benchmarks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from testing import ROOT

from .test_facts import table

PAGE = (ROOT / "docs" / "2026.md").read_text()
MODELS = {
    "GPT-2 XL's size": "gpt",
    "GPT-J 6B": "gptj",
    "GPT-NeoX, Pythia 6.9B": "gptneox",
    "T5-3B": "t5",
}


def figures(record: str) -> list[dict[str, Any]]:
    content = json.loads((ROOT / "benchmarks" / "results" / f"{record}-real.json").read_text())
    found: list[dict[str, Any]] = content["figures"]
    return found


def figure(record: str, what: str) -> dict[str, Any] | None:
    """The one figure whose description ends so."""
    found = [each for each in figures(record) if each["what"].endswith(what)]
    assert len(found) < 2
    return found[0] if found else None


def ratio(record: str, what: str) -> str:
    found = figure(record, what)
    if found is None:
        return ""
    return f"{found['value']:.2f} ({found['least']:.2f} to {found['most']:.2f})"


def expected() -> Iterator[dict[str, str]]:
    for model, family in MODELS.items():
        for prompt in (128, 1024):
            for batch in (1, 8):
                of = f"batch {batch}, 128 after {prompt}: tokens/s of FasterTransformer"
                engines = {
                    f"of {engine}'s": ratio(f"inference-{family}", f"{of} / {engine}")
                    for engine in ("vLLM", "CTranslate2")
                }
                yield {"model": model, "prompt": str(prompt), "batch": str(batch), **engines}


def test_the_ratios_are_those_of_the_records() -> None:
    assert table(PAGE, "| model | prompt | batch |") == list(expected())
    versions = {
        word
        for family in MODELS.values()
        for each in figures(f"inference-{family}")
        for word in re.findall(r"started in turn with (\S+ [0-9.]+),", each["how"])
    }
    assert len(versions) == 2
    assert all(version in PAGE for version in versions)


def test_sizes_and_times_are_those_of_the_records() -> None:
    def value(record: str, what: str) -> float:
        found = figure(record, what)
        assert found is not None, what
        return float(found["value"])

    for text in (
        f"| {value('images', 'base with the backend, unpacked') / 1e9:.2f} GB (22.12 for SM 90",
        f"| to pull | {value('images', 'base with the backend, gzip') / 1e9:.2f} GB |",
        f"| {value('inference-gptj', 'time to ready'):.0f} s (GPT-J 6B), ",
        f", {value('inference-t5', 'time to ready'):.0f} s (T5-3B) |",
        f"99th percentile of {1000 * value('load', 'gpt-fp16: latency, 99th percentile'):.0f} ms at a median "
        f"of {1000 * value('load', 'gpt-fp16: latency, median'):.0f} ms",
    ):
        assert text in " ".join(PAGE.split()), text
