"""Modules, functions and their parameters in numbers: what grows over a limit is divided."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from testing import ROOT, sources

MAX_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 400, 60, 12


def over(file: Path) -> Iterator[str]:
    """Yield what of a module is over a limit."""
    place, text = file.relative_to(ROOT).as_posix(), file.read_text()
    if text.count("\n") > MAX_LINES:
        yield place
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES or len({*given} - {"self", "cls"}) > MAX_PARAMETERS:
                yield f"{place}:{node.name}"


def test_no_module_function_or_signature_is_over_its_limit() -> None:
    # A link counts where it leads to.
    found = {one for file in sources() if not file.is_symlink() for one in over(file)}
    assert not found


def test_a_module_binds_each_of_its_names_once() -> None:
    """Of two constants with one name the second also decides where the first is meant."""
    twice = []
    for file in sources():
        bound = [
            target.id
            for node in ast.parse(file.read_text()).body
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        ]
        twice += [f"{file.relative_to(ROOT)}: {name}" for name in {*bound} if bound.count(name) > 1]
    assert not twice
