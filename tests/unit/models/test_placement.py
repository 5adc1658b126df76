"""On which GPUs a checkpoint is said to fit: sizes by hand from FasterTransformer, and the choice."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild import matrix
from ftbuild.config import loader
from ftbuild.config.families import REQUEST_FACTS, GpuMemory
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.features import LeftOut
from ftbuild.models import conversion, gpu_memory, placement
from ftbuild.models.conversion import ConversionRequest
from ftbuild.models.gpu_memory import CUBLAS_BYTES, RESERVE_BYTES, Footprint, Load
from ftbuild.models.placement import Fit, GpuKind, Placement
from ftbuild.planning import make_plan
from ftbuild.sm import Sm
from testing import ROOT, forked
from testing.configurations import REVISION
from testing.model_files import CHECKPOINTS, HEADER, safetensors
from testing.weight_files import FACTS

GPTJ_6B = {"n_layer": 28, "n_head": 16, "n_embd": 4096, "vocab_size": 50400, "rotary_dim": 64}
GPTJ_PARAMETERS = 6_050_882_784
NEOX_20B = {
    "num_hidden_layers": 44, "num_attention_heads": 64, "hidden_size": 6144, "intermediate_size": 24576,
    "vocab_size": 50432,
}  # fmt: skip
T5_3B = {
    "d_model": 1024, "d_kv": 128, "d_ff": 16384, "num_layers": 24, "num_heads": 32, "vocab_size": 32128,
}  # fmt: skip
BERT_SMALL = {
    "model_type": "bert", "num_hidden_layers": 2, "num_attention_heads": 6, "hidden_size": 384,
    "intermediate_size": 1536, "max_position_embeddings": 512, "vocab_size": 30522,
}  # fmt: skip
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def write(family: str, **settings: Any) -> Path:
        folder = tmp_path / family
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**CHECKPOINTS.get(family, {}), **settings}))
        (folder / "model.safetensors").write_bytes(safetensors(json.dumps(HEADER).encode()))
        return folder

    return write


def placed(
    config: Config,
    family: str,
    folder: Path,
    load: Load | None = None,
    *,
    release: str = "22.12",
    most: int = 8,
    here: tuple[GpuKind, ...] = (),
    **others: Any,
) -> Placement:
    return placement.place(config, release, family, folder, load or Load(), most, here, **others)


def needed(found: Placement, name: str) -> dict[str, int | str]:
    return dict(next(fit.gpus for fit in found.fits if fit.gpu.name == name))


def test_the_weights_on_one_gpu_are_every_parameter(config: Config, make: Make) -> None:
    found = placed(config, "gptj", make("gptj", **GPTJ_6B))
    # FT keeps zeros for the biases that GPT-J's queries, keys and values do not have.
    values = GPTJ_PARAMETERS + 28 * 3 * 4096
    assert found.footprints[1, "fp32"].weights == 4 * values
    assert found.footprints[1, "fp16"].weights == found.footprints[1, "bf16"].weights == 2 * values


def test_two_gpus_share_the_matrices_and_both_have_the_tables(config: Config, make: Make) -> None:
    found = placed(config, "gptj", make("gptj", **GPTJ_6B))
    one, two = (found.footprints[gpus, "fp32"].weights for gpus in (1, 2))
    both = 4 * (
        2 * 50400 * 4096 + 50400 + 2 * 4096 + 28 * 3 * 4096
    )  # tables, head's bias, norms, output biases
    assert two == both + (one - both) // 2


@pytest.mark.parametrize("gpus", [1, 3])
def test_bert_takes_no_table_of_embeddings_to_the_gpu_and_keeps_no_cache(
    gpus: int, config: Config, make: Make
) -> None:
    load = placement.load_of(config, "bert", 4, 100, None, None)
    found = placed(config, "bert", make("bert", **BERT_SMALL), load)
    hidden, inner, rows, length, item = 384, 1536, 4, 100, 2
    layer = (4 * hidden * hidden + 2 * hidden * inner + 3 * hidden + inner) // gpus + 6 * hidden
    footprint = found.footprints[gpus, "fp16"]
    assert footprint.weights == 2 * item * layer
    assert footprint.cache == 0
    shared = 5 * rows * length * hidden + rows * length * length
    split = 8 * rows * length * hidden + rows * 6 * length * length + rows * length * inner
    assert footprint.buffers == 2**25 + item * (shared + split // gpus) + 4 * rows * length
    assert {data_type for _, data_type in found.footprints} == {"fp32", "fp16"}
    assert "4 x 100 tokens at once\n" in found.render()


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_t5_encoder_takes_one_table_of_tokens_to_each_gpu(gpus: int, config: Config, make: Make) -> None:
    load = placement.load_of(config, "t5-encoder", 4, 100, None, None)
    settings = {**T5_3B, "model_type": "t5", "feed_forward_proj": "gated-gelu"}
    found = placed(config, "t5-encoder", make("t5-encoder", **settings), load)
    hidden, wide, inner, heads, rows, length, item = 1024, 32 * 128, 16384, 32, 4, 100, 2
    layer = (4 * hidden * wide + 3 * hidden * inner) // gpus + 2 * hidden
    footprint = found.footprints[gpus, "fp16"]
    assert footprint.weights == item * (24 * layer + 32128 * hidden + hidden + heads * 32 // gpus)
    assert footprint.cache == 0
    shared = 7 * rows * length * hidden + rows * length * length + heads * length * length
    split = 8 * rows * length * wide + rows * heads * length * length + 2 * rows * length * inner
    assert footprint.buffers == 2**25 + item * (shared + split // gpus) + 4 * 2 * rows * length
    assert {data_type for _, data_type in found.footprints} == {"fp32", "fp16"}


def test_an_answer_that_is_a_vector_has_neither_length_nor_beams(config: Config) -> None:
    with pytest.raises(ConfigError, match="bert returns embeddings") as refused:
        placement.load_of(config, "bert", 1, 8, 8, None)
    assert refused.value.hint == "leave out --output-len"
    with pytest.raises(ConfigError, match="bert returns embeddings") as refused:
        placement.load_of(config, "bert", 1, 8, None, 2)
    assert refused.value.hint == "leave out --beams"
    assert placement.load_of(config, "gpt", 1, 8, None, None) == Load(1, 1, 8, 512)


def test_a_vocabulary_that_the_gpus_cannot_share_is_padded(config: Config, make: Make) -> None:
    found = placed(config, "gptj", make("gptj", vocab_size=301))
    plain, padded = (found.footprints[1, data_type].weights for data_type in ("bf16", "fp16"))
    assert padded == plain + 2 * 304 * 128, "fp16: to a multiple of 8, another table"
    split = {t: found.footprints[2, t].weights for t in ("bf16", "fp16")}
    assert split["fp16"] - split["bf16"] == 2 * 128 * (304 - 302)


@pytest.mark.parametrize("gpus", [1, 2])
def test_the_memory_of_a_request_is_what_gpt_neox_allocates(gpus: int, config: Config, make: Make) -> None:
    """Line by line, for 3 rows with 2 beams, 50 tokens in and 14 out, of the file's sizes."""
    load = Load(batch=3, beams=2, input_len=50, output_len=14)
    found = placed(config, "gptneox", make("gptneox"), load).footprints[gpus, "fp16"]
    rows, layers, heads, hidden, inner, vocabulary = 6, 2, 4, 128, 64, -(-300 // gpus // 8) * 8 * gpus
    assert found.cache == 2 * 2 * layers * rows * 64 * hidden // gpus  # GptNeoX.cc:87-88, 114
    halves = (
        rows * 64 * 64  # :99, input_attention_mask_
        + 2 * rows * 50 * hidden  # :144-147
        + 4 * rows * 50 * hidden  # GptNeoXContextDecoder.cc:75-82
        + 8 * rows * 50 * hidden // gpus  # GptContextAttentionLayer.cc:543-556
        + rows * heads * 50 * 50 // gpus  # :550
        + rows * 50 * inner // gpus  # FfnLayer.cc:482
    )
    one_token = found.buffers - 2**25 - 2 * halves - 4 * rows * heads * 50 * 50 // gpus
    words = 4 * rows * (8 * vocabulary + 8 * 64)
    assert 0 < one_token - words <= 2 * 16 * rows * hidden


def test_t5_keeps_the_keys_of_prompt_and_answer(config: Config, make: Make) -> None:
    load = Load(batch=2, beams=4, input_len=100, output_len=30)
    found = placed(config, "t5", make("t5", **T5_3B), load).footprints[1, "fp32"]
    assert found.cache == 4 * 2 * 24 * 8 * (100 + 30) * 32 * 128


def test_the_worst_moment_counts() -> None:
    assert Footprint(weights=100, cache=10, buffers=5, loading=20, reserve=7).total == 127
    assert Footprint(weights=100, cache=20, buffers=5, loading=20, reserve=7).total == 132


REQUEST = {
    "batch": 3, "beams": 2, "rows": 6, "input": 50, "output": 14, "length": 64, "padded_vocabulary": 304,
    "padding": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(REQUEST_FACTS))
def test_formulas_may_name_every_number_of_a_request(name: str, config: Config) -> None:
    converter = config.models.families["gptj"].converters[0]
    allocated = GpuMemory(source="by hand", buffers={"one": name})
    load = Load(batch=3, beams=2, input_len=50, output_len=14)
    found = gpu_memory.footprint(converter, allocated, {**FACTS, "vocabulary": 301}, 1, "fp16", load)
    assert found.buffers == CUBLAS_BYTES + 2 * REQUEST[name]


def test_a_conversion_tells_the_memory_that_a_plan_tells(config: Config, make: Make) -> None:
    folder = make("gptj", **GPTJ_6B)
    request = ConversionRequest("gptj", folder, folder / "out")
    planned = conversion.plan_conversion(config, "22.12", request)
    assert planned.on_gpu == placed(config, "gptj", folder).footprints[1, "fp16"]


def test_a_file_of_another_type_is_converted_on_the_gpu(config: Config, make: Make) -> None:
    found = placed(config, "gptj", make("gptj", **GPTJ_6B)).footprints
    assert found[1, "fp32"].loading == 0
    assert found[1, "fp16"].loading == found[4, "bf16"].loading == 4 * 50400 * 4096


def test_the_least_number_of_gpus_is_named_for_each_kind_of_gpu(config: Config, make: Make) -> None:
    folder = make("gptj", **GPTJ_6B)
    found = placed(config, "gptj", folder)
    assert needed(found, "A100 40 GB") == {"fp32": 1, "fp16": 1, "bf16": 1, "int8": "no such type"}
    assert needed(found, "L4") == {"fp32": 2, "fp16": 1, "bf16": 1, "int8": "no such type"}
    assert needed(found, "T4") == {"fp32": 2, "fp16": 1, "bf16": "no such type", "int8": "no such type"}
    assert needed(placed(config, "gptj", folder, Load(batch=16)), "T4")["fp16"] == 2
    assert needed(placed(config, "gptj", folder, most=1), "L4")["fp32"] == "too big"


def test_a_gpu_holds_what_is_as_large_as_its_memory(config: Config, make: Make) -> None:
    folder = make("gptj", **GPTJ_6B)
    total = placed(config, "gptj", folder).footprints[1, "fp16"].total
    kinds = tuple(GpuKind(f"{less} less", Sm(80), total - less) for less in (0, 1))
    found = placed(config, "gptj", folder, here=kinds)
    assert [needed(found, kind.name)["fp16"] for kind in kinds] == [1, 2]


def test_only_numbers_that_the_model_can_be_split_by_count(config: Config, make: Make) -> None:
    found = placed(config, "gpt", make("gpt", n_head=6, n_embd=192), Load(1, 1, 8, 8), most=4)
    assert {gpus for gpus, _ in found.footprints} == {1, 2, 3}
    assert list(found.impossible) == [4]
    assert "6 heads cannot be split over 4 GPUs" in found.impossible[4]
    assert "not 4: 6 heads cannot be split over 4 GPUs" in found.render()


def test_an_sm_without_an_image_of_the_release_is_told(config: Config, make: Make) -> None:
    folder = make("gptj", **GPTJ_6B)
    assert needed(placed(config, "gptj", folder), "B200")["fp16"] == "no image"
    assert needed(placed(config, "gptj", folder, release="24.10"), "B200")["fp16"] == 1
    assert needed(placed(config, "gptj", folder, release="24.10"), "V100 32 GB")["fp16"] == "no image"


def test_bf16_is_for_models_that_the_backend_computes_in_it(config: Config, make: Make) -> None:
    neox = make("gptneox", **NEOX_20B)
    assert needed(placed(config, "gptneox", neox), "H100") == {
        "fp32": 2, "fp16": 1, "bf16": 1, "int8": "no such type",
    }  # fmt: skip
    older = placed(config, "gptneox", neox, release="22.07")
    assert needed(older, "H100")["bf16"] == "no such type", "backend 1.3 takes it for fp32"
    load = Load(1, 1, 8, 8)
    old = {f: placed(config, f, make(f), load, release="22.03") for f in ("gpt", "t5")}
    assert needed(old["gpt"], "H100")["bf16"] == 1
    assert needed(old["t5"], "H100")["bf16"] == "no such type", "backend 1.1 has is_half only"


def test_int8_weights_take_a_byte_each_and_their_scales_two(config: Config, make: Make) -> None:
    gpt = make("gpt", n_layer=3, n_head=4, n_embd=256, n_positions=1024, vocab_size=504)
    found = placed(config, "gpt", gpt).footprints
    half, quantized = found[1, "fp16"], found[1, "int8"]
    matrices, scales = 3 * 12 * 256 * 256, 3 * 9 * 256
    assert half.weights - quantized.weights == matrices - 2 * scales
    assert (half.cache, half.buffers) == (quantized.cache, quantized.buffers)
    # The largest that is converted on the GPU: the table of tokens, which stays fp16, or of positions.
    assert (half.loading, quantized.loading) == (4 * 1024 * 256, 4 * 1024 * 256)
    gpt = make("gpt", n_layer=3, n_head=4, n_embd=256, vocab_size=504)
    flat = placed(config, "gpt", gpt, Load(1, 1, 8, 8)).footprints
    # A matrix that becomes int8 is so before it gets to the GPU.
    assert (flat[1, "fp16"].loading, flat[1, "int8"].loading) == (4 * 4 * 256 * 256, 4 * 504 * 256)
    two = found[2, "fp16"].weights - found[2, "int8"].weights
    assert two == matrices // 2 - 2 * 3 * (3 + 4) * 256 // 2 - 2 * 3 * 2 * 256


def test_int8_weights_need_whole_blocks_of_each_gpu(config: Config, make: Make) -> None:
    bloom = make("bloom", num_attention_heads=6, n_embed=192)
    found = placed(config, "bloom", bloom, Load(1, 1, 8, 8), most=3)
    assert {gpus for gpus, data_type in found.footprints if data_type == "int8"} == {1, 3}
    assert needed(found, "P40")["int8"] == "no such type", "no kernel below SM 70"
    assert needed(found, "V100 32 GB")["int8"] == 1
    old = placed(config, "gpt", make("gpt", n_head=2, n_embd=64), Load(1, 1, 8, 8), release="22.03")
    assert not any(data_type == "int8" for _, data_type in old.footprints)


def test_codegen_takes_what_gptj_takes(config: Config, make: Make) -> None:
    codegen = placed(config, "codegen", make("codegen", **GPTJ_6B))
    assert codegen.footprints == placed(config, "gptj", make("gptj", **GPTJ_6B)).footprints


def test_gpus_of_this_machine_come_first_and_are_no_more_than_there_are(config: Config, make: Make) -> None:
    found = placed(
        config,
        "gptneox",
        make("gptneox", **NEOX_20B),
        here=(
            GpuKind("RTX5000 Ada", Sm(89), 32 * 10**9, count=2),
            GpuKind("NVIDIA H200", Sm(90), 141 * 10**9, 1),
        ),
    )
    first, second = found.fits[:2]
    assert dict(first.gpus) == {"fp32": "too big", "fp16": 2, "bf16": 2, "int8": "no such type"}
    assert second.gpus["fp32"] == 1
    assert needed(found, "L4")["fp32"] == 8, "of a machine with eight"
    assert "NVIDIA H200 (here)  90    141" in found.render()


def test_a_text_that_the_kernels_do_not_take_is_refused(config: Config, make: Make) -> None:
    folder = make("t5-encoder", **T5_3B, model_type="t5")
    assert placed(config, "t5-encoder", folder, placement.load_of(config, "t5-encoder", 1, 4096, None, None))
    with pytest.raises(ConfigError, match="tokens are more than the model takes: 4096"):
        placed(config, "t5-encoder", folder, placement.load_of(config, "t5-encoder", 1, 4097, None, None))


def test_a_request_that_the_model_has_no_positions_for_is_refused(config: Config, make: Make) -> None:
    with pytest.raises(ConfigError, match="12 and 8 tokens are more than the model takes: 16"):
        placed(config, "gpt", make("gpt"), Load(1, 1, 12, 8))


HEADS_OF_32 = "it is built for heads of 64 and 128, and the model has heads of 32"


def test_a_model_whose_heads_the_image_lacks_fits_on_no_gpu(config: Config, make: Make) -> None:
    """Encoders have no kernels of the decoder's attention."""
    left_out, load = LeftOut((), (64, 128)), Load(1, 1, 8, 8)
    found = placed(config, "gpt", make("gpt"), load, most=2, left_out=left_out)
    assert (found.footprints, found.impossible) == ({}, {1: HEADS_OF_32, 2: HEADS_OF_32})
    narrow = {**T5_3B, "d_kv": 32, "model_type": "t5"}
    for family, settings in (("bert", {**BERT_SMALL, "num_attention_heads": 12}), ("t5-encoder", narrow)):
        load, folder = placement.load_of(config, family, 1, 8, None, None), make(family, **settings)
        assert placed(config, family, folder, load, left_out=left_out) == placed(config, family, folder, load)


def test_an_image_without_int8_or_beams_serves_all_else(config: Config, make: Make) -> None:
    folder, load = make("gpt", n_head=4, n_embd=256), Load(1, 1, 8, 8)
    whole, lean = (
        placed(config, "gpt", folder, load, left_out=LeftOut(features)).footprints
        for features in ((), ("beams", "int8"))
    )
    assert lean == {key: found for key, found in whole.items() if key[1] != "int8"} != whole
    with pytest.raises(ConfigError, match="built without beams, and a row is to have 2") as refused:
        placed(config, "gpt", folder, Load(1, 2, 8, 8), left_out=LeftOut(("beams",)))
    assert (refused.value.where, refused.value.hint) == ("--beams", "leave it out, or beams out of --without")


def test_keys_of_the_checkpoint_that_change_nothing_can_be_ignored(config: Config, make: Make) -> None:
    folder, load = make("gpt", flavour="sweet"), Load(1, 1, 8, 8)
    with pytest.raises(ConfigError, match="flavour = 'sweet'"):
        placed(config, "gpt", folder, load)
    assert placed(config, "gpt", folder, load, ignored=["flavour"]).impossible.keys() == {3, 5, 6, 7, 8}


def test_a_family_of_the_cpu_has_no_gpu(make: Make) -> None:
    sample = loader.load(ROOT / "buildcfg" / "sample")
    with pytest.raises(ConfigError, match="the GPU memory that gpt takes is unknown") as caught:
        placed(sample, "gpt", make("gpt"))
    assert caught.value.hint == "its backend computes on the CPU"


def slots(found: Placement, name: str) -> dict[str, int]:
    return dict(next(fit.slots for fit in found.fits if fit.gpu.name == name))


def test_slots_are_what_three_quarters_of_the_free_memory_hold(config: Config, make: Make) -> None:
    """By hand, as patches/ft/0510 has it: 448 KiB a token in fp16, and eight floats for each word."""
    found = placed(config, "gptj", make("gptj", **GPTJ_6B), slot_tokens=2048)
    slot = 2048 * 448 * 2**10 + 8 * 4 * 50400
    assert found.footprints[1, "fp16"].slot == slot
    assert found.footprints[2, "fp16"].slot == 1024 * 448 * 2**10 + 8 * 4 * 50400, "the logits are whole"
    free = 40 * 10**9 - 2 * (GPTJ_PARAMETERS + 28 * 3 * 4096) - RESERVE_BYTES - 2**26
    assert slots(found, "A100 40 GB") == {
        "fp32": 5, "fp16": int(0.75 * free / slot), "bf16": int(0.75 * free / slot),
    }  # fmt: skip
    assert slots(found, "H200")["fp16"] == 64, "never more"
    free = 16 * 10**9 - 2 * (GPTJ_PARAMETERS + 28 * 3 * 4096) - RESERVE_BYTES - 2**26
    over_two = 1024 * 896 * 2**10 + 8 * 4 * 50400
    assert slots(found, "V100 16 GB") == {
        "fp16": int(0.75 * free / slot),
        "fp32": int(0.75 * free / over_two),
    }
    assert slots(found, "B200") == {}, "no image"


def test_a_slot_of_t5_has_half_of_its_tokens_for_the_prompt(config: Config, make: Make) -> None:
    """By hand, as patches/ft/0530 has it: keys and values of each token in the decoder's layers alone."""
    folder = make("t5", num_layers=24, num_decoder_layers=6, d_model=1024, num_heads=32, d_kv=128, d_ff=2816)
    found = placed(config, "t5", folder, slot_tokens=2048)
    vocabulary = found.facts["vocabulary"]
    padded = -(-vocabulary // 8) * 8
    assert found.footprints[1, "fp16"].slot == 2048 * 2 * 6 * 4096 * 2 + 8 * 4 * padded
    assert found.footprints[1, "fp32"].slot == 2048 * 2 * 6 * 4096 * 4 + 8 * 4 * vocabulary


def test_shorter_slots_are_more(config: Config, make: Make) -> None:
    folder = make("gptj", **GPTJ_6B)
    counts = [
        slots(placed(config, "gptj", folder, slot_tokens=tokens), "A30")["fp16"]
        for tokens in (4096, 2048, 512)
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize(("free", "count"), [(40, 10), (39, 9), (4, 1), (3, 0), (-1, 0), (1000, 64)])
def test_slots_share_what_weights_the_reserve_and_two_workspaces_leave(free: int, count: int) -> None:
    found = Footprint(weights=100, cache=7, buffers=8, loading=9, reserve=50, slot=3)
    assert found.slots(100 + 50 + 2 * CUBLAS_BYTES + free) == count


def test_a_gpu_that_no_slot_fits_on_has_none() -> None:
    assert Footprint(weights=10**9, cache=0, buffers=0, loading=0, slot=10**9).slots(10**9) == 0
    assert Footprint(weights=10**9, cache=0, buffers=0, loading=0).slots(10**12) == 0


def test_a_slot_has_no_more_tokens_than_the_model_has_positions(config: Config, make: Make) -> None:
    gpt = make("gpt", n_positions=1024)
    found = placed(config, "gpt", gpt, Load(1, 1, 8, 8), slot_tokens=2048)
    assert found.slot_tokens == 1024
    shorter = placed(config, "gpt", gpt, Load(1, 1, 8, 8), slot_tokens=1024)
    assert found.footprints == shorter.footprints


@pytest.mark.parametrize("release", ["22.03", "22.07", "22.12", "24.10", "26.06"])
def test_who_generates_has_slots_in_releases_that_do_in_flight(release: str, config: Config) -> None:
    """The families that answer with vectors have none."""
    cells = matrix.make_matrix(config, *config.bases.bases).cells
    plan = make_plan(config, next(cell for cell in cells if cell.triton == release), REVISION)
    has = {name: placement.tokens_of_a_slot(config, name, plan, None) for name in config.models.families}
    generating = {"gpt", "opt", "bloom", "mpt", "gptj", "codegen", "gptneox", "llama", "t5"}
    able = set() if release in ("22.03", "22.07") else generating
    assert has == {name: 2048 if name in able else 0 for name in config.models.families}
    for name in config.models.families:
        if name in able:
            assert placement.tokens_of_a_slot(config, name, plan, 512) == 512
        else:
            with pytest.raises(ConfigError, match=f"{name} has no slots in {release}"):
                placement.tokens_of_a_slot(config, name, plan, 512)


def test_slots_are_told_to_people_and_to_programs(config: Config, make: Make) -> None:
    folder = make("gptj", **GPTJ_6B)
    found = placed(config, "gptj", folder, slot_tokens=2048)
    told: Any = found.as_dict()
    a30 = next(each for each in told["gpus"] if each["name"] == "A30")
    assert told["session_tokens"] == 2048
    assert (a30["needed"]["fp16"], a30["slots"]) == (1, {"fp32": 7, "fp16": 8, "bf16": 8})
    assert told["memory"][0]["slot"] == found.footprints[1, "fp32"].slot
    (row,) = (line for line in found.render().splitlines() if line.startswith("A30 "))
    assert "1 (8)" in row
    assert "sessions of 2048 tokens" in found.render()
    assert "model-repo --instances answers the most requests" in found.render()
    without: Any = placed(config, "gptj", folder).as_dict()
    assert without["session_tokens"] is None
    assert not any(each["slots"] for each in without["gpus"])
    assert "sessions" not in placed(config, "gptj", folder).render()
    assert "--instances" not in placed(config, "gptj", folder).render()


SMALL = Placement(
    family="gpt",
    release="22.12",
    folder=Path("checkpoint"),
    facts={"layers": 2, "heads": 4},
    load=Load(input_len=8, output_len=8),
    impossible={3: "4 heads cannot be split over 3 GPUs"},
    footprints={(1, "fp16"): Footprint(375 * 10**6, 0, 10**7, 0, 10**9)},
    fits=[Fit(GpuKind("Small", Sm(75), 1_500_000_000), dict.fromkeys(placement.SERVED, 1), {"fp16": 9})],
    source="by hand",
    slot_tokens=16,
)
SAID = """\
gpt, release 22.12: layers 2, heads 4
1 x 8 tokens at once, answers of 8

GB on each GPU; in all: while the last weight is loaded, or in a request
(as FasterTransformer allocates, at most; the reserve for CUDA itself is that of an H200)
GPUs    type    weights    cache    buffers    loading    reserve    in all
------  ------  ---------  -------  ---------  ---------  ---------  --------
1       fp16    0.38       0.00     0.01       0.00       1.00       1.39
not 3: 4 heads cannot be split over 3 GPUs

GPUs of one kind that the model needs (tensor parallel); in brackets, \
the sessions of 16 tokens that it holds there at once:
GPU    SM    GB    fp32    fp16    bf16    int8
-----  ----  ----  ------  ------  ------  ------
Small  75    2     1       1 (9)   1       1

On several GPUs that hold it each, model-repo --instances answers the most requests, and
convert --gpus a few of them sooner where layers are wide: GPT-J 6B's, not T5-3B's."""


def test_a_plan_is_told_to_people_in_two_tables() -> None:
    said = SAID.splitlines()
    assert SMALL.render().splitlines() == said
    # The advice is for models that one GPU holds.
    split = replace(SMALL, fits=[replace(SMALL.fits[0], gpus=dict.fromkeys(placement.SERVED, 2))])
    assert split.render().splitlines()[:-1] == said[:-4]
    without = replace(SMALL, slot_tokens=0, load=Load(2, 4, 8, 0)).render().splitlines()
    assert without[1] == "2 x 8 tokens at once, 4 beams"
    assert without[-4] == "GPUs of one kind that the model needs (tensor parallel):"


def test_what_is_told_is_the_same_for_people_and_for_programs(config: Config, make: Make) -> None:
    here = GpuKind("NVIDIA A10", Sm(86), 23028 * 2**20, 1)
    found = placed(config, "gptj", make("gptj", **GPTJ_6B), Load(batch=8, beams=2), most=3, here=(here,))
    told: Any = found.as_dict()
    assert told["load"] == {"batch": 8, "beams": 2, "input_len": 512, "output_len": 512}
    assert told["facts"]["rotary"] == 64
    named = {key: told[key] for key in ("family", "release", "checkpoint")}
    assert named == {"family": "gptj", "release": "22.12", "checkpoint": str(found.folder)}
    assert told["impossible"] == [{"gpus": 3, "why": found.impossible[3]}]
    assert "16 heads cannot be split over 3 GPUs" in found.impossible[3]
    assert told["source"].startswith("FasterTransformer v5.3 GptJ.cc:83-160")
    first = told["gpus"][0]
    assert first == {
        "name": "NVIDIA A10", "sm": 86, "memory": 23028 * 2**20, "count": 1,
        "needed": {"fp32": None, "fp16": 1, "bf16": 1, "int8": None},
        "why": {"fp32": "too big", "int8": "no such type"},
        "slots": {},
    }  # fmt: skip
    assert [fit["name"] for fit in told["gpus"][1:]] == [kind.name for kind in placement.known(config)]
    lines = found.render().splitlines()
    assert lines[1] == "8 x 512 tokens at once, answers of 512, 2 beams"
    header = lines.index("GPUs    type    weights    cache    buffers    loading    reserve    in all")
    sizes = ("weights", "cache", "buffers", "loading", "reserve", "total")
    assert [line.split() for line in lines[header + 2 : header + 8]] == [
        [str(each["gpus"]), each["data_type"], *(f"{each[size] / 1e9:.2f}" for size in sizes)]
        for each in told["memory"]
    ]
    (row,) = (line for line in lines if line.startswith("NVIDIA A10 (here)"))
    assert row.split()[-9:] == ["86", "24", "too", "big", "1", "1", "no", "such", "type"]


def invoke(*arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "DOCKER_HOST": "unix:///nowhere", "PATH": path}
    return forked.invoke("plan-model", *arguments, env=env)


def test_the_command_finds_the_family_and_this_machines_gpus(make: Make, tmp_path: Path) -> None:
    driver = tmp_path / "bin" / "nvidia-smi"
    driver.parent.mkdir()
    driver.write_text(
        "#!/bin/sh\necho 'NVIDIA A10, 8.6, 580.95.05, 23028 MiB'\n"
        "echo 'NVIDIA A10, 8.6, 580.95.05, 23028 MiB'\necho 'GB10, 12.1, 580.95.05, [N/A]'\n"
    )
    driver.chmod(0o755)
    path = f"{driver.parent}:{os.environ['PATH']}"
    folder = str(make("gptj", **GPTJ_6B))
    done = invoke("--checkpoint", folder, "--batch", "2", "--gpus", "4", "--format", "json", path=path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["family"], told["release"], told["load"]["batch"]) == ("gptj", "26.06", 2)
    assert [(each["gpus"], each["data_type"]) for each in told["memory"]] == [
        (gpus, data_type) for gpus in (1, 2, 4) for data_type in ("fp32", "fp16", "bf16")
    ]
    memory = told["memory"][0]
    parts = memory["weights"] + memory["cache"] + memory["buffers"] + memory["reserve"]
    assert memory["total"] == parts
    assert memory["reserve"] == RESERVE_BYTES
    here = told["gpus"][0]
    assert (here["name"], here["sm"], here["memory"], here["count"]) == ("NVIDIA A10", 86, 23028 * 2**20, 2)
    assert here["needed"] == {"fp32": 2, "fp16": 1, "bf16": 1, "int8": None}
    assert here["slots"]["fp16"] == 8
    assert told["session_tokens"] == 2048
    assert [each for each in told["gpus"] if each["count"]] == [here], "memory that is not known is no GPU"


def test_mistakes_are_told_without_a_traceback(make: Make, tmp_path: Path) -> None:
    done = invoke("--checkpoint", str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "the folder of the checkpoint does not exist" in done.stderr
    done = invoke("--checkpoint", str(make("gpt", model_type="mamba")))
    assert done.returncode == 2
    assert "the checkpoint is a mamba model, which no family supports" in done.stderr
    assert "families: gpt, opt, bloom, mpt, gptj, codegen, gptneox, t5, llama" in done.stderr
    done = invoke("--checkpoint", str(make("gpt")), "--model", "t5")
    assert done.returncode == 2
    assert "--model gpt" in done.stderr
    done = invoke("--checkpoint", str(make("gpt")), "--batch", "0")
    assert done.returncode == 2
