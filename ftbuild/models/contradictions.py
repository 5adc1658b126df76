"""What the files of one tokenizer say in two ways: refused, or what transformers v4.46.3 takes of it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

from ftbuild.errors import ConfigError
from ftbuild.models import tokenizer, untrusted
from ftbuild.models.tokenization import declared
from ftbuild.models.tokenization.declared import ADDED, CONFIG
from ftbuild.models.tokenization.declared import TOKENIZER as WHOLE
from ftbuild.models.tokenizer import ANOTHER, SAVE, Tokenizer

_LIKEWISE = "transformers takes the latter, and the server likewise"
_PLACES = {"add_bos_token": "in front of", "add_eos_token": "behind"}


def require_none(found: Tokenizer) -> None:
    """Raise ConfigError for files of which no tokenizer can be made that is surely the model's."""
    _require_unique(found)
    for claim in found.claims:
        given = found.ids.get(claim.token)
        if claim.counts and given is None:
            raise ConfigError(
                f"{claim.file} gives the id {claim.number} to several tokens, {untrusted.shown(claim.token)} "
                "among them",
                where=str(found.folder / claim.file),
                hint=ANOTHER,
            )
        if claim.counts and given != claim.number and not _is_held(found, claim.token):
            raise ConfigError(
                f"{claim.file} gives {untrusted.shown(claim.token)} the id {claim.number}, and it would get "
                f"{given}: an added token gets the id that it has in the vocabulary, or the "
                "next free one",
                where=str(found.folder / claim.file),
                hint="put the token into the vocabulary of tokenizer.json, with the id that the model knows",
            )
    for token in itertools.chain(*(found.around or ())):
        if token not in found.held:
            raise ConfigError(
                f"the tokenizer puts {untrusted.shown(token)} around a text, which is no token of it",
                where=str(found.folder / CONFIG),
                hint=ANOTHER,
            )
    prefix = found.declared.options.get("add_prefix_space")
    if found.declared.kind in declared.FROM_PIECES and prefix is not None:
        _require_prefix(found, bool(prefix))


def warnings(found: Tokenizer) -> Iterator[str]:
    """Yield a sentence for each contradiction of which transformers takes a side."""
    yield from _of_ids(found)
    yield from _of_class(found)
    yield from _of_named(found)
    if found.whole:
        for flag, place in _PLACES.items():
            yield from _of_around(found, flag, place)
        yield from _of_text(found)
        yield from _of_beginning(found)


def _require_unique(found: Tokenizer) -> None:
    twice = [number for number, count in Counter(found.ids.values()).items() if count > 1]
    if twice:
        tokens = [untrusted.shown(token) for token, number in found.ids.items() if number == twice[0]]
        raise ConfigError(
            f"the tokens {' and '.join(tokens[:2])} have the same id, {twice[0]}",
            where=str(found.file),
            hint=ANOTHER,
        )


def _is_held(found: Tokenizer, token: str) -> bool:
    """Return whether a tokenizer.json decides the id of a token, whatever others say."""
    return found.whole and (
        token in found.vocabulary
        or any(claim.token == token for claim in found.claims if claim.file == WHOLE)
    )


def _require_prefix(found: Tokenizer, wanted: bool) -> None:
    """Raise ConfigError unless tokenizer.json begins texts with a blank as tokenizer_config.json says.

    With that option transformers makes the tokenizer anew from the pieces, whatever is in tokenizer.json
    (tokenization_llama_fast.py, tokenization_t5_fast.py).
    """
    parts = itertools.chain.from_iterable(
        tokenizer.steps(found.content.get(part)) for part in ("normalizer", "pre_tokenizer")
    )
    there = any(
        step.get("type") == "Prepend"
        or (step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never")
        for step in parts
    )
    if there != wanted:
        raise ConfigError(
            f"{CONFIG} has add_prefix_space {_shown(wanted)}, and {WHOLE} "
            + ("begins texts with a blank" if there else "begins no text with a blank"),
            where=str(found.file),
            hint=SAVE,
        )


def _of_ids(found: Tokenizer) -> Iterator[str]:
    for claim in found.claims:
        given, shown = found.ids.get(claim.token), untrusted.shown(claim.token)
        if given is None:
            yield f"{claim.file} has the token {shown}, {CONFIG} has not: it is left out, as by transformers"
        elif given != claim.number:
            other = _other(found, claim.file)
            yield f"{claim.file} gives {shown} the id {claim.number}, {other} {given}: {_LIKEWISE}"
    if found.around is None:
        for name, ids in tokenizer.template_ids(found.content).items():
            if ids != [found.ids.get(name)]:
                there = f"{untrusted.shown(name)} as {found.ids.get(name)}"
                yield f"{WHOLE} has {there}, and puts it around a text as {ids}: {_LIKEWISE}"


def _other(found: Tokenizer, file: str) -> str:
    if file == WHOLE:
        return "the library, which numbers tokens in order,"
    return WHOLE if found.whole else CONFIG if file == ADDED else "the vocabulary"


def _of_class(found: Tokenizer) -> Iterator[str]:
    custom, kind = found.declared.options.get("auto_map"), found.declared.kind
    if isinstance(custom, dict) and "AutoTokenizer" in custom:
        yield f"{CONFIG} names code of its own, which never runs here: {found.file.name} is taken as it is"
    elif kind is not None and kind not in declared.KNOWN:
        yield (
            f"transformers reads {WHOLE} with its class {untrusted.plain(kind)}, which may change it: it is "
            "taken as it is"
        )


def _of_beginning(found: Tokenizer) -> Iterator[str]:
    kind = found.declared.kind or ""
    if found.around is None and declared.TEMPLATES.get(kind):
        first = untrusted.shown(found.declared.text("bos_token"))
        yield (
            f"transformers' {kind} puts {first} in front of every text, which is no token of {WHOLE}: the "
            "latter decides what comes there"
        )


def _of_named(found: Tokenizer) -> Iterator[str]:
    for attribute, file in found.declared.sources.items():
        text = found.declared.text(attribute)
        if text is not None and text not in found.held:
            yield (
                f"{file} names {untrusted.shown(text)} as {attribute}, which is not in the vocabulary: "
                f"transformers gives it the id {found.ids.get(text)}, for which the model was not trained"
            )


def _of_around(found: Tokenizer, flag: str, place: str) -> Iterator[str]:
    """Yield where options and tokenizer.json put different tokens around a text."""
    said, side = found.declared, list(_PLACES).index(flag)
    held = tokenizer.template(found.content)[side]
    if found.around is not None:
        given = (found.begins, found.ends)[side]
        if list(held) != list(given):
            yield (
                f"{WHOLE} puts {_listed(found, held)} {place} a text, {said.kind} with {flag} "
                f"{_shown(bool(given))} {_listed(found, given)}: {_LIKEWISE}"
            )
    elif flag in said.options and said.flag(flag) != bool(held):
        yield (
            f"{CONFIG} has {flag} {_shown(said.flag(flag))}, {WHOLE} puts {_listed(found, held)} {place} a "
            f"text: {_LIKEWISE}"
        )


def _of_text(found: Tokenizer) -> Iterator[str]:
    """Yield where options and tokenizer.json change a text in two ways."""
    said, kind = found.declared, found.declared.kind
    if kind in declared.PREFIXES:
        yield from _two(found, "pre_tokenizer", "add_prefix_space", "add_prefix_space", False)
    if kind in declared.BERT:
        yield from _two(found, "normalizer", "lowercase", "do_lower_case", True)
        yield from _two(found, "normalizer", "handle_chinese_chars", "tokenize_chinese_chars", True)
    if said.flag("split_special_tokens"):
        yield f"{CONFIG} has split_special_tokens: special tokens in a text are split, as by transformers"


def _two(found: Tokenizer, part: str, key: str, option: str, default: bool) -> Iterator[str]:
    step = found.content.get(part)
    held = step.get(key) if isinstance(step, dict) else None
    wanted = found.declared.flag(option, default)
    if held is not None and bool(held) != wanted:
        source = CONFIG if option in found.declared.options else f"{found.declared.kind} by default"
        yield f"{WHOLE} has {key} {_shown(bool(held))}, {source} {option} {_shown(wanted)}: {_LIKEWISE}"


def _listed(found: Tokenizer, ids: Iterable[int]) -> str:
    return ", ".join(found.shown(number) for number in ids) or "nothing"


def _shown(flag: bool) -> str:
    return str(flag).lower()
