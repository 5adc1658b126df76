"""The tokenizer in a checkpoint's folder: its files, its ids, and what it puts around a text.

Models for text load it with the library `tokenizers`, which need not be on this machine. The ids here are
those that the library would give (tokenizers v0.20.3 added_vocabulary.rs, add_tokens): a token that is in the
vocabulary keeps its id, each other one gets the next free one, whatever a file says.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftbuild.errors import ConfigError
from ftbuild.host import reading
from ftbuild.models import untrusted
from ftbuild.models.tokenization import declared
from ftbuild.models.tokenization.declared import (
    ADDED,
    CONFIG,
    DECODER,
    MERGES,
    MODEL,
    SPECIAL,
    VOCABULARY,
    Declared,
)
from ftbuild.models.tokenization.declared import TOKENIZER as WHOLE

# Tokenizers of a Hugging Face folder, the best first. Each needs all its files; others may refine it.
TOKENIZERS: Sequence[Sequence[str]] = ((WHOLE,), (VOCABULARY, MERGES))
# The chat template of a checkpoint, which the OpenAI front reads beside the tokenizer.
TEMPLATE = "chat_template.jinja"
REFINING = (ADDED, SPECIAL, CONFIG, TEMPLATE)
# Of one that is added to a vocabulary: the library compiles it, which takes half a minute for 40,000.
MAX_CHARACTERS = 1000
ANOTHER = "name the tokenizer of the checkpoint that was converted"
SAVE = (
    "transformers' AutoTokenizer.from_pretrained(FOLDER).save_pretrained(OTHER) writes a tokenizer.json that "
    "says what transformers does"
)
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Claim:
    """An id that a file gives to an added token; `counts`: transformers reads that file."""

    file: str
    token: str
    number: int
    counts: bool


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer as the library loads it, and what its files say of it.

    `vocabulary` are the tokens of the model that it is, `ids` these and all that are added to it, also those
    that no file has and transformers adds. `begins` and `ends` are the ids that it puts around a text, which
    are those of `around` where the class decides that, and not tokenizer.json. `content` is this file, empty
    where there is none.
    """

    folder: Path
    file: Path
    content: Mapping[str, Any]
    declared: Declared
    vocabulary: Mapping[str, int]
    ids: Mapping[str, int]
    claims: Sequence[Claim]
    around: tuple[Sequence[str], Sequence[str]] | None
    begins: Sequence[int]
    ends: Sequence[int]

    @property
    def whole(self) -> bool:
        """Whether it is a tokenizer.json."""
        return bool(self.content)

    @functools.cached_property
    def held(self) -> Mapping[str, int]:
        """The tokens that files have, and the ids that the library gives them."""
        added = {claim.token for claim in self.claims if claim.counts}
        return {
            token: number for token, number in self.ids.items() if token in self.vocabulary or token in added
        }

    def shown(self, number: int) -> str:
        """Return an id for a message, with the text of its token."""
        text = next((token for token, id_of_token in self.ids.items() if id_of_token == number), None)
        return f"{number} ({untrusted.shown(text)})" if text is not None else f"{number} (no token of it)"


def files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint that its tokenizer and its chat template need.

    Raises ConfigError when some are missing, when one is too large, and when a link leads out of the folder:
    what it leads to would be served to the clients.
    """
    for names in TOKENIZERS:
        needed = [folder / name for name in names]
        if all(file.is_file() for file in needed):
            paths = [*needed, *(file for name in REFINING if (file := folder / name).is_file())]
            if not _names_class(folder) and (model := folder / MODEL).is_file():
                paths.append(model)
            for file in paths:
                untrusted.require_inside(folder, file)
                reading.read_bytes(file, max_bytes=untrusted.JSON_BYTES)
            return paths
    raise ConfigError(
        "no tokenizer here: neither " + " nor ".join(" with ".join(names) for names in TOKENIZERS),
        where=str(folder),
        hint="name the checkpoint's folder; if it has only a sentencepiece model or vocab.txt, transformers' "
        "AutoTokenizer.from_pretrained(...).save_pretrained(...) writes tokenizer.json",
    )


def is_in(folder: Path) -> bool:
    """Return whether there is a tokenizer in a folder."""
    return any(all((folder / name).is_file() for name in names) for names in TOKENIZERS)


def read(folder: Path) -> Tokenizer:
    """Read the tokenizer in `folder`; ConfigError when there is none, or it is malformed or unknown."""
    there = files(folder)
    objects = {
        file.name: untrusted.json_object(file, "a tokenizer", ANOTHER)
        for file in there
        if file.suffix == ".json"
    }
    file, content = there[0], objects.get(WHOLE, {})
    vocabulary = _vocabulary(file, objects[file.name], whole=bool(content))
    claims = list(_claims(folder, objects))
    try:
        declaration = declared.read(folder)
        claims += _claims_of_config(folder, declaration)
        known = {*vocabulary, *(claim.token for claim in claims if claim.counts)}
        around = declaration.around(bool(content), known.__contains__)
    except _MALFORMED as broken:
        what = f"not a tokenizer: {untrusted.sentence(broken)}"
        raise ConfigError(what, where=str(folder / CONFIG), hint=ANOTHER) from broken
    if refused := declaration.obstacle(whole=bool(content)):
        raise ConfigError(untrusted.sentence(refused), where=str(file), hint=SAVE)
    listed = [claim.token for claim in claims if claim.file == WHOLE]
    ids = _token_ids(vocabulary, [*listed, *_added_later(folder, declaration, listed)])
    return Tokenizer(
        folder, file, content, declaration, vocabulary, ids, claims, around, *_around(content, around, ids)
    )


def _names_class(folder: Path) -> bool:
    """Return whether tokenizer_config.json names the class of transformers; else config.json does."""
    file = folder / CONFIG
    if not file.is_file():
        return False
    untrusted.require_inside(folder, file)
    return "tokenizer_class" in untrusted.json_object(file, "a tokenizer", ANOTHER)


def _vocabulary(file: Path, content: Mapping[str, Any], whole: bool) -> dict[str, int]:
    model = content.get("model") if whole else {"vocab": content}
    listed = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(listed, list):  # of Unigram: pieces and their scores, whose places are the ids
        pieces = [entry[0] if isinstance(entry, list) and entry else None for entry in listed]
        if not all(isinstance(piece, str) for piece in pieces):
            raise ConfigError("not a tokenizer: a piece is not text", where=str(file), hint=ANOTHER)
        return {str(piece): number for number, piece in enumerate(pieces)}
    if not isinstance(listed, dict):
        raise ConfigError("not a tokenizer: it has no vocabulary", where=str(file), hint=ANOTHER)
    return {token: _id(file, token, number) for token, number in listed.items()}


def _claims(folder: Path, objects: Mapping[str, Mapping[str, Any]]) -> Iterator[Claim]:
    """Yield every id that tokenizer.json and added_tokens.json give to an added token.

    Raises ConfigError for one that is none. The latter does not count where tokenizer_config.json has a list.
    """
    listed = objects.get(WHOLE, {}).get("added_tokens") or []
    if not isinstance(listed, list):
        raise ConfigError(
            "not a tokenizer: added_tokens is not a list", where=str(folder / WHOLE), hint=ANOTHER
        )
    for entry in listed:
        fields = entry if isinstance(entry, dict) else {}
        text = _text(folder / WHOLE, fields.get("content"))
        yield Claim(WHOLE, text, _id(folder / WHOLE, text, fields.get("id")), counts=True)
    for text, number in objects.get(ADDED, {}).items():
        _text(folder / ADDED, text)
        counts = DECODER not in objects.get(CONFIG, {})
        yield Claim(ADDED, text, _id(folder / ADDED, text, number), counts)


def _claims_of_config(folder: Path, declaration: Declared) -> Iterator[Claim]:
    file = folder / CONFIG
    for number, token in declaration.added.items() if DECODER in declaration.options else ():
        text = _text(file, token.content)
        yield Claim(CONFIG, text, _id(file, text, number), counts=True)


def _added_later(folder: Path, declaration: Declared, there: Iterable[str]) -> list[str]:
    return [_text(folder / CONFIG, token.content) for token in declaration.to_add(there)]


def _token_ids(vocabulary: Mapping[str, int], added: Iterable[str]) -> dict[str, int]:
    """Return the ids of all tokens when the library adds some, in order, to a vocabulary."""
    ids: dict[str, int] = {}
    largest, free = -1, len(vocabulary)
    for token in added:
        if token and token not in ids:
            number = vocabulary.get(token)
            ids[token] = max(free, largest + 1) if number is None else number
            largest = max(largest, ids[token])
    return {**vocabulary, **ids}


def _around(
    content: Mapping[str, Any], around: tuple[list[str], list[str]] | None, ids: Mapping[str, int]
) -> tuple[list[int], list[int]]:
    """Return the ids that are put in front of a text and behind it."""
    if around is None:
        return template(content)
    first, last = around
    return [ids[token] for token in first], [ids[token] for token in last]


def template(content: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Return the ids that tokenizer.json puts in front of a text and behind it."""
    begins: list[int] = []
    ends: list[int] = []
    for step in _steps(content.get("post_processor")):
        if step.get("type") in ("BertProcessing", "RobertaProcessing"):
            begins, ends = [_second(step.get("cls"))], [_second(step.get("sep"))]
        elif step.get("type") == "TemplateProcessing":
            begins, ends = _of_template(step)
    return begins, ends


def template_ids(content: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the ids that the template of tokenizer.json itself gives to its special tokens."""
    ids = {}
    for step in _steps(content.get("post_processor")):
        known = step.get("special_tokens")
        for name, entry in known.items() if isinstance(known, dict) else ():
            if isinstance(entry, dict) and isinstance(entry.get("ids"), list):
                ids[name] = [number for number in entry["ids"] if type(number) is int]
    return ids


def steps(part: object) -> list[dict[str, Any]]:
    """Return a normalizer, pre-tokenizer or processor of tokenizer.json, and all that it consists of."""
    return list(_steps(part))


def _steps(part: object) -> Iterator[dict[str, Any]]:
    waiting = [part]
    while waiting:
        step = waiting.pop(0)
        if isinstance(step, dict):
            yield step
            for inner in ("normalizers", "pretokenizers", "processors"):
                waiting += step[inner] if isinstance(step.get(inner), list) else []


def _of_template(step: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    around: tuple[list[int], list[int]] = ([], [])
    known, side = template_ids({"post_processor": step}), 0
    for piece in step.get("single") or []:
        if isinstance(piece, dict) and "Sequence" in piece:
            side = 1
        elif isinstance(piece, dict) and isinstance(special := piece.get("SpecialToken"), dict):
            around[side].extend(known.get(str(special.get("id")), []))
    return around


def _second(pair: object) -> int:
    return pair[1] if isinstance(pair, list) and len(pair) == 2 and type(pair[1]) is int else -1


def _text(file: Path, text: object) -> str:
    if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        raise ConfigError(
            f"an added token is {untrusted.shown(text)}, not a text of at most {MAX_CHARACTERS} characters",
            where=str(file),
            hint=ANOTHER,
        )
    return text


def _id(file: Path, token: str, number: object) -> int:
    if type(number) is int and 0 <= number <= untrusted.MAX:
        return number
    return untrusted.whole_number(number, f"the id of {untrusted.shown(token)}", file, ANOTHER)
