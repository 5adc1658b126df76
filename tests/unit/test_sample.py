"""The sample stack: its bases, and the script that makes its checkpoints and says what they must answer."""

from __future__ import annotations

import importlib.util
import json
import math
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.matrix import select
from ftbuild.sources import requirements
from testing import ROOT
from testing.sample import SAMPLE

SCRIPT = ROOT / "sample" / "reference.py"
CASES = {
    "two": {"prompts": [[1, 2, 3], [7]], "length": 5, "beams": 1},
    "beams": {"prompts": [[7]], "length": 5},
}


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sample() -> Config:
    return loader.load(SAMPLE)


def test_a_base_of_the_sample_is_the_real_one_but_for_fewer_wheels(sample: Config, config: Config) -> None:
    same = ("cuda", "server", "driver", "releases", "host_compiler", "python", "manylinux", "source")
    for name, base in sample.bases.bases.items():
        real = config.bases.bases[name]
        assert [getattr(base, key) for key in same] == [getattr(real, key) for key in same]
        assert base.local is not None
        assert real.local is not None
        assert base.local.debian == real.local.debian
        assert sample.path(base.local.dockerfile) == config.path(real.local.dockerfile)
        theirs = real.requirements_by_role()
        for role, relative in base.requirements_by_role().items():
            fewer = requirements.read(sample.path(relative)).locked()
            assert {*fewer} <= {*requirements.read(config.path(theirs[role])).locked()}, (name, role)


def test_the_cells_of_each_release_stand_on_its_base(sample: Config) -> None:
    every = {(cell.triton, cell.base, *cell.sms) for cell in select(sample)}
    releases = sample.matrix.releases.items()
    assert every == {(name, release.base, sm) for name, release in releases for sm in release.default_sms}
    (cell,) = select(sample, bases=["open-cuda13"])
    assert cell.id == "24.10-sm120"


def tensors(folder: Path) -> dict[str, tuple[list[int], tuple[float, ...]]]:
    """Shape and values of each tensor in model.safetensors, by name."""
    raw = (folder / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    found = {}
    for name, entry in json.loads(raw[8:start]).items():
        first, last = entry["data_offsets"]
        values = struct.unpack(f"<{(last - first) // 4}f", raw[start + first : start + last])
        found[name] = (entry["shape"], values)
    return found


@pytest.mark.parametrize(
    ("family", "positions"), [("gpt", 512), ("gptj", None), ("gptneox", None), ("t5", None)]
)
def test_the_script_alone_writes_a_checkpoint_and_the_answers(
    family: str, positions: int | None, reference: ModuleType, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_bytes(SCRIPT.read_bytes())
    (tmp_path / "cases.json").write_text(json.dumps({"cases": CASES}))
    command = [sys.executable, "-I", "script.py", family, "checkpoint", "cases.json", "answers.json"]
    subprocess.run(command, cwd=tmp_path, check=True)

    answers = json.loads((tmp_path / "answers.json").read_text())
    rows = answers.pop("cases")
    assert answers == {
        "vocab_size": 258,
        "end_id": 257,
        "start_id": 256,
        "max_length": positions,
        "layers": 2,
    }
    checkpoint = reference.make()
    assert rows["two"] == [vars(reference.greedy(checkpoint, last, 5)) for last in (3, 7)]
    assert rows["beams"] == rows["two"][1:]
    written = tensors(tmp_path / "checkpoint")
    assert len(written) == 2 + answers["layers"]
    assert all(math.prod(shape) == len(values) for shape, values in written.values())
    table = next(iter(written.values()))
    assert table == ([258, 16], tuple(value for row in checkpoint.table for value in row))


def test_log_probs_runners_up_and_gaps_are_those_of_the_logits(reference: ModuleType) -> None:
    checkpoint = reference.make()
    row = reference.greedy(checkpoint, 3, 8)
    for last, token, log_prob, second, gap in zip(
        [3, *row.tokens], row.tokens, row.log_probs, row.runner_up, row.gap, strict=False
    ):
        scores = reference.logits(checkpoint, last)
        total = sum(math.exp(score) for score in scores)
        assert log_prob == pytest.approx(math.log(math.exp(scores[token]) / total))
        assert scores[token] - scores[second] == gap
        assert sorted(scores)[-2:] == [scores[second], scores[token]]


def test_every_token_has_one_best_successor_and_the_weights_fit_fp16(reference: ModuleType) -> None:
    checkpoint = reference.make()
    assert min(reference.greedy(checkpoint, token, 1).gap[0] for token in range(258)) > 0
    matrices = [checkpoint.table, *checkpoint.layers, checkpoint.lm_head]
    for value in (value for matrix in matrices for row in matrix for value in row):
        assert struct.unpack("<e", struct.pack("<e", value)) == (value,)


def test_an_answer_ends_with_the_end_token(reference: ModuleType) -> None:
    checkpoint = reference.make()
    first, second, _ = reference.greedy(checkpoint, 3, 3).tokens
    row = reference.greedy(checkpoint, 3, 3, end_id=second)
    assert row.tokens == [first, second]
    assert len(row.log_probs) == len(row.runner_up) == len(row.gap) == 2
