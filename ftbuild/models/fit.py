"""Whether a tokenizer fits a model: the one place that compares the two, for every command that has both.

What makes wrong answers is refused. Where files contradict each other and transformers v4.46.3 takes a side,
so does the server, and a warning names both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, tokenizer, untrusted
from ftbuild.models.config_ini import ConvertedModel
from ftbuild.models.tokenization import declared
from ftbuild.models.tokenization.declared import ADDED, CONFIG
from ftbuild.models.tokenization.declared import TOKENIZER as WHOLE
from ftbuild.models.tokenizer import ANOTHER, SAVE, Tokenizer

# How transformers' generate ends answers; it counts before config.json (modeling_utils.py, from_pretrained).
GENERATION = "generation_config.json"
# Tables are padded: by at most 128 rows, or a thirty-second. Known are 7 (OPT) to 905 of 51200 (CodeGen), and
# 2385 of 102400 (DeepSeek).
PADDING, PART = 128, 32
# Families trained with tokens around every prompt: in front of it, behind it.
_AROUND: Mapping[str, tuple[bool, bool]] = {
    "t5": (False, True), "t5-encoder": (False, True), "bert": (True, True),
}  # fmt: skip
# The token that T5's decoder begins with is the one for padding (modeling_t5.py, _shift_right).
_STARTS: Mapping[str, str] = {"t5": "pad_token"}
_START = "bos_token"


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
    found = tokenizer.read(folder)
    require(found, model)
    return tuple(dict.fromkeys(warnings(found, model)))


def complaints(folder: Path, model: Model) -> tuple[str, ...]:
    """Return the same as `check`, what it would refuse among it: for a command that needs no tokenizer."""
    try:
        return check(folder, model)
    except ConfigError as refused:
        return (f"the tokenizer does not fit, and invoke model-repo will refuse it: {refused.what}",)


def require(found: Tokenizer, model: Model) -> None:
    """Raise ConfigError for a tokenizer whose ids are not the model's, or not those of transformers."""
    _require_rows(found, model)
    _require_ids(found)
    prefix = found.declared.options.get("add_prefix_space")
    if found.declared.kind in declared.FROM_PIECES and prefix is not None:
        _require_prefix(found, bool(prefix))


def warnings(found: Tokenizer, model: Model) -> Iterator[str]:
    """Yield a sentence for each thing that files say of a tokenizer, or of it and a model, in two ways."""
    yield from _of_ids(found)
    yield from _of_class(found)
    yield from _of_text(found, model)
    yield from _of_named(found, model)
    yield from _of_ends(found, model)
    yield from _of_size(found, model)


def _require_rows(found: Tokenizer, model: Model) -> None:
    """Raise ConfigError unless the model has a row for every token of the files, and for its own."""
    rows = model.vocabulary
    if not rows:
        return
    largest = max(found.held.values(), default=-1)
    if largest >= rows:
        raise ConfigError(
            f"the tokenizer has tokens up to {largest}, the weights have {rows} tokens",
            where=str(found.file),
            hint=ANOTHER,
        )
    for what, number in (("start", model.start), ("end", model.end)):
        if number is not None and number >= rows:
            raise ConfigError(
                f"the {what} token is {number} in {model.source}, the weights have {rows} tokens",
                where=str(found.folder),
                hint="convert again with a config.json whose tokens are in the vocabulary",
            )
    if outside := [n for n in (*found.begins, *found.ends) if not 0 <= n < rows]:
        raise ConfigError(
            f"the tokenizer puts the token {outside[0]} around a text, the weights have {rows} tokens",
            where=str(found.file),
            hint=ANOTHER,
        )


def _require_ids(found: Tokenizer) -> None:
    """Raise ConfigError when two tokens have one id, or one gets another id than its file says."""
    twice = [number for number, count in Counter(found.ids.values()).items() if count > 1]
    if twice:
        tokens = [untrusted.shown(token) for token, number in found.ids.items() if number == twice[0]]
        raise ConfigError(
            f"the tokens {' and '.join(tokens[:2])} have the same id, {twice[0]}",
            where=str(found.file),
            hint=ANOTHER,
        )
    own = {*found.vocabulary, *(claim.token for claim in found.claims if claim.file == WHOLE)}
    for claim in found.claims:
        if not claim.counts or found.ids[claim.token] == claim.number:
            continue
        if not found.whole or claim.token not in own:
            raise ConfigError(
                f"{claim.file} gives {untrusted.shown(claim.token)} the id {claim.number}, and it would get "
                f"{found.ids[claim.token]}: an added token gets the id that it has in the vocabulary, or the "
                "next free one",
                where=str(found.folder / claim.file),
                hint="put the token into the vocabulary of tokenizer.json, with the id that the model knows",
            )


def _require_prefix(found: Tokenizer, wanted: bool) -> None:
    """Raise ConfigError unless tokenizer.json begins texts with a blank as tokenizer_config.json says.

    With that option transformers makes the tokenizer anew from the pieces, whatever is in tokenizer.json
    (tokenization_llama_fast.py, tokenization_t5_fast.py).
    """
    parts = (
        *tokenizer.steps(found.content.get("normalizer")),
        *tokenizer.steps(found.content.get("pre_tokenizer")),
    )
    there = any(
        step.get("type") == "Prepend"
        or (step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never")
        for step in parts
    )
    if there != wanted:
        raise ConfigError(
            f"{CONFIG} has add_prefix_space {str(wanted).lower()}, and {WHOLE} "
            + ("begins texts with a blank" if there else "begins no text with a blank"),
            where=str(found.file),
            hint=SAVE,
        )


def _of_ids(found: Tokenizer) -> Iterator[str]:
    for claim in found.claims:
        given = found.ids.get(claim.token)
        if given is None:
            yield (
                f"{claim.file} has the token {untrusted.shown(claim.token)}, {CONFIG} has not: it is left out, "
                "as by transformers"
            )
        elif given != claim.number:
            yield (
                f"{claim.file} gives {untrusted.shown(claim.token)} the id {claim.number}, "
                f"{_other(found, claim.file)} {given}, which transformers takes, and the server likewise"
            )
    for name, ids in tokenizer.template_ids(found.content).items() if found.content else ():
        given = found.ids.get(name)
        if found.declared.kind not in declared.TEMPLATES and given is not None and ids != [given]:
            yield (
                f"{WHOLE} puts {untrusted.shown(name)} around a text as {ids}, though its id is {given}: "
                "the former is sent, as by transformers"
            )


def _other(found: Tokenizer, file: str) -> str:
    if file == WHOLE:
        return "the library tokenizers"
    return WHOLE if found.whole else CONFIG if file == ADDED else "the vocabulary"


def _of_class(found: Tokenizer) -> Iterator[str]:
    said = found.declared
    custom = said.options.get("auto_map")
    if isinstance(custom, dict) and "AutoTokenizer" in custom:
        yield (
            f"{CONFIG} names code of the checkpoint for its tokenizer, which never runs here: {found.file.name} "
            "is taken as it is"
        )
    elif said.kind is not None and said.kind not in declared.KNOWN:
        yield (
            f"transformers reads this tokenizer with its class {untrusted.plain(said.kind)}, which may change "
            f"it; {WHOLE} is taken as it is"
        )


def _of_text(found: Tokenizer, model: Model) -> Iterator[str]:
    """Yield where tokenizer.json and tokenizer_config.json treat a text in two ways."""
    said = found.declared
    for flag, there in (("add_bos_token", found.begins), ("add_eos_token", found.ends)):
        if not found.whole:
            continue
        held = tokenizer.template(found.content)[0 if flag == "add_bos_token" else 1]
        if said.kind in declared.TEMPLATES:
            if list(held) != list(there):
                yield (
                    f"{WHOLE} puts {_listed(found, held)} {_place(flag)} a text, {said.kind} with its {flag} "
                    f"{_listed(found, there)}: transformers takes the latter, and the server likewise"
                )
        elif flag in said.options and bool(said.options[flag]) != bool(held):
            yield (
                f"{CONFIG} has {flag} {str(said.flag(flag)).lower()}, {WHOLE} puts {_listed(found, held)} "
                f"{_place(flag)} a text: transformers takes the latter, and the server likewise"
            )
    yield from _of_normalizer(found)
    wanted = _AROUND.get(model.family, (False, False))
    for flag, needed, there in (
        ("add_bos_token", wanted[0], found.begins),
        ("add_eos_token", wanted[1], found.ends),
    ):
        if needed and not there:
            yield (
                f"{model.family} was trained with a token {_place(flag)} every text, and this tokenizer puts "
                "none there, in transformers neither"
            )


def _of_normalizer(found: Tokenizer) -> Iterator[str]:
    said = found.declared
    if not found.whole:
        return
    if said.kind in declared.PREFIXES:
        top = found.content.get("pre_tokenizer")
        held = top.get("add_prefix_space") if isinstance(top, dict) else None
        if held is not None and bool(held) != (wanted := said.flag("add_prefix_space")):
            yield _two("add_prefix_space", held, wanted)
    if said.kind in declared.BERT:
        top = found.content.get("normalizer")
        held = top.get("lowercase") if isinstance(top, dict) and top.get("type") == "BertNormalizer" else None
        if held is not None and bool(held) != (wanted := said.flag("do_lower_case", True)):
            yield _two("do_lower_case", held, wanted)


def _two(option: str, held: object, wanted: bool) -> str:
    return (
        f"{WHOLE} has {option} {str(bool(held)).lower()}, {CONFIG} {str(wanted).lower()}, maybe by default: "
        "transformers takes the latter, and the server likewise"
    )


def _of_named(found: Tokenizer, model: Model) -> Iterator[str]:
    """Yield special tokens that a file names, and the vocabulary lacks."""
    held = found.held
    for attribute, file in found.declared.sources.items():
        text = found.declared.text(attribute)
        if text is not None and text not in held:
            yield (
                f"{file} names {untrusted.shown(text)} as {attribute}, which is not in the vocabulary: "
                f"transformers gives it the id {found.ids.get(text)}, for which the model was not trained"
            )


def _of_ends(found: Tokenizer, model: Model) -> Iterator[str]:
    if model.end is not None:
        yield from _of_generation(found, model)
        yield from _of_special(found, model, "end", model.end, "eos_token")
    if model.start is not None:
        yield from _of_special(found, model, "start", model.start, _STARTS.get(model.family, _START))


def _of_generation(found: Tokenizer, model: Model) -> Iterator[str]:
    """Yield where transformers would end an answer at other tokens than the weights."""
    for name in (GENERATION, declared.MODEL):
        file = found.folder / name
        if not file.is_file() or name == model.source:
            continue
        untrusted.require_inside(found.folder, file)
        written = untrusted.json_object(file, name, ANOTHER).get("eos_token_id")
        ends = [n for n in (written if isinstance(written, list) else [written]) if type(n) is int]
        if not ends:
            continue
        shown = " or ".join(found.shown(number) for number in ends)
        if model.end not in ends:
            yield (
                f"{model.source} ends answers at token {found.shown(model.end or 0)}, {name} at {shown}: answers "
                f"end as {model.source} says, in transformers as {name} does"
            )
        elif len(ends) > 1:
            yield (
                f"{name} ends answers at {shown}; FasterTransformer ends them at {model.end} alone, others "
                "have to be sent as stop words"
            )
        return


def _of_special(found: Tokenizer, model: Model, what: str, number: int, attribute: str) -> Iterator[str]:
    """Yield where the tokenizer has another token for the start or the end of a text than the model."""
    said = found.declared
    text = said.text(attribute)
    held = found.held
    if text is not None and text not in held:
        return
    if text is not None and held[text] != number:
        if what == "start" and attribute not in said.sources:
            return
        source = said.sources.get(attribute, f"the class {said.kind or declared.GPT2}")
        effect = (
            "answers end as the former says, so they may stop early, or run on"
            if what == "end"
            else "the former is FasterTransformer's; in front of a text comes what the tokenizer puts there"
        )
        yield (
            f"the {what} token is {found.shown(number)} in {model.source}, the {attribute} of {source} is "
            f"{found.shown(held[text])}: {effect}"
        )
    elif text is None and what == "end" and not _is_special(found, number):
        yield (
            f"answers end at token {found.shown(number)}, as {model.source} says: the tokenizer has no "
            "special token with that id"
        )


def _is_special(found: Tokenizer, number: int) -> bool:
    specials = {token.content for token in found.declared.to_add() if token.special}
    listed: Iterable[Any] = found.content.get("added_tokens") or []
    specials |= {str(entry.get("content")) for entry in listed if entry.get("special")}
    return any(found.ids.get(token) == number for token in specials)


def _of_size(found: Tokenizer, model: Model) -> Iterator[str]:
    known = max(found.held.values(), default=-1) + 1
    unused = model.vocabulary - known
    if model.vocabulary and unused >= PADDING and unused * PART > model.vocabulary:
        yield (
            f"the weights have {model.vocabulary} tokens, the tokenizer {known}: is it that of another model?"
        )


def _listed(found: Tokenizer, ids: Iterable[int]) -> str:
    return ", ".join(found.shown(number) for number in ids) or "nothing"


def _place(flag: str) -> str:
    return "in front of" if flag == "add_bos_token" else "behind"
