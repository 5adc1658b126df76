"""Weights as other programs leave them: their folders, the sections and keys of their config.ini, no content.

What is written is FauxPilot's (converter/huggingface_gptj_convert.py, triton_config_gen.py), FT 5.0's
(huggingface_gpt_convert.py:104-117, megatron_ckpt_convert_2.py:227-232, nemo_ckpt_convert.py:76-83,
gptj_ckpt_convert.py, huggingface_t5_ckpt_convert.py:31) and NeMo's of FT 5.3 (gpt.py:827-868).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ftbuild.config import loader
from testing import weight_files
from testing.weight_files import FACTS, Model


def model(family: str, gpus: int = 1, data_type: str = "fp32", **changed: int) -> Model:
    """Return a small model, with the files of the newest converter."""
    converter = loader.own_models().families[family].converters[0 if family == "gptj" else -1]
    return Model(family, converter, gpus, data_type, changed)


def hugging_face(facts: Mapping[str, int], **others: object) -> dict[str, object]:
    """Return the keys of GPT-2's, GPT-J's and CodeGen's config.json."""
    return {
        "vocab_size": facts["vocabulary"], "n_positions": facts["positions"], "n_embd": facts["hidden"],
        "n_layer": facts["layers"], "n_head": facts["heads"], "n_inner": None, "layer_norm_epsilon": "1e-05",
        "activation_function": "gelu_new", "scale_attn_weights": True, "bos_token_id": facts["start"],
        "eos_token_id": facts["end"], "tie_word_embeddings": False, "torch_dtype": "torch.float16", **others,
    }  # fmt: skip


def replace_config(place: Path, section: str, keys: Mapping[str, object]) -> None:
    """Write another config.ini with one section."""
    weight_files.write_config(place, {f"{section}.{key}": str(value) for key, value in keys.items()})


def fauxpilot(folder: Path, gpus: int = 1, data_type: str = "fp32", place: str = "/model") -> Path:
    """Make CodeGen's folder as FauxPilot does: `fastertransformer`, with GPT-J's weights; return it."""
    made = model("gptj", gpus, data_type)
    weights = made.write(folder / "fastertransformer" / "1")
    as_fauxpilot(weights, made.facts, data_type, place)
    return folder


def as_fauxpilot(weights: Path, facts: Mapping[str, int], data_type: str, place: str = "/model") -> None:
    """Describe GPT-J's weights in <model>/fastertransformer/1/<n>-gpu as FauxPilot does."""
    gpus = int(weights.name.removesuffix("-gpu"))
    arguments = {
        "saved_dir": f"/models/codegen-{gpus}gpu/fastertransformer/1", "in_file": "codegen-hf",
        "trained_gpu_num": 1, "infer_gpu_num": gpus, "processes": 4, "weight_data_type": data_type,
    }  # fmt: skip
    keys = hugging_face(facts, rotary_dim=facts["rotary"], tokenizer_class="CodeGenTokenizer")
    replace_config(weights, "gpt", {**arguments, **keys, "architectures": ["GPTJForCausalLM"]})
    parameters = {
        "tensor_para_size": gpus, "pipeline_para_size": 1, "max_seq_len": facts["positions"], "is_half": 1,
        "head_num": facts["heads"], "size_per_head": facts["hidden"] // facts["heads"],
        "inter_size": facts["inner"],
        # A tokenizer's, where the table has rows that no token takes.
        "vocab_size": facts["vocabulary"] - 1,
        "start_id": facts["start"], "end_id": facts["end"], "decoder_layers": facts["layers"],
        "model_name": "codegen", "rotary_embedding": facts["rotary"], "model_type": "GPT-J",
        "model_checkpoint_path": f"{place}/fastertransformer/1/{gpus}-gpu", "enable_custom_all_reduce": 0,
    }  # fmt: skip
    config_pbtxt(weights.parents[1], parameters, "codegen")


def config_pbtxt(folder: Path, parameters: Mapping[str, object], filename: str = "") -> None:
    """Write a config.pbtxt of 2022 with these parameters into a model's folder."""
    head = 'name: "fastertransformer"\nbackend: "fastertransformer"\nmax_batch_size: 1024\n'
    head += f'default_model_filename: "{filename}"\n' if filename else ""
    tensors = 'input [ { name: "input_ids" data_type: TYPE_UINT32 dims: [ -1 ] },\n'
    tensors += '  { name: "random_seed" data_type: TYPE_INT32 dims: [ 1 ] optional: true } ]\n'
    tensors += 'output [ { name: "output_ids" data_type: TYPE_UINT32 dims: [ -1, -1 ] } ]\n'
    lines = [f'parameters {{ key: "{k}" value: {{ string_value: "{v}" }} }}\n' for k, v in parameters.items()]
    (folder / "config.pbtxt").write_text(head + tensors + "".join(lines))


def gpt_of_5_0(folder: Path, gpus: int = 1, data_type: str = "fp32") -> Path:
    """Make GPT-2's weights as FT 5.0 converts them: config.json's keys in [gpt]."""
    made = model("gpt", gpus, data_type)
    place = made.write(folder)
    keys = hugging_face(
        made.facts, saved_dir="/out", infer_gpu_num=gpus, weight_data_type=data_type, tie_word_embeddings=True
    )
    replace_config(place, "gpt", keys)
    return place


def megatron_of_5_0(folder: Path, gpus: int = 1, data_type: str = "fp16") -> Path:
    """Make Megatron's weights as FT 5.0 converts them: its arguments in [gpt], and no special tokens."""
    made = model("gpt", gpus, data_type)
    place, facts = made.write(folder), made.facts
    keys = {
        "num_layers": facts["layers"], "hidden_size": facts["hidden"], "ffn_hidden_size": facts["inner"],
        "num_attention_heads": facts["heads"], "kv_channels": facts["hidden"] // facts["heads"],
        "max_position_embeddings": facts["positions"], "layernorm_epsilon": "1e-05",
        "padded_vocab_size": facts["vocabulary"], "vocab_file": "gpt2-vocab.json", "openai_gelu": False,
        "infer_gpu_num": gpus, "weight_data_type": data_type,
    }  # fmt: skip
    replace_config(place, "gpt", keys)
    return place


def nemo_of_5_0(folder: Path, gpus: int = 1, data_type: str = "fp32") -> Path:
    """Make NeMo's weights as FT 5.0 converts them: neither vocabulary nor special tokens."""
    made = model("gpt", gpus, data_type)
    place, facts = made.write(folder), made.facts
    keys = {
        "num_layers": facts["layers"], "hidden_size": facts["hidden"], "ffn_hidden_size": facts["inner"],
        "num_attention_heads": facts["heads"], "kv_channels": None,
        "max_position_embeddings": facts["positions"], "encoder_seq_length": facts["positions"],
        "layernorm_epsilon": "1e-05", "tensor_model_parallel_size": 1, "tokenizer": "{'library': 'megatron'}",
        "fused_qkv": 1, "weight_data_type": data_type,
    }  # fmt: skip
    replace_config(place, "gpt", keys)
    return place


def nemo_of_5_3(folder: Path, gpus: int = 1) -> Path:
    """Make NeMo's weights as FT 5.3 converts them, whose keys are right."""
    made = model("gpt", gpus)
    place, facts = made.write(folder), made.facts
    keys = {
        "model_name": "gpt", "tensor_para_size": gpus, "head_num": facts["heads"],
        "size_per_head": facts["hidden"] // facts["heads"], "inter_size": facts["inner"],
        "num_layer": facts["layers"], "max_pos_seq_len": facts["positions"], "weight_data_type": "fp32",
        "vocab_size": facts["vocabulary"], "start_id": facts["start"], "end_id": facts["end"],
    }  # fmt: skip
    replace_config(place, "gpt", keys)
    return place


def gptj_of_5_0(folder: Path, gpus: int = 1) -> Path:
    """Make GPT-J's weights as FT 5.0 converts them: no config.ini, the numbers in config.pbtxt."""
    made = model("gptj", gpus)
    place, facts = made.write(folder / "fastertransformer" / "1"), made.facts
    (place / "config.ini").unlink()
    parameters = {
        "tensor_para_size": gpus, "pipeline_para_size": 1, "max_seq_len": 2048, "is_half": 1,
        "head_num": facts["heads"], "size_per_head": facts["hidden"] // facts["heads"],
        "inter_size": facts["inner"], "vocab_size": facts["vocabulary"], "start_id": facts["start"],
        "end_id": facts["end"], "decoder_layers": facts["layers"], "rotary_embedding": facts["rotary"],
        "model_type": "GPT-J", "model_checkpoint_path": "/workspace/ft/models/j6b_ckpt/1-gpu",
    }  # fmt: skip
    config_pbtxt(folder / "fastertransformer", parameters, "j6b")
    return place


def t5_of_5_0(folder: Path, gpus: int = 1) -> Path:
    """Make T5's weights as FT 5.0 converts them, with a 0 that later releases misread."""
    made = Model("t5", loader.own_models().families["t5"].converters[0], gpus)
    place = made.write(folder)
    values = made.values()
    values |= {"structure.position_embedding_type": "0", "structure.t5_with_bias": "0"}
    weight_files.write_config(place, values)
    return place


def gpt_neox_of_hugging_face(folder: Path, **others: object) -> Path:
    """Make GPT-NeoX's weights with the keys of its config.json, in a section of GPT-NeoX."""
    made = model("gptneox")
    place = made.write(folder)
    keys = {
        "hidden_size": FACTS["hidden"], "intermediate_size": FACTS["inner"],
        "num_hidden_layers": FACTS["layers"],
        "num_attention_heads": FACTS["heads"], "vocab_size": FACTS["vocabulary"], "rotary_ndims": 4,
        "layer_norm_eps": "1e-05", "hidden_act": "gelu", "bos_token_id": 0, "eos_token_id": 0,
        "weight_data_type": "fp32", **others,
    }  # fmt: skip
    replace_config(place, "gptneox", keys)
    return place
