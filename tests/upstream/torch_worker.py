"""Runs scripts and makes tiny random checkpoints; for a Python that has torch and transformers.

Importing the two takes longer than anything that is done with them. So this is one process that imports them,
reads a JSON list a line, and answers each with a line [exit code, output] from a process forked for it:

    ["make", KIND, FOLDER, TENSORS.npz]  save a model and its tensors, by transformers' names, in fp32
    ["same", FOLDER, OTHER]              fail unless the two models give the same logits
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
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

VOCABULARY = 51
GPT2 = {
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 24,
    "vocab_size": VOCABULARY,
    "bos_token_id": 49,
    "eos_token_id": 50,
    "initializer_range": 0.5,
}
NEOX = {
    "hidden_size": 32,
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
    "d_kv": 16,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 12,
    "vocab_size": VOCABULARY,
    "decoder_start_token_id": 0,
    "eos_token_id": 1,
}
SHARDED = {"max_shard_size": "10KB"}
PICKLED = {"safe_serialization": False}
# kind -> (model class, configuration class, configuration, how it is saved)
KINDS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "gpt": ("GPT2LMHeadModel", "GPT2Config", GPT2, {}),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", {**GPT2, "rotary_dim": 4}, PICKLED),
    "gptj-sharded": ("GPTJForCausalLM", "GPTJConfig", {**GPT2, "rotary_dim": 4}, SHARDED),
    "codegen": ("CodeGenForCausalLM", "CodeGenConfig", {**GPT2, "n_ctx": 24, "rotary_dim": 4}, {}),
    "codegen-pickled": (
        "CodeGenForCausalLM",
        "CodeGenConfig",
        {**GPT2, "n_head": 8, "n_ctx": 24, "rotary_dim": 4},
        {**SHARDED, **PICKLED},
    ),
    "gptneox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", NEOX, SHARDED),
    "gptneox-serial": (
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        {**NEOX, "use_parallel_residual": False},
        PICKLED,
    ),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5, PICKLED),
    "t5-gated": (
        "T5ForConditionalGeneration",
        "T5Config",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        {},
    ),
}


def make(kind: str, folder: str, tensors: str) -> None:
    model_class, config_class, arguments, saving = KINDS[kind]
    torch.manual_seed(7)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**arguments))
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases and norms are 0 and 1 otherwise, and a lost or swapped one would not show.
            parameter.copy_(torch.randn_like(parameter))
    model.save_pretrained(folder, **saving)
    np.savez(tensors, **{name: value.float().numpy() for name, value in model.state_dict().items()})


def same(folder: str, other: str) -> None:
    tokens = torch.arange(20).reshape(2, 10)
    with torch.no_grad():
        first, second = (
            transformers.AutoModelForCausalLM.from_pretrained(f).eval()(tokens).logits
            for f in (folder, other)
        )
    if not torch.allclose(first, second, rtol=1e-4, atol=1e-3 * first.abs().max().item()):
        raise SystemExit(f"logits differ by up to {(first - second).abs().max()}, of {first.abs().max()}")


def run(path: str, script: str, *arguments: str) -> None:
    os.environ["PYTHONPATH"] = path  # for processes that it spawns
    sys.path[:0] = [str(Path(script).parent), path]
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


COMMANDS: dict[str, Callable[..., None]] = {"make": make, "same": same, "run": run}


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
