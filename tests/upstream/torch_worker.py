"""Runs scripts and makes tiny random checkpoints; for a Python that has torch and transformers.

Importing the two takes longer than anything that is done with them. So this is one process that imports them,
reads a JSON list a line, and answers each with a line [exit code, output] from a process forked for it:

    ["make", KIND, FOLDER, TENSORS.npz]  save a model and its tensors, by transformers' names, in fp32
    ["draw", MODEL, CONFIG, SETTINGS, FOLDER]
                                         save a model of these classes nearly as transformers draws it
    ["decoded", FOLDER, PROMPT, ANSWER, OUT.npy]
                                         save a T5's logits after each token of an answer
    ["same", FOLDER, OTHER]              fail unless the two models give the same logits
    ["logits", FOLDER, PROMPT, OUT.npy]  save the logits after each token of a list, or of 0, 1, ... N - 1
    ["states", FOLDER, PROMPTS, OUT.npz] save the last states of each prompt of a JSON list, as "0", ...
    ["slopes", NUMBER]                   print ALiBi's slopes of BLOOM and of MPT for 1, 2, ... heads
    ["run", PYTHONPATH, SCRIPT, ...]     run a script as Python itself would
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

VOCABULARY = 51
GPT2 = {
    "n_embd": 128,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 24,
    "vocab_size": VOCABULARY,
    "bos_token_id": 49,
    "eos_token_id": 50,
    "initializer_range": 0.5,
}
NEOX = {
    "hidden_size": 128,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 24,
    "vocab_size": VOCABULARY,
    "bos_token_id": 49,
    "eos_token_id": 50,
    "initializer_range": 0.5,
}
# As t5-3b, the heads together are wider than the model; the decoder is deeper than the encoder.
T5 = {
    "d_model": 32,
    "d_kv": 32,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 12,
    "vocab_size": VOCABULARY,
    "decoder_start_token_id": 0,
    "eos_token_id": 1,
}
# Nothing about it is a multiple of 8: three layers, and six heads of 48 that share two keys and values.
LLAMA = {
    "hidden_size": 288,
    "intermediate_size": 412,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "vocab_size": VOCABULARY,
    "bos_token_id": 49,
    "eos_token_id": 50,
    "rms_norm_eps": 1e-2,  # large enough to be seen
    "rope_theta": 1000000.0,
    "rope_scaling": {"type": "linear", "factor": 2.0},
    "torch_dtype": "bfloat16",
}
SCALED_NEOX = {
    **NEOX,
    "hidden_size": 256,
    "hidden_act": "gelu_new",
    "rotary_pct": 0.5,
    "rotary_emb_base": 500,
    "rope_scaling": {"type": "linear", "factor": 4.0},
    "layer_norm_eps": 1e-2,
}
# Six heads, as ALiBi's slopes of a number that is no power of two are the classic mistake.
OPT = {
    "hidden_size": 192,
    "ffn_dim": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 24,
    "word_embed_proj_dim": 192,
    "vocab_size": VOCABULARY,
    "dropout": 0.0,
}
# As facebook/opt-350m: embeddings narrower than the model, norms after the residual.
OPT_350M = {**OPT, "word_embed_proj_dim": 16, "do_layer_norm_before": False}
BLOOM = {
    "hidden_size": 192,
    "n_layer": 3,
    "n_head": 6,
    "seq_length": 24,
    "vocab_size": VOCABULARY,
}
MPT = {"d_model": 192, "n_layers": 3, "n_heads": 6, "max_seq_len": 24, "vocab_size": VOCABULARY}
# Six heads, three layers, no width a power of two; GELU's tanh form, and a norm's epsilon that can be seen.
BERT = {
    "hidden_size": 192,
    "intermediate_size": 204,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 23,
    "type_vocab_size": 3,
    "vocab_size": VOCABULARY,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-5,
}
SHARDED = {"max_shard_size": "10KB"}
PICKLED = {"safe_serialization": False}
# kind -> (model class, configuration class, configuration, how it is saved)
KINDS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "gpt": ("GPT2LMHeadModel", "GPT2Config", GPT2, {}),
    "opt": ("OPTForCausalLM", "OPTConfig", OPT, {}),
    "opt-sharded": ("OPTForCausalLM", "OPTConfig", {**OPT, "torch_dtype": "bfloat16"}, SHARDED),
    "opt-350m": ("OPTForCausalLM", "OPTConfig", OPT_350M, PICKLED),
    "bloom": ("BloomForCausalLM", "BloomConfig", BLOOM, {}),
    "bloom-sharded": ("BloomForCausalLM", "BloomConfig", {**BLOOM, "n_head": 4}, {**SHARDED, **PICKLED}),
    "mpt": ("MptForCausalLM", "MptConfig", MPT, {}),
    "mpt-sharded": ("MptForCausalLM", "MptConfig", MPT, {**SHARDED, **PICKLED}),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", {**GPT2, "rotary_dim": 4}, PICKLED),
    "gptj-sharded": ("GPTJForCausalLM", "GPTJConfig", {**GPT2, "rotary_dim": 4}, SHARDED),
    "codegen": ("CodeGenForCausalLM", "CodeGenConfig", {**GPT2, "n_ctx": 24, "rotary_dim": 4}, {}),
    "codegen-pickled": (
        "CodeGenForCausalLM",
        "CodeGenConfig",
        {**GPT2, "n_head": 8, "n_embd": 256, "n_ctx": 24, "rotary_dim": 4},
        {**SHARDED, **PICKLED},
    ),
    "gptneox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", NEOX, SHARDED),
    "gptneox-serial": (
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        {**NEOX, "use_parallel_residual": False},
        PICKLED,
    ),
    "gptneox-scaled": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SCALED_NEOX, {}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA, {"max_shard_size": "500KB"}),
    "llama-tied": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**LLAMA, "tie_word_embeddings": True, "num_key_value_heads": 6, "rope_scaling": None},
        {"max_shard_size": "500KB", **PICKLED},
    ),
    "bert": ("BertModel", "BertConfig", BERT, {}),
    "t5-encoder": ("T5EncoderModel", "T5Config", T5, {}),
    # Whole, with a decoder that nobody wants; buckets as in T5's own checkpoints.
    "t5-encoder-gated": (
        "T5ForConditionalGeneration",
        "T5Config",
        {**T5, "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 32},
        PICKLED,
    ),
    "bert-head": ("BertForMaskedLM", "BertConfig", {**BERT, "hidden_act": "relu"}, {**SHARDED, **PICKLED}),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5, PICKLED),
    "t5-gated": (
        "T5ForConditionalGeneration",
        "T5Config",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        {},
    ),
}

# Of models that are computed: with larger numbers, answers would hang on roundings.
SPREAD = {
    "opt-350m": 0.2,
    "bert": 0.2,
    "bert-head": 0.2,
    "llama": 0.2,
    "llama-tied": 0.2,
    "gptneox-scaled": 0.2,
    "t5-encoder": 0.5,
    "t5-encoder-gated": 0.5,
}


def make(kind: str, folder: str, tensors: str) -> None:
    model_class, config_class, arguments, saving = KINDS[kind]
    torch.manual_seed(7)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**arguments))
    model.to(model.config.torch_dtype or torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases and norms are 0 and 1 otherwise, and a lost or swapped one would not show.
            parameter.copy_(SPREAD.get(kind, 1) * torch.randn_like(parameter))
    model.to(getattr(torch, arguments.get("torch_dtype", "float32"))).save_pretrained(folder, **saving)
    np.savez(tensors, **{name: value.float().numpy() for name, value in model.state_dict().items()})


def draw(model_class: str, config_class: str, settings: str, folder: str) -> None:
    torch.manual_seed(7)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**json.loads(settings)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    model.save_pretrained(folder)


def use_tanh(model: Any) -> None:
    """Replace the exact GELU by its tanh form: FasterTransformer has no other."""
    for module in model.modules():
        if isinstance(module, torch.nn.GELU):
            module.approximate = "tanh"
        elif isinstance(module, transformers.activations.GELUActivation):
            module.act = partial(torch.nn.functional.gelu, approximate="tanh")


def decoded(folder: str, prompt: str, answer: str, out: str) -> None:
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    use_tanh(model)
    ids, after = (torch.tensor([json.loads(text)]) for text in (prompt, answer))
    with torch.no_grad():
        np.save(out, model(input_ids=ids, decoder_input_ids=after).logits[0].numpy())


def same(folder: str, other: str) -> None:
    tokens = torch.arange(20).reshape(2, 10)
    with torch.no_grad():
        first, second = (
            transformers.AutoModelForCausalLM.from_pretrained(f).eval()(tokens).logits
            for f in (folder, other)
        )
    if not torch.allclose(first, second, rtol=1e-4, atol=1e-3 * first.abs().max().item()):
        raise SystemExit(f"logits differ by up to {(first - second).abs().max()}, of {first.abs().max()}")


def logits(folder: str, prompt: str, out: str) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    use_tanh(model)
    with torch.no_grad():
        ids = torch.arange(int(prompt)) if prompt.isdigit() else torch.tensor(json.loads(prompt))
        np.save(out, model(ids[None]).logits[0].numpy())


def states(folder: str, prompts: str, out: str) -> None:
    t5 = transformers.AutoConfig.from_pretrained(folder).model_type == "t5"
    loader = transformers.T5EncoderModel if t5 else transformers.AutoModel
    model = loader.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        found = [model(torch.tensor([prompt])).last_hidden_state[0].numpy() for prompt in json.loads(prompts)]
    np.savez(out, **{str(number): array for number, array in enumerate(found)})


def slopes(number: str) -> None:
    bloom_module, mpt_module = transformers.models.bloom.modeling_bloom, transformers.models.mpt.modeling_mpt
    for heads in range(1, int(number) + 1):
        bloom = bloom_module.build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
        mpt = -mpt_module.build_mpt_alibi_tensor(heads, 2)[:, 0, 0]
        print(json.dumps([bloom.tolist(), mpt.tolist()]))


def run(path: str, script: str, *arguments: str) -> None:
    os.environ["PYTHONPATH"] = path  # for processes that it spawns
    sys.path[:0] = [str(Path(script).parent), path]
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


COMMANDS: dict[str, Callable[..., None]] = {
    "make": make,
    "draw": draw,
    "decoded": decoded,
    "same": same,
    "logits": logits,
    "states": states,
    "slopes": slopes,
    "run": run,
}


def forked(name: str, *arguments: str) -> tuple[int, str]:
    """The exit code of a command in a process of its own, and what it said."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            code = 1
            try:
                COMMANDS[name](*arguments)
                code = 0
            except SystemExit as ended:
                code = 0 if ended.code in (None, 0) else 1
                print(ended.code or "", file=sys.stderr)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read()


if __name__ == "__main__":
    for model_class, config_class, *_ in KINDS.values():
        # transformers imports a model when it is first named: here, once for all.
        getattr(transformers, model_class), getattr(transformers, config_class)
    for line in sys.stdin:
        print(json.dumps(forked(*json.loads(line))), flush=True)
