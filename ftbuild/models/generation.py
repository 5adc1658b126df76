"""What a checkpoint says of how answers are generated, and what becomes of it.

transformers' generate takes generation_config.json, and config.json where there is none (v4.46.3
modeling_utils.py, from_pretrained). What no request can ask the server for is refused: its answers would be
others. What a request can ask for is not carried over, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ftbuild.models import untrusted
from ftbuild.models.settings import value
from ftbuild.models.weight_files import FETCH_AGAIN

FILE, MODEL = "generation_config.json", "config.json"
_DECODER = "decoder_start_token_id"
# Key -> values that change nothing, besides null and none at all (v4.46.3 configuration_utils.py,
# GenerationConfig; logits_process.py).
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "forced_decoder_ids": (),
    "begin_suppress_tokens": (),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "constraints": (),
    "sequence_bias": (),
    "guidance_scale": (1,),
    "penalty_alpha": (0,),
    "dola_layers": (),
    "watermarking_config": (),
    "token_healing": (False,),
}
# Key -> the same, and the tensor of a request that asks for it, if any does.
_REQUESTED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "bad_words_ids": ((), "bad_words_list"),
    "suppress_tokens": ((), "bad_words_list"),
    "stop_strings": ((), "stop_words_list"),
    "repetition_penalty": ((1,), "repetition_penalty"),
    "min_length": ((0,), "min_length"),
    "min_new_tokens": ((0,), "min_length"),
    "num_beams": ((1,), "beam_width"),
    "num_beam_groups": ((1,), ""),
    "length_penalty": ((1,), "len_penalty"),
}
# These count where do_sample is true.
_SAMPLED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "temperature": ((1,), "temperature"),
    "top_k": ((0,), "runtime_top_k"),
    "top_p": ((1,), "runtime_top_p"),
    "min_p": ((0,), ""),
    "typical_p": ((1,), ""),
    "epsilon_cutoff": ((0,), ""),
    "eta_cutoff": ((0,), ""),
}


def obstacles(folder: Path, settings: Mapping[str, Any], assumed: Collection[str]) -> Iterator[str]:
    """Yield what changes answers, and no request can ask for.

    `settings` is config.json, whose keys in `assumed` are refused elsewhere.
    """
    name, written = _effective(folder, settings)
    for key, without in _REFUSED.items():
        if _is_set(written, key, without) and not (name == MODEL and key in assumed):
            yield (
                f"{key} is {untrusted.shown(written[key])} in {name}; transformers generates with it, and no "
                "request can ask the server for that: take it out of a copy where your clients do without"
            )


def warnings(folder: Path, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence about defaults of requests that the server does not take over, if there are any."""
    name, written = _effective(folder, settings)
    requested = {**_REQUESTED, **(_SAMPLED if written.get("do_sample") is True else {})}
    defaults = [
        f"{key} {untrusted.shown(written[key])} ({f'send {tensor}' if tensor else 'no request has that'})"
        for key, (without, tensor) in requested.items()
        if _is_set(written, key, without)
    ]
    if defaults:
        yield f"{name} has defaults for requests, which the server does not take over: {', '.join(defaults)}"


def other_tokens(folder: Path, facts: Mapping[str, int], settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield where transformers begins or ends answers at other tokens than the weights will.

    For a folder without a tokenizer: `fit` compares them where there is one.
    """
    name, written = _effective(folder, settings)
    tokens = {"end": "eos_token_id"} | ({"start": _DECODER} if _DECODER in settings else {})
    for fact, key in tokens.items():
        setting = value(written, key)
        listed = setting if isinstance(setting, list) else [setting]
        others = [token for token in listed if type(token) is int and token != facts.get(fact)]
        if name == FILE and others:
            yield (
                f"{key} is {untrusted.shown(setting)} in {name}; the server takes {MODEL}'s {facts.get(fact)}"
                + (", clients can send the others as stop words" if fact == "end" else "")
            )


def _effective(folder: Path, settings: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    file = folder / FILE
    if not file.is_file():
        return MODEL, settings
    untrusted.require_inside(folder, file)
    return FILE, untrusted.json_object(file, f"a {FILE}", FETCH_AGAIN)


def _is_set(written: Mapping[str, Any], key: str, without: Collection[Any]) -> bool:
    setting = value(written, key)
    return setting is not None and setting not in without
