"""GPT with a mixture of experts: its formulas, its files, and the patched loader that reads them. No GPU."""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftbuild.client import golden
from ftbuild.models import config_ini
from testing import expert_gpt, needs
from testing.expert_gpt import EXAMPLES, Shape

from .ft_gpt import Gpt

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]
SMALL = Shape(layers=2, mixed=(0,), experts=4, chosen=4)
PROGRAM = Path(__file__).parent / "programs/gpt_experts"
TOKENS = (3, 1, 4, 1, 5, 9, 2, 6)
# fp16 is off by some 0.05 in these logits, by 0.02 in those of gates; bf16 by at most eight times as much.
CLEAR, CLEAR_IN_BF16 = 0.1, 0.2
COUNTS = "refused config.ini: expert_num must be 2 or more, and moe_k 1 to expert_num."
LACKS = "refused config.ini: moe_layers names a layer that the model lacks."


def computed(shape: Shape, found: Weights, gpus: int = 1, *, int8: bool = False) -> Array:
    with tempfile.TemporaryDirectory() as folder:
        return Gpt(expert_gpt.write(Path(folder), shape, found, gpus), int8=int8).logits(TOKENS)


def dense(found: Weights, factor: float = 1) -> Weights:
    """The weights of a model without a mixture, whose networks are the first experts, times a factor."""
    first = {
        name.replace(".moe.experts", ""): value[0] if ".moe.experts" in name else value
        for name, value in found.items()
        if ".gate." not in name
    }
    return {
        name: value * factor if name.startswith("layers.0.mlp.dense_4h_to_h") else value
        for name, value in first.items()
    }


def undecided(found: Weights) -> Weights:
    """The same weights with gates that prefer no expert."""
    return {name: value * (".gate." not in name) for name, value in found.items()}


def alike(found: Weights) -> Weights:
    """The same weights, with the first expert in place of all."""
    return {
        name: np.broadcast_to(value[:1], value.shape) if ".experts." in name else value
        for name, value in found.items()
    }


def test_equal_experts_that_all_compute_are_one_dense_network() -> None:
    found = alike(expert_gpt.model(SMALL, 1))
    wanted = computed(replace(SMALL, mixed=()), dense(found))
    np.testing.assert_allclose(computed(SMALL, found), wanted, atol=1e-9)
    np.testing.assert_allclose(computed(SMALL, undecided(found)), wanted, atol=1e-9)


def test_an_undecided_gate_takes_the_first_expert_with_an_equal_share_of_all() -> None:
    found = undecided(expert_gpt.model(SMALL, 2))
    wanted = computed(replace(SMALL, mixed=()), dense(found, 1 / SMALL.experts))
    np.testing.assert_allclose(computed(replace(SMALL, chosen=1), found), wanted, atol=1e-9)


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_shares_of_two_gpus_are_the_model_of_one(example: expert_gpt.Example) -> None:
    found = expert_gpt.model(example.shape, example.seed)
    np.testing.assert_allclose(
        computed(example.shape, found, 2), computed(example.shape, found, 1), atol=1e-9
    )


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_an_examples_answers_hang_on_no_rounding(example: expert_gpt.Example, tmp_path: Path) -> None:
    model = Gpt(
        expert_gpt.write(tmp_path, example.shape, expert_gpt.model(example.shape, example.seed)),
        int8=example.int8,
    )
    rows = [model.answer(prompt, expert_gpt.LENGTH) for prompt in expert_gpt.PROMPTS]
    assert min(min(row.gap) for row in rows) > CLEAR
    assert min(model.margins) > (CLEAR_IN_BF16 if "bf16" in example.dtypes else CLEAR)
    assert max(len(set(row.tokens)) for row in rows) > 3
    assert not any(example.shape.vocabulary - 1 in row.tokens for row in rows)  # none ends early


def swapped(shape: Shape, found: Weights, part: str) -> tuple[Shape, Weights]:
    """Of a part of the experts, each has that of the one before."""
    return shape, {n: np.roll(v, 1, 0) if part in n else v for n, v in found.items()}


FAULTS: Mapping[str, Callable[[Shape, Weights], tuple[Shape, Weights]]] = {
    "experts in another order": lambda s, w: swapped(s, w, ".experts."),
    "biases in another order": lambda s, w: swapped(s, w, ".experts.dense_4h_to_h.bias"),
    "inner biases in another order": lambda s, w: swapped(s, w, ".experts.dense_h_to_4h.bias"),
    "the bias of the first for all": lambda s, w: (
        s,
        {
            n: np.broadcast_to(v[:1], v.shape) if n.endswith("experts.dense_4h_to_h.bias") else v
            for n, v in w.items()
        },
    ),
    "a gate transposed": lambda s, w: (
        s,
        {n: v.T.reshape(v.shape) if ".gate." in n else v for n, v in w.items()},
    ),
    "another number of experts for a token": lambda s, w: (replace(s, chosen=3 - s.chosen), w),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["one of four", "two of four"])
def test_a_fault_gives_another_answer(name: str, fault: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    found = expert_gpt.model(example.shape, example.seed)
    right = Gpt(expert_gpt.write(tmp_path / "right", example.shape, found))
    wrong = Gpt(expert_gpt.write(tmp_path / "wrong", *FAULTS[fault](example.shape, found)))
    answers = [
        (right.answer(prompt, expert_gpt.LENGTH), wrong.answer(prompt, expert_gpt.LENGTH))
        for prompt in expert_gpt.PROMPTS
    ]
    assert any(golden.mismatch(row, other.tokens, golden.TOLERANCE["fp16"]) for row, other in answers)


def test_int8_rounds_each_expert_and_output_by_its_own_scale() -> None:
    shape = EXAMPLES["int8"].shape
    found = expert_gpt.model(shape, 1)
    off = np.abs(computed(shape, found, int8=True) - computed(shape, found)).max()
    assert 0.01 < off < 2
    louder = {
        name: value * np.array([100, 1, 1, 1])[:, None, None]
        if "experts.dense_4h_to_h.weight" in name
        else value
        for name, value in found.items()
    }
    # Of the other experts, no number changes.
    with tempfile.TemporaryDirectory() as folder:
        one, other = (
            Gpt(expert_gpt.write(Path(folder) / name, shape, given), int8=True)._by_expert(
                "layers.1.mlp.moe.experts.", np.ones((1, shape.hidden))
            )
            for name, given in (("one", found), ("other", louder))
        )
    np.testing.assert_array_equal(one[1:], other[1:])
    assert not np.allclose(one[0], other[0])


@pytest.fixture(scope="module")
def loader(tree: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The patched loader of GPT's weights, with the host's memory for that of a GPU."""
    compiler = needs.program("g++")
    program = tmp_path_factory.mktemp("gpt_experts") / "gpt_experts"
    flags = ["-std=c++17", "-O0", "-fsanitize=address,undefined", "-w"]
    read = [f"-I{PROGRAM}", f"-I{tree('22.12')}", str(PROGRAM / "gpt_experts.cc")]
    subprocess.run([compiler, *flags, *read, "-o", str(program)], check=True)
    return program


def loaded(
    loader: Path, folder: Path, *, dtype: str = "fp32", int8: int = 0, gpus: int = 1, stages: int = 1
) -> list[str]:
    words = [str(folder), dtype, str(int8), str(gpus), str(stages)]
    done = subprocess.run([loader, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def read(lines: list[str]) -> Counter[str]:
    """How often each file was read, by its name and the numbers that were asked for."""
    return Counter(line.removeprefix("file ") for line in lines if line.startswith("file "))


def whole(folder: Path, times: int) -> Counter[str]:
    """The same for every file of a folder: one of a rank once, others by so many GPUs."""
    return Counter(
        {
            f"{file.name} {file.stat().st_size // 4}": 1 if file.suffixes[-2][1:].isdigit() else times
            for file in folder.glob("*.bin")
        }
    )


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_the_loader_reads_every_file_whole(
    loader: Path, example: expert_gpt.Example, gpus: int, tmp_path: Path
) -> None:
    """And frees all that it allocated, which the address sanitizer watches."""
    shape = example.shape
    folder = expert_gpt.write(tmp_path, shape, expert_gpt.model(shape, 0), gpus)
    lines = loaded(
        loader, folder, dtype="fp16" if example.int8 else "fp32", int8=int(example.int8), gpus=gpus
    )
    assert read(lines) == whole(folder, gpus)
    made = f"experts {shape.experts} {shape.chosen} {' '.join(map(str, shape.mixed))}"
    assert [line for line in lines if not line.startswith("file ")] == [made] * gpus


def test_pipeline_stages_read_their_own_layers(loader: Path, tmp_path: Path) -> None:
    shape = replace(SMALL, layers=4, mixed=(1, 2))
    folder = expert_gpt.write(tmp_path, shape, expert_gpt.model(shape, 0))
    layers = Counter(
        {name: n for name, n in read(loaded(loader, folder, stages=2)).items() if ".layers." in name}
    )
    assert layers == Counter({name: n for name, n in whole(folder, 1).items() if ".layers." in name})


def edited(folder: Path, **values: str) -> Path:
    """Change values of [structure], or remove them where there is none."""
    config = config_ini.all_values(folder / config_ini.FILE)
    kept = {key.partition(".")[2]: value for key, value in config.items() if key.startswith("structure.")}
    lines = (folder / config_ini.FILE).read_text().splitlines()
    lines = lines[: lines.index("[structure]")]
    lines += ["[structure]", *(f"{key} = {value}" for key, value in {**kept, **values}.items() if value)]
    (folder / config_ini.FILE).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return expert_gpt.write(tmp_path, SMALL, expert_gpt.model(SMALL, 0))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"moe_k": ""}, "experts 4 1 0"),
        ({"moe_layers": "[]"}, "experts 0 0"),
        ({"moe_layers": ""}, "experts 0 0"),
        ({"moe_layers": "[ 1,0 ]"}, "experts 4 4 1 0"),
        ({"moe_layers": "[2]"}, LACKS),
        ({"expert_num": ""}, COUNTS),
        ({"expert_num": "1", "moe_k": "1"}, COUNTS),
        ({"moe_k": "0"}, COUNTS),
        ({"moe_k": "5"}, COUNTS),
    ],
)  # fmt: skip
def test_what_config_ini_says_of_experts(
    loader: Path, folder: Path, values: dict[str, str], said: str
) -> None:
    assert loaded(loader, edited(folder, **values))[-1] == said


def test_what_no_kernel_computes_is_refused(loader: Path, tmp_path: Path) -> None:
    folder = expert_gpt.write(
        tmp_path / "odd", replace(SMALL, inner=100), expert_gpt.model(replace(SMALL, inner=100), 0)
    )
    assert loaded(loader, folder)[-1] == "experts 4 4 0"
    assert "multiple of 8" in loaded(loader, folder, dtype="fp16")[-1]
    folder = expert_gpt.write(tmp_path / "even", SMALL, expert_gpt.model(SMALL, 0))
    assert "int8_mode 2" in loaded(loader, folder, dtype="fp16", int8=2)[-1]
    text = (folder / config_ini.FILE).read_text()
    (folder / config_ini.FILE).write_text(text.replace("has_adapters = False", "has_adapters = True"))
    assert "no adapters" in loaded(loader, folder)[-1]
