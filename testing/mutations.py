"""Mutations of what people write: texts, bytes, and data as YAML and JSON hold it.

Every function takes a `random.Random`, so that a seed repeats what it did. Half of the changes are small
and plausible (a typo, a lost line, a number as text), half are what only an attacker or a bad disk writes.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

Text = Callable[[random.Random, str], str]

# Values that a reader may take for something else, or that break what it does next.
NUMBERS: Sequence[Any] = (
    0, -1, 1, 2, 3, 7, 22.1, 80.0, 0.1, -0.0, 1.5, 75, 80, 81, 999, 1000, 65536, 2**31, 2**63, 2**64, 10**30,
    float("inf"), float("-inf"), float("nan"), True, False, None,
)  # fmt: skip
TEXTS: Sequence[str] = (
    "", " ", ".", "..", "/", "//", "~", "-", "--", "*", "?", "a", "A", "0", "80", "8O", "080", "0x50",
    "1:20", "1e3", "nan", "null", "true", "no", "22.12", "22.1", "22.13", "\uff12\uff12.12", "22.12\n",
    " 22.12", "v5.3", "===x", ">=99", "==22.12", ">=5.0,<5.0", "~=5", "11.8", "1.0a1", "1!1", "ft",
    "backend", "ngc", "open", "OPEN", "gpt", "../..", "../../etc/passwd", "/etc/passwd", "a/../b", "a//b",
    "./a", "a/", ".git", "ft/.git/hooks", "CON", "-x", "--upload-pack=touch x;", "--help",
    "ext::sh -c true", "file:///etc", "git@host:path", "ssh://-oX/y",
    "https://user:password@host.invalid/x", "http://[::1", "http://h:abc/", "http://h:99999/x", "x:y@z",
    "{", "}", "{}", "{0}", "{release}", "{rel}", "{release.__class__}", "{release!r}",
    "{release:>9999999999}", "{release[0]}", "{checkpoint}", "{out}", "{gpus}", "{{}}", "%s", "%(x)s",
    "$HOME", "${HOME}", "$(id)", "`id`", 'a"b', "a'b", "a\\b", "a\nb", "a\r\nb", "a\tb", "a b", "a;b",
    "a|b", "a&b", "a,b", "a=b", "a#b", "a: b", "- a", "x" * 300, "9" * 30, "9" * 5000, "é", "日本", "\u202e",
    "\u2028", "\ufeff", "\ufffe", "\U0001f600", "a\u0301", "hidden", "hidden * hidden", "hidden *",
    "* hidden", "4 * nothing", "refs/heads/x", "refs/heads/../x", "HEAD", "c" * 40, "C" * 40, "c" * 39,
    "sha256:" + "0" * 64, "sha256:x", "0001-a.patch", "0040-sm-89.patch", "gcc",
)  # fmt: skip
# Only where any byte may stand.
CONTROL: Sequence[str] = ("\x00", "\x07", "\x1b[31m", "\x7f", "\x85", "\x0c")


def values(rng: random.Random) -> Any:
    """Return any value: a number, a text, a list, a mapping, or something deep."""
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind < 7:
        return rng.choice(TEXTS)
    if kind == 7:
        return [values(rng) for _ in range(rng.choice((0, 1, 2, 5)))]
    if kind == 8:
        return {str(rng.choice(TEXTS)): values(rng) for _ in range(rng.choice((0, 1, 2)))}
    return nested(rng.choice((3, 30, 100)), rng.choice((dict, list)))


def nested(depth: int, kind: type = list) -> Any:
    """Return a list or mapping that holds itself so often."""
    made: Any = "x"
    for _ in range(depth):
        made = [made] if kind is list else {"x": made}
    return made


def data(rng: random.Random, original: Any) -> Any:
    """Return data with one to three places changed; the original stays as it is."""
    changed = copy.deepcopy(original)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = _places(changed)
        if not places:
            return values(rng)
        holder, key = rng.choice(places)
        _change(rng, holder, key)
    return changed


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key or index) of a tree."""
    found: list[tuple[Any, Any]] = []
    left = [tree]
    while left:
        node = left.pop()
        items = list(node.items()) if isinstance(node, dict) else []
        items = list(enumerate(node)) if isinstance(node, list) else items
        found += [(node, key) for key, _ in items]
        left += [value for _, value in items]
    return found


def _change(rng: random.Random, holder: Any, key: Any) -> None:
    action = rng.randrange(10)
    if action < 5:
        holder[key] = near(rng, holder[key]) if rng.random() < 0.4 else values(rng)
    elif action == 5:
        del holder[key]
    elif isinstance(holder, dict):
        _change_key(rng, holder, key, action)
    elif action == 6:
        holder.append(copy.deepcopy(holder[key]))
    elif action == 7:
        holder.insert(key, values(rng))
    else:
        rng.shuffle(holder)


def _change_key(rng: random.Random, holder: dict[Any, Any], key: Any, action: int) -> None:
    value = holder[key]
    if action == 6:
        holder[rng.choice(TEXTS)] = copy.deepcopy(value)
    elif action == 7:
        other = near(rng, key)
        holder[str(other) if isinstance(other, list | dict) else other] = holder.pop(key)
    elif action == 8:
        holder[rng.choice([number for number in NUMBERS if number == number])] = holder.pop(key)
    else:
        other = rng.choice(list(holder))
        holder[key], holder[other] = holder[other], value


def near(rng: random.Random, value: Any) -> Any:
    """Return a value that a slip of the hand makes of `value`."""
    if isinstance(value, bool) or value is None:
        return rng.choice((True, False, None, "true", 1))
    if isinstance(value, int | float):
        return rng.choice((value + 1, -value, str(value), float(value), [value], value * 10))
    if isinstance(value, str):
        return typo(rng, value)
    return rng.choice((None, [value], {"x": value}, str(value)[:200]))


def typo(rng: random.Random, text: str) -> str:
    """Return a text with one character lost, doubled, swapped, changed or added."""
    at = rng.randrange(len(text) + 1)
    before, after = text[:at], text[at:]
    return rng.choice(
        (
            before + after[1:],
            before + after[:1] + after,
            before + after[1:2] + after[:1] + after[2:],
            before + rng.choice("0189azAZ-_./:*{}\"' \n\\$é") + after[1:],
            before + rng.choice(TEXTS) + after,
            text.upper(),
            text + rng.choice(" \n/"),
            "-" + text,
        )
    )


def lines(rng: random.Random, text: str) -> str:
    """Return a text with some of its lines lost, doubled, moved, indented or spoilt."""
    rows = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(rows))
        action = rng.randrange(9)
        if action == 0 and len(rows) > 1:
            del rows[at]
        elif action == 1:
            rows.insert(at, rows[at])
        elif action == 2:
            rows.insert(rng.randrange(len(rows)), rows.pop(at))
        elif action == 3:
            rows[at] = rng.choice((" ", "  ", "\t", "- ", "#", "? ", "&a ", "*a ", "!!int ")) + rows[at]
        elif action == 4:
            rows[at] = rows[at][: rng.randrange(len(rows[at]) + 1)]
        elif action == 5:
            rows.insert(at, rng.choice(TEXTS))
        elif action == 6:
            del rows[at + 1 :]
            rows[at] = rows[at][: rng.randrange(len(rows[at]) + 1)]
        else:
            rows[at] = typo(rng, rows[at])
    return "\n".join(rows)


def raw(rng: random.Random, text: str) -> bytes:
    """Return bytes that are no proper text any more: other encodings, control characters, cuts, garbage."""
    content = text.encode("utf-8", "replace")
    at = rng.randrange(len(content) + 1)
    action = rng.randrange(9)
    if action == 0:
        return text.encode(rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-7", "utf-8-sig")))
    if action == 1:
        return content[:at] + "café".encode("latin-1") + content[at:]
    if action == 2:
        return content[:at] + rng.choice(CONTROL).encode() + content[at:]
    if action == 3:
        return content[:at]
    if action == 4:
        return rng.randbytes(rng.choice((0, 1, 100, 5000)))
    if action == 5:
        return content.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\x0b", b"\xe2\x80\xa8", b"\x85")))
    if action == 6:
        return content * rng.choice((2, 60))
    if action == 7:
        return content[:at] + rng.choice((b"[", b"{", b"a: ", b"- ", b"? ")) * 40_000 + content[at:]
    flipped = bytearray(content or b"\0")
    for _ in range(rng.choice((1, 3, 30))):
        flipped[rng.randrange(len(flipped))] = rng.randrange(256)
    return bytes(flipped)
