"""Whether a tokenizer fits a model: the one place that compares the two, for every command that has both.

What makes wrong answers is refused. Where files contradict each other and transformers v4.46.3 takes a side,
so does the server, and a warning names both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, contradictions, tokenizer, untrusted
from ftbuild.models.config_ini import ConvertedModel
from ftbuild.models.tokenization import declared
from ftbuild.models.tokenizer import ANOTHER, Tokenizer

# How transformers' generate ends answers; it counts before config.json (modeling_utils.py, from_pretrained).
GENERATION = "generation_config.json"
# Tables are padded: by less than 128 rows, or by a thirty-second. Known are 7 (OPT), 200 (BLOOM), 905 of
# 51200 (CodeGen), and 2385 of 102400 (DeepSeek).
PADDING, PART = 128, 32
# Families trained with tokens around every text: in front of it, behind it.
_AROUND: Mapping[str, tuple[bool, bool]] = {
    "t5": (False, True), "t5-encoder": (False, True), "bert": (True, True),
}  # fmt: skip
# Families whose decoder begins with a token of its own, by convention that for padding (modeling_t5.py,
# _shift_right). Others continue what the tokenizer makes.
_DECODERS = frozenset({"t5"})


@dataclass(frozen=True)
class Model:
    """What a model has to do with a tokenizer.

    `vocabulary` are the rows of its table of tokens, 0 where they are unknown. `start` and `end` are the
    tokens with which FasterTransformer begins and ends an answer; None: the model has none. `source` is the
    file that says so.
    """

    family: str
    vocabulary: int
    start: int | None
    end: int | None
    source: str


def of_weights(weights: ConvertedModel) -> Model:
    """Return what converted weights have to do with a tokenizer."""
    start, end = (weights.token(name) for name in ("start_id", "end_id"))
    return Model(weights.family, weights.vocab_size, start, end, config_ini.FILE)


def of_checkpoint(family: str, facts: Mapping[str, int]) -> Model:
    """Return what a checkpoint has to do with a tokenizer, by the numbers of its config.json."""
    return Model(family, facts["vocabulary"], facts.get("start"), facts.get("end"), declared.MODEL)


def check(folder: Path, model: Model) -> tuple[str, ...]:
    """Return warnings about the tokenizer in `folder` with a model; ConfigError when the two do not fit."""
    source = tokenizer.read(folder)
    contradictions.require_none(source)
    _require_rows(source, model)
    return tuple(dict.fromkeys([*contradictions.warnings(source), *_warnings(source, model)]))


def complaints(folder: Path, model: Model) -> tuple[str, ...]:
    """Return the same as `check`, what it would refuse among it: for a command that needs no tokenizer."""
    try:
        return check(folder, model)
    except ConfigError as refused:
        return (f"the tokenizer does not fit, and invoke model-repo will refuse it: {refused.what}",)


def require_own_rows(model: Model, where: Path) -> None:
    """Raise ConfigError unless a model has rows for the tokens with which it begins and ends an answer.

    FasterTransformer looks the first one up in the table, and masks the other in the logits wherever its
    place would be (FT v5.3 sampling_penalty_kernels.cu:504).
    """
    for what, number in (("start", model.start), ("end", model.end)):
        if number is not None and number >= model.vocabulary > 0:
            raise ConfigError(
                f"the {what} token is {number} in {model.source}, the weights have {model.vocabulary} tokens",
                where=str(where),
                hint="convert again with a config.json whose tokens are in the vocabulary",
            )


def _warnings(tokenizer: Tokenizer, model: Model) -> Iterator[str]:
    yield from _of_size(tokenizer, model)
    yield from _of_around(tokenizer, model)
    if model.end is not None:
        yield from _of_end(tokenizer, model, model.end)
    if model.start is not None:
        yield from _of_start(tokenizer, model, model.start)


def _require_rows(tokenizer: Tokenizer, model: Model) -> None:
    """Raise ConfigError unless the model has a row for every token of the files, and for its own."""
    rows = model.vocabulary
    if not rows:
        return
    largest = max(tokenizer.held.values(), default=-1)
    if largest >= rows:
        raise ConfigError(
            f"the tokenizer has tokens up to {largest}, the weights have {rows} tokens",
            where=str(tokenizer.file),
            hint=ANOTHER,
        )
    require_own_rows(model, tokenizer.folder)
    if outside := [number for number in (*tokenizer.begins, *tokenizer.ends) if not 0 <= number < rows]:
        raise ConfigError(
            f"the tokenizer puts the token {outside[0]} around a text, the weights have {rows} tokens",
            where=str(tokenizer.file),
            hint=ANOTHER,
        )


def _of_size(tokenizer: Tokenizer, model: Model) -> Iterator[str]:
    known = max(tokenizer.held.values(), default=-1) + 1
    unused = model.vocabulary - known
    if unused >= PADDING and unused * PART > model.vocabulary:
        yield (
            f"the weights have {model.vocabulary} tokens, the tokenizer {known}: does it belong to "
            "another model?"
        )


def _of_around(tokenizer: Tokenizer, model: Model) -> Iterator[str]:
    front, behind = _AROUND.get(model.family, (False, False))
    for place, needed, there in (
        ("in front of", front, tokenizer.begins),
        ("behind", behind, tokenizer.ends),
    ):
        if needed and not there:
            trained = f"{model.family} was trained with a token {place} every text"
            yield f"{trained}; this tokenizer adds none, and neither does transformers"


def _of_end(tokenizer: Tokenizer, model: Model, end: int) -> Iterator[str]:
    yield from _of_generation(tokenizer, model, end, "eos_token_id", "ends answers")
    declared = tokenizer.declared
    text = declared.text("eos_token")
    named = None if text is None else tokenizer.held.get(text)
    if named is not None and named != end:
        yield (
            f"{model.source} ends answers at token {tokenizer.shown(end)}, the eos_token of "
            f"{_source(tokenizer, 'eos_token')} is {tokenizer.shown(named)}: the former is used, as by "
            "transformers; answers may stop early, or too late"
        )
    if named is None and not _is_special(tokenizer, end):
        yield (
            f"{model.source} ends answers at token {tokenizer.shown(end)}, which is no special token of the "
            "tokenizer: they may stop early, or too late"
        )


def _of_start(tokenizer: Tokenizer, model: Model, start: int) -> Iterator[str]:
    decodes = model.family in _DECODERS
    if decodes:
        yield from _of_generation(tokenizer, model, start, "decoder_start_token_id", "begins answers")
    attribute = "pad_token" if decodes else "bos_token"
    text = tokenizer.declared.text(attribute)
    named = None if text is None or attribute not in tokenizer.declared.sources else tokenizer.held.get(text)
    if named is not None and named != start:
        use = (
            "answers begin with the former"
            if decodes
            else "prompts begin with what the tokenizer puts there, whatever the former is"
        )
        yield (
            f"{model.source} has the start token {tokenizer.shown(start)}, the {attribute} of "
            f"{_source(tokenizer, attribute)} is {tokenizer.shown(named)}: {use}"
        )


def _of_generation(tokenizer: Tokenizer, model: Model, number: int, key: str, does: str) -> Iterator[str]:
    """Yield where transformers would take other tokens than the weights: by generation_config.json first."""
    for name in (GENERATION, declared.MODEL):
        file = tokenizer.folder / name
        if not file.is_file() or name == model.source:
            continue
        untrusted.require_inside(tokenizer.folder, file)
        written = untrusted.json_object(file, name, ANOTHER).get(key)
        tokens = [token for token in _as_list(written) if type(token) is int]
        if not tokens:
            continue
        shown = " or ".join(map(tokenizer.shown, tokens))
        if number not in tokens:
            yield (
                f"{model.source} {does} at token {tokenizer.shown(number)}, {name} ({key}) at {shown}: the "
                "server takes the former, transformers the latter"
            )
        elif len(tokens) > 1:
            yield (
                f"{name} {does} at {shown}, {model.source} at {number} alone, which the server takes: send "
                "the others as stop words"
            )
        return


def _as_list(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else [value]


def _source(tokenizer: Tokenizer, attribute: str) -> str:
    """Return what names a special token."""
    return (
        tokenizer.declared.sources.get(attribute) or f"{tokenizer.declared.kind or declared.GPT2} by default"
    )


def _is_special(tokenizer: Tokenizer, number: int) -> bool:
    specials = {token.content for token in tokenizer.declared.to_add() if token.special}
    listed: Iterable[Any] = tokenizer.content.get("added_tokens") or []
    specials |= {entry["content"] for entry in listed if entry.get("special")}
    return any(tokenizer.ids.get(token) == number for token in specials)
