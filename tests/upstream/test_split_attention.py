"""How many blocks share the keys of a head: the functions that a patch adds, with a GPU of any size.

They are whole in the patch, so this needs none of upstream's sources.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from testing import ROOT, patch_programs

PATCH = ROOT / "patches/ft/0470-split-attention.patch"
CHANGED = "src/fastertransformer/kernels/decoder_masked_multihead_attention.cu"
FOLDER = "src/fastertransformer/kernels/decoder_masked_multihead_attention"
KERNEL = f"{FOLDER}/decoder_masked_multihead_attention_template.hpp"
HEADER = "src/fastertransformer/kernels/decoder_masked_multihead_attention.h"
PROGRAM = Path(__file__).parent / "programs/split_attention"
MAX_BLOCKS = 8192
# Multiprocessors of an H100, an A100 and an L4.
GPUS = (132, 108, 58)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("split_attention")
    (folder / "added.inc").write_text(patch_programs.added(PATCH, CHANGED))
    keys = re.search(
        r"^inline[^\n]* keys_per_block\(.*?^}", patch_programs.added(PATCH, KERNEL), re.DOTALL | re.MULTILINE
    )
    assert keys
    (folder / "keys.inc").write_text(keys[0])
    patch_programs.unpack_headers(folder)
    return patch_programs.compiled(PROGRAM / "split_attention.cc", folder / "split_attention", folder)


def spread(
    program: Path, sms: int, batch: int, heads: int, size: int, *timesteps: int, **environment: str
) -> list[tuple[int, int]]:
    """Return for each step the blocks of a head, and the length by which the launcher chooses threads."""
    done = patch_programs.run(program, sms, batch, heads, size, *timesteps, **environment)
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert all(holds for *_, holds in found), "the blocks do not hold the keys of each row"
    return [(blocks, length) for blocks, length, _ in found]


def threads(length: int) -> int:
    """Return the threads for a length (FT v5.3 decoder_masked_multihead_attention_64.cu)."""
    return 64 if length < 32 else 128 if length < 2048 else 256


def test_the_bound_of_the_buffers_is_the_programs() -> None:
    header = patch_programs.added(PATCH, HEADER)
    assert f"constexpr int MAX_SPLIT_BLOCKS = {MAX_BLOCKS};" in header
    assert "constexpr int MIN_SPLIT_KEYS = 128;" in header


def test_one_row_of_few_heads_fills_the_gpu(program: Path) -> None:
    """Of GPT-2 XL, GPT-J and GPT-NeoX on an H100 after 1100 tokens, with 256 threads for each block."""
    assert [spread(program, 132, 1, *model, 1100) for model in ((25, 64), (16, 256), (32, 128))] == [
        [(5, 2048)],
        [(8, 2048)],
        [(4, 2048)],
    ]


def test_many_rows_are_left_to_one_block_each(program: Path) -> None:
    assert spread(program, 132, 32, 25, 64, 1100) == [(1, 1100)]


def test_many_rows_of_wide_heads_are_left_to_four(program: Path) -> None:
    """Of GPT-J and LLaMA-2 7B: of rows in flight the longest would decide how long all take."""
    assert [spread(program, 132, 64, *model, 1100) for model in ((16, 256), (32, 128))] == 2 * [[(4, 31)]]


def test_short_texts_are_left_to_one_block(program: Path) -> None:
    assert {blocks for blocks, _ in spread(program, 132, 1, 16, 64, *range(256))} == {1}


@pytest.mark.parametrize("sms", GPUS)
def test_steps_of_one_graph_are_spread_alike(program: Path, sms: int) -> None:
    """A graph is captured for the last step of 256, and computes what each of them would (ft/0450)."""
    for batch, heads, size in product((1, 8, 32), (2, 16, 25, 64), (64, 128, 256)):
        last = (255, 511, 1279, 2047, 4095)
        for end in last:
            steps = range(max(32, end - 255), end + 1)
            found = spread(program, sms, batch, heads, size, *steps)
            assert len({(blocks, threads(length)) for blocks, length in found}) == 1


@pytest.mark.parametrize("sms", [0, 1, *GPUS, 100_000])
def test_blocks_never_outgrow_their_buffers(program: Path, sms: int) -> None:
    steps = (0, 1, 31, 32, 255, 256, 1100, 8191, 1_000_000)
    for batch, heads in product((1, 7, 32, 1024), (1, 16, 25, 128)):
        for blocks, _ in spread(program, sms, batch, heads, 128, *steps):
            assert blocks == 1 or 1 < blocks <= MAX_BLOCKS // (batch * heads)


def test_it_can_be_turned_off(program: Path) -> None:
    steps = (31, 160, 1100, 4000)
    off = spread(program, 132, 1, 16, 256, *steps, FT_SPLIT_ATTENTION="0")
    assert off == [(1, step) for step in steps]
    assert spread(program, 132, 1, 16, 256, *steps, FT_SPLIT_ATTENTION="1") != off
