"""Write a small random LLaMA whose answers are text: python -m tests.gpu.programs.text_llama FOLDER

Needs torch and transformers, as SDK images have. Odd shapes: queries 6 to 2, 3 layers. Tokens 0 to 255 are
bytes, and only printable ones of ASCII are ever the best. `answers.json` has transformers' greedy answers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from testing import bytelevel

PROMPTS = ("Hi", "The moon is", "u:Hello;a:")
LENGTH = 24
TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:"


def main(folder: Path) -> None:
    """Write checkpoint, tokenizer and answers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    shape = LlamaConfig(
        vocab_size=bytelevel.END + 1,
        hidden_size=384,
        intermediate_size=1000,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.2,
        bos_token_id=bytelevel.END - 1,
        eos_token_id=bytelevel.END,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(shape).eval()
    with torch.no_grad():
        for token in range(shape.vocab_size):
            if not ord(" ") <= token < 127:
                model.lm_head.weight[token].zero_()
    model.save_pretrained(folder, safe_serialization=True)
    bytelevel.write(folder)
    described = {"chat_template": TEMPLATE, "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described), encoding="utf-8")
    answers = {}
    for prompt in PROMPTS:
        ids = torch.tensor([list(prompt.encode())])
        found = model.generate(ids, max_new_tokens=LENGTH, do_sample=False, pad_token_id=bytelevel.END)
        answers[prompt] = bytes(found[0, ids.shape[1] :].tolist()).decode()
    (folder / "answers.json").write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
