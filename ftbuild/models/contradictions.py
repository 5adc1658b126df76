"""Contradictions among the files of a tokenizer: refused, or decided as transformers v4.46.3 does."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

from ftbuild.errors import ConfigError
from ftbuild.models import untrusted
from ftbuild.models.tokenization import declared
from ftbuild.models.tokenization.declared import ADDED, CONFIG
from ftbuild.models.tokenization.declared import TOKENIZER as WHOLE
from ftbuild.models.tokenizer import ANOTHER, SAVE, Tokenizer, steps, template, template_ids

_LIKEWISE = "transformers takes the latter, and so does the server"
_PLACES = {"add_bos_token": "in front of", "add_eos_token": "behind"}


def require_none(tokenizer: Tokenizer) -> None:
    """Raise ConfigError for files from which the model's tokenizer cannot be made with certainty."""
    _require_unique(tokenizer)
    for claim in tokenizer.claims:
        number = tokenizer.ids.get(claim.token)
        if claim.counts and number is None:
            raise ConfigError(
                f"{claim.file} gives the id {claim.number} to several tokens, {untrusted.shown(claim.token)} "
                "among them",
                where=str(tokenizer.folder / claim.file),
                hint=ANOTHER,
            )
        if claim.counts and number != claim.number and not _is_held(tokenizer, claim.token):
            raise ConfigError(
                f"{claim.file} gives {untrusted.shown(claim.token)} the id {claim.number}, and it would get "
                f"{number}: an added token gets the id that it has in the vocabulary, or the "
                "next free one",
                where=str(tokenizer.folder / claim.file),
                hint="put the token into the vocabulary of tokenizer.json, with the id that the model knows",
            )
    for token in itertools.chain(*(tokenizer.around or ())):
        if token not in tokenizer.held:
            raise ConfigError(
                f"the tokenizer puts {untrusted.shown(token)} around a text, which is not one of its tokens",
                where=str(tokenizer.folder / CONFIG),
                hint=ANOTHER,
            )
    prefix = tokenizer.declared.options.get("add_prefix_space")
    if tokenizer.declared.kind in declared.FROM_PIECES and prefix is not None:
        _require_prefix(tokenizer, bool(prefix))


def warnings(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield a sentence for each contradiction that transformers decides."""
    yield from _of_ids(tokenizer)
    yield from _of_class(tokenizer)
    yield from _of_named(tokenizer)
    if tokenizer.whole:
        for flag, place in _PLACES.items():
            yield from _of_around(tokenizer, flag, place)
        yield from _of_text(tokenizer)
        yield from _of_beginning(tokenizer)


def _require_unique(tokenizer: Tokenizer) -> None:
    twice = [number for number, count in Counter(tokenizer.ids.values()).items() if count > 1]
    if twice:
        tokens = [untrusted.shown(token) for token, number in tokenizer.ids.items() if number == twice[0]]
        raise ConfigError(
            f"the tokens {' and '.join(tokens[:2])} have the same id, {twice[0]}",
            where=str(tokenizer.file),
            hint=ANOTHER,
        )


def _is_held(tokenizer: Tokenizer, token: str) -> bool:
    """Return whether a tokenizer.json decides the id of a token, whatever others say."""
    return tokenizer.whole and (
        token in tokenizer.vocabulary
        or any(claim.token == token for claim in tokenizer.claims if claim.file == WHOLE)
    )


def _require_prefix(tokenizer: Tokenizer, prefix: bool) -> None:
    """Raise ConfigError unless tokenizer.json begins texts with a blank as tokenizer_config.json says.

    With that option transformers rebuilds the tokenizer from the pieces, whatever is in tokenizer.json
    (tokenization_llama_fast.py, tokenization_t5_fast.py).
    """
    parts = itertools.chain.from_iterable(
        steps(tokenizer.content.get(part)) for part in ("normalizer", "pre_tokenizer")
    )
    there = any(
        step.get("type") == "Prepend"
        or (step.get("type") == "Metaspace" and step.get("prepend_scheme") != "never")
        for step in parts
    )
    if there != prefix:
        raise ConfigError(
            f"{CONFIG} has add_prefix_space {_shown(prefix)}, and {WHOLE} "
            + ("begins texts with a blank" if there else "begins no text with a blank"),
            where=str(tokenizer.file),
            hint=SAVE,
        )


def _of_ids(tokenizer: Tokenizer) -> Iterator[str]:
    for claim in tokenizer.claims:
        number, shown = tokenizer.ids.get(claim.token), untrusted.shown(claim.token)
        if number is None:
            yield f"{claim.file} has the token {shown}, {CONFIG} has not: it is left out, as by transformers"
        elif number != claim.number:
            other = _other(tokenizer, claim.file)
            yield f"{claim.file} gives {shown} the id {claim.number}, {other} {number}: {_LIKEWISE}"
    if tokenizer.around is None:
        for name, ids in template_ids(tokenizer.content).items():
            if ids != [tokenizer.ids.get(name)]:
                there = f"{untrusted.shown(name)} as {tokenizer.ids.get(name)}"
                yield f"{WHOLE} has {there}, and puts it around a text as {ids}: {_LIKEWISE}"


def _other(tokenizer: Tokenizer, file: str) -> str:
    if file == WHOLE:
        return "the library, which numbers tokens in order,"
    return WHOLE if tokenizer.whole else CONFIG if file == ADDED else "the vocabulary"


def _of_class(tokenizer: Tokenizer) -> Iterator[str]:
    custom, kind = tokenizer.declared.options.get("auto_map"), tokenizer.declared.kind
    if isinstance(custom, dict) and "AutoTokenizer" in custom:
        yield f"{CONFIG} names code of its own, which never runs here: {tokenizer.file.name} is used as it is"
    elif kind is not None and kind not in declared.KNOWN:
        yield (
            f"transformers reads {WHOLE} with its class {untrusted.plain(kind)}, which may change it: it is "
            "taken as it is"
        )


def _of_beginning(tokenizer: Tokenizer) -> Iterator[str]:
    kind = tokenizer.declared.kind or ""
    if tokenizer.around is None and declared.TEMPLATES.get(kind):
        first = untrusted.shown(tokenizer.declared.text("bos_token"))
        yield (
            f"transformers' {kind} puts {first} in front of every text, which is not a token of {WHOLE}: the "
            "latter decides what comes there"
        )


def _of_named(tokenizer: Tokenizer) -> Iterator[str]:
    for attribute, file in tokenizer.declared.sources.items():
        text = tokenizer.declared.text(attribute)
        if text is not None and text not in tokenizer.held:
            yield (
                f"{file} names {untrusted.shown(text)} as {attribute}, which is not in the vocabulary: "
                f"transformers gives it the id {tokenizer.ids.get(text)}, for which the model was not trained"
            )


def _of_around(tokenizer: Tokenizer, flag: str, place: str) -> Iterator[str]:
    """Yield where options and tokenizer.json put different tokens around a text."""
    declaration, side = tokenizer.declared, list(_PLACES).index(flag)
    held = template(tokenizer.content)[side]
    if tokenizer.around is not None:
        ids = (tokenizer.begins, tokenizer.ends)[side]
        if list(held) != list(ids):
            yield (
                f"{WHOLE} puts {_listed(tokenizer, held)} {place} a text, {declaration.kind} with {flag} "
                f"{_shown(bool(ids))} {_listed(tokenizer, ids)}: {_LIKEWISE}"
            )
    elif flag in declaration.options and declaration.flag(flag) != bool(held):
        yield (
            f"{CONFIG} has {flag} {_shown(declaration.flag(flag))}, "
            f"{WHOLE} puts {_listed(tokenizer, held)} {place} a text: {_LIKEWISE}"
        )


def _of_text(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield where options and tokenizer.json change a text in two ways."""
    options, kind = tokenizer.declared, tokenizer.declared.kind
    if kind in declared.PREFIXES:
        yield from _two(tokenizer, "pre_tokenizer", "add_prefix_space", "add_prefix_space", False)
    if kind in declared.BERT:
        yield from _two(tokenizer, "normalizer", "lowercase", "do_lower_case", True)
        yield from _two(tokenizer, "normalizer", "handle_chinese_chars", "tokenize_chinese_chars", True)
    if options.flag("split_special_tokens"):
        yield f"{CONFIG} has split_special_tokens: special tokens in a text are split, as by transformers"


def _two(tokenizer: Tokenizer, part: str, key: str, option: str, default: bool) -> Iterator[str]:
    step = tokenizer.content.get(part)
    held = step.get(key) if isinstance(step, dict) else None
    flag = tokenizer.declared.flag(option, default)
    if held is not None and bool(held) != flag:
        source = CONFIG if option in tokenizer.declared.options else f"{tokenizer.declared.kind} by default"
        yield f"{WHOLE} has {key} {_shown(bool(held))}, {source} {option} {_shown(flag)}: {_LIKEWISE}"


def _listed(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    return ", ".join(tokenizer.shown(number) for number in ids) or "nothing"


def _shown(flag: bool) -> str:
    return str(flag).lower()
