"""Functions that get other code while they live, so that a trial need not import anything again."""

from __future__ import annotations

import ast
import gc
import inspect
import marshal
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType

# Where a function is written: its file, its qualified name and its first line.
Key = tuple[str, str, int]


def changed(file: Path, tree: ast.Module) -> tuple[tuple[Key, bytes], ...]:
    """Return the function in which a tree differs from its file, and those within it that do.

    Each with its marshalled code. None at all: the tree differs elsewhere, or not.
    """
    new = list(_functions(compile(tree, str(file), "exec", dont_inherit=True)))
    old = list(_functions(compile(file.read_text(), str(file), "exec", dont_inherit=True)))
    times = Counter(map(_key, new))
    if times != Counter(map(_key, old)):
        return ()
    before = {_key(code): code for code in old}
    others = [code for code in new if code != before[_key(code)]]
    if any(times[_key(code)] > 1 for code in others):
        return ()
    return tuple((_key(code), marshal.dumps(code)) for code in others)


def living(files: Collection[Path]) -> Mapping[Key, Sequence[FunctionType]]:
    """Return the functions of some files that have been made, in whatever they are wrapped."""
    gc.unfreeze()  # tests freeze what is collected (tests/conftest.py), and gc lists nothing that is frozen
    names = {str(file) for file in files}
    found: dict[Key, list[FunctionType]] = {}
    for value in gc.get_objects():
        if type(value) is FunctionType and value.__code__.co_filename in names:
            found.setdefault(_key(value.__code__), []).append(value)
    return found


def exchange(known: Mapping[Key, Sequence[FunctionType]], codes: Sequence[tuple[Key, bytes]]) -> bool:
    """Give functions other code; return whether that can be done.

    The first one must live. A function within it may live already, or be made by it later.
    """
    for key, code in codes:
        new = marshal.loads(code)
        for function in known.get(key, ()):
            if function.__code__.co_freevars != new.co_freevars:
                return False
            function.__code__ = new
    return codes[0][0] in known


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Yield all functions of a module, each before those within it."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_OPTIMIZED:  # not the body of a class
                yield constant
            yield from _functions(constant)


def _key(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno
