"""The words of the project: names are nouns, and texts have the terms and the turns of the field."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from testing import ROOT, sources

# A name says what a thing is, not how the program came to it.
NAMES = {"asked", "found", "given", "one", "ours", "said", "theirs", "things", "told", "wanted"}
# Rooms where such names are left; none is added.
NAMES_LEFT = {
    "ftbuild/audit",
    "ftbuild/build",
    "ftbuild/cli",
    "ftbuild/config",
    "ftbuild/publishing",
    "ftbuild/sources",
}
# Fields of records on disk.
STORED = {"benchmarks/harness/chart.py"}

# Turns that no engineer writes, and what stands for them.
TURNS = {
    r"whoever|whomever|whosoever": "anyone who, clients that, users that",
    r"nobody|somebody|anybody|everybody": "no client, another process, any user",
    r"anew": "again",
    r"hence|thereof|wherein|whereby|therein": "so",
    r"shall": "must, should",
    r"be it": "for",
    r"how long a text may be": "context length",
    r"(?:authenticates|answers) (?:no|any|every)body": "has no authentication",
    r"answers? with vectors": "returns embeddings",
    r"is no (?:name|list|folder|token|number|schedule|label|URL)\b": "is not a",
}
# Rooms and pages where such turns are left; none is added.
TURNS_LEFT = {*NAMES_LEFT, "docs/configuration.md", "docs/security.md"}
# Words of grammar that end no other word, and words in a text: no names, paths, keys or calls.
GRAMMAR = ("with", "the", "and", "from", "that", "which", "this", "have", "into", "when", "for", "not", "has")
PLAIN = re.compile(r"(?<![\w./:<-])[a-z]+(?![\w/(=<-])")
# The first of two words is one of the text if it stands there so many times.
COMMON = 3
# Names of Unix, labels and words of others.
QUOTED = re.compile(r"`nobody`|NOBODY\b")


def modules() -> list[Path]:
    """Return the modules that both rules are for."""
    ours = [file for file in sources() if not file.is_symlink()]
    return [*ours, *sorted((ROOT / "benchmarks").rglob("*.py"))]


def pages() -> list[Path]:
    """Return the pages that people write; the reference of commands is made of docstrings."""
    return [file for file in sorted((ROOT / "docs").rglob("*.md")) if file.name != "commands.md"]


def room(file: Path) -> str:
    """Return `product/room` of a module, or the path of a file that is in none."""
    place = file.relative_to(ROOT).as_posix()
    return "/".join(place.split("/")[:2])


def names(text: str) -> Iterator[str]:
    """Yield every name that a module gives: to variables, attributes, parameters, functions and classes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def texts(file: Path) -> str:
    """Return what people read: a page, or the comments and texts of a module."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(token.string for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING))


def turns(text: str) -> Iterator[str]:
    """Yield the turns of a text that are to be written in another way."""
    plain = " ".join(QUOTED.sub("", text).split())
    for pattern, instead in TURNS.items():
        for match in re.finditer(rf"\b(?:{pattern})\b", plain, re.I):
            yield f"{plain[max(0, match.start() - 30) : match.end() + 30]!r}: {instead}"


def run_together(text: str) -> Iterator[str]:
    """Yield words that are another word of the text and a word of grammar without a space between them."""
    counts = Counter(PLAIN.findall(text))
    for word, grammar in product(counts, GRAMMAR):
        first = word.removesuffix(grammar)
        if len(first) > 3 and first != word and counts[first] >= COMMON:
            yield word


def test_names_are_nouns() -> None:
    wrong = {
        (file, name) for file in modules() for name in names(file.read_text()) if name.strip("_") in NAMES
    }
    wrong = {(file, name) for file, name in wrong if file.relative_to(ROOT).as_posix() not in STORED}
    rooms = {room(file) for file, _ in wrong}
    assert not {(room(file), file.name, name) for file, name in wrong if room(file) not in NAMES_LEFT}
    assert rooms == NAMES_LEFT, "a room that has none left is taken off the list"


def test_texts_have_the_terms_of_the_field() -> None:
    wrong = {file: [*turns(texts(file))] for file in (*modules(), *pages())}
    rooms = {room(file) for file, found_turns in wrong.items() if found_turns}
    assert not {str(file): lines for file, lines in wrong.items() if lines and room(file) not in TURNS_LEFT}
    assert rooms == TURNS_LEFT, "a room that has none left is taken off the list"


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("Whoever starts it", "users"),
        ("a server that authenticates\nnobody", "no authentication"),
        ("it is no list", "is not a"),
    ],
)
def test_a_turn_is_seen_across_lines_and_letters(text: str, instead: str) -> None:
    assert any(instead in line for line in turns(text))


def test_no_space_is_missing_between_two_words() -> None:
    text = "\n".join(texts(file) for file in (*modules(), *pages()))
    assert not {*run_together(text)}


def test_a_missing_space_is_seen() -> None:
    text = (
        "It continues with this. It continues here and continues there. It continueswith that; and so forth."
    )
    assert [*run_together(text)] == ["continueswith"]


def test_names_of_all_kinds_are_seen() -> None:
    text = "def told(given, *, said): return [one for one in given]\nclass ours: wanted: int = 1"
    text += "\n(found := 2)\nx.theirs = 1"
    assert {*names(text)} >= {"told", "given", "said", "one", "ours", "wanted", "found", "theirs"}
