"""Another engine in a process of its own: it answers requests from standard input, one line of JSON each.

python -m benchmarks.topics.inference.engine vLLM CHECKPOINT <<<'{"prompts": [[5, 6, 7]], "length": 8}'

The first line of output says `version` and `settings`; each later one has the `tokens` after the prompts.
What the engine itself prints goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Protocol

Rows = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Sizes:
    """The limits of all requests: tokens of a prompt with its answer, and rows of a batch."""

    tokens: int
    rows: int


CONVERTED = "ctranslate2"
# The part of the GPU's memory that vLLM takes: less than its default, since transformers' model is there.
MEMORY = 0.6


class Engine(Protocol):
    """An engine that continues prompts of equal length greedily in fp16, and not beyond `sizes`."""

    package: str

    def __init__(self, checkpoint: Path, sizes: Sizes, device: str) -> None:
        """Load a checkpoint of transformers."""
        ...

    @property
    def settings(self) -> Mapping[str, str]:
        """Return the settings that differ from the engine's defaults."""
        ...

    @staticmethod
    def prepare(checkpoint: Path) -> None:
        """Write what the engine needs beside the checkpoint."""
        ...

    def answer(self, prompts: Rows, length: int) -> list[list[int]]:
        """Return the `length` tokens after each prompt."""
        ...


class Vllm:
    """vLLM's offline engine, with its defaults: compiled, with CUDA graphs, and FlashAttention where it is.

    Without prefix caching, since every run has the same prompts (vllm.LLM, enable_prefix_caching). It is told
    the largest batch, so that it captures no graphs for larger ones.
    """

    package = "vllm"

    def __init__(self, checkpoint: Path, sizes: Sizes, device: str) -> None:
        from vllm import LLM  # type: ignore[import-not-found,unused-ignore]

        self._options: dict[str, Any] = {
            "dtype": "float16",
            "max_model_len": sizes.tokens,
            "max_num_seqs": sizes.rows,
            "enable_prefix_caching": False,
            "gpu_memory_utilization": MEMORY,
        }
        self._llm = LLM(str(checkpoint), skip_tokenizer_init=True, **self._options)

    @property
    def settings(self) -> Mapping[str, str]:
        """Return the options of `LLM`."""
        return {name: str(value) for name, value in self._options.items()}

    @staticmethod
    def prepare(checkpoint: Path) -> None:
        """Do nothing: it reads the checkpoint."""

    def answer(self, prompts: Rows, length: int) -> list[list[int]]:
        """Return the tokens of one call with all prompts."""
        from vllm import SamplingParams

        params = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True, detokenize=False)
        rows = [{"prompt_token_ids": list(row)} for row in prompts]
        answers = self._llm.generate(rows, params, use_tqdm=False)
        return [list(answer.outputs[0].token_ids) for answer in answers]


class Ctranslate2:
    """CTranslate2 over converted weights; its tokens are words, here the numbers as text."""

    package = "ctranslate2"

    def __init__(self, checkpoint: Path, sizes: Sizes, device: str, number: str = "") -> None:
        import ctranslate2  # type: ignore[import-not-found,unused-ignore]

        number = number or ("float16" if device == "cuda" else "float32")
        self._options = {"compute_type": number}
        folder = str(checkpoint.with_name(CONVERTED))
        self._translates = _config(checkpoint).get("is_encoder_decoder", False)
        kind_of = ctranslate2.Translator if self._translates else ctranslate2.Generator
        self._model = kind_of(folder, device=device, **self._options)

    @property
    def settings(self) -> Mapping[str, str]:
        """Return the options of `Generator` or `Translator`."""
        return self._options

    @staticmethod
    def prepare(checkpoint: Path) -> None:
        """Convert the checkpoint, which gets a tokenizer for it."""
        from ctranslate2.converters import (  # type: ignore[import-not-found,unused-ignore]
            TransformersConverter,
        )

        write_tokenizer(checkpoint)
        _name_as_before()
        converter = TransformersConverter(str(checkpoint), load_as_float16=True, low_cpu_mem_usage=True)
        converter.convert(str(checkpoint.with_name(CONVERTED)), quantization="float16", force=True)

    def answer(self, prompts: Rows, length: int) -> list[list[int]]:
        """Return the tokens of one call with all prompts."""
        words = [[str(token) for token in row] for row in prompts]
        if self._translates:
            translated = self._model.translate_batch(
                words, beam_size=1, max_decoding_length=length, min_decoding_length=length
            )
            return [[int(word) for word in answer.hypotheses[0]] for answer in translated]
        results = self._model.generate_batch(
            words, max_length=length, min_length=length, sampling_topk=1, include_prompt_in_result=False
        )
        return [list(answer.sequences_ids[0]) for answer in results]

    def batch(self, prompts: Rows, lengths: Sequence[int], report: Callable[[int, int], None]) -> None:
        """Continue each prompt by its own number of tokens, and emit row and token as soon as there is one.

        A row that has all its tokens leaves the batch (`callback`).
        """
        words = [[str(token) for token in row] for row in prompts]
        left, longest = list(lengths), max(lengths)

        def step(result: Any) -> bool:
            row: int = result.batch_id
            if left[row] > 0:
                left[row] -= 1
                report(row, result.token_id)
            return left[row] <= 0

        if self._translates:
            limits = {"max_decoding_length": longest, "min_decoding_length": longest}
            self._model.translate_batch(words, beam_size=1, callback=step, **limits)
        else:
            limits = {"max_length": longest, "min_length": longest}
            self._model.generate_batch(
                words, sampling_topk=1, include_prompt_in_result=False, callback=step, **limits
            )


ENGINES: Mapping[str, type[Engine]] = {"vLLM": Vllm, "CTranslate2": Ctranslate2}


def serve(engine: Engine, requests: IO[str], replies: IO[str]) -> None:
    """Say what the engine is, then answer each line."""
    _say(replies, {"version": version(engine.package), "settings": dict(engine.settings)})
    for line in requests:
        request = json.loads(line)
        _say(replies, {"tokens": engine.answer(request["prompts"], request["length"])})


def main() -> None:
    """Prepare or serve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--tokens", type=int, default=1024, help="of the longest prompt and answer (1024)")
    parser.add_argument("--rows", type=int, default=8, help="of the largest batch (8)")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a rehearsal")
    parser.add_argument("--prepare", action="store_true", help="only write what the engine needs")
    options = parser.parse_args()
    kind = ENGINES[options.engine]
    # Engines and their children print to the standard output that they find.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if options.prepare:
        kind.prepare(options.checkpoint)
    else:
        sizes = Sizes(options.tokens, options.rows)
        serve(kind(options.checkpoint, sizes, options.device), sys.stdin, replies)


def _say(replies: IO[str], reply: Mapping[str, Any]) -> None:
    print(json.dumps(reply), file=replies, flush=True)


def _name_as_before() -> None:
    """Give GPT-NeoX its names of transformers 4 (CTranslate2 4.8.5 converters/transformers.py:1424, 1433)."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    GPTNeoXConfig.rotary_pct = property(lambda config: config.rope_parameters["partial_rotary_factor"])
    GPTNeoXForCausalLM.embed_out = property(lambda model: model.lm_head)


def _config(checkpoint: Path) -> Mapping[str, Any]:
    settings: Mapping[str, Any] = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    return settings


def write_tokenizer(checkpoint: Path) -> None:
    """Give a checkpoint a tokenizer whose words are the numbers of the tokens."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel  # type: ignore[import-untyped,unused-ignore]
    from transformers import PreTrainedTokenizerFast

    config = _config(checkpoint)
    words = {str(number): number for number in range(config["vocab_size"])}
    end = str(config["eos_token_id"])
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token=end)),
        bos_token=end,
        eos_token=end,
        unk_token=end,
        pad_token=str(config.get("pad_token_id") or 0),
    ).save_pretrained(checkpoint)


if __name__ == "__main__":
    main()
