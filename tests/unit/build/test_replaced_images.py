"""Whatever gives an image a name that another one may have looks after that one (daemon.replacing)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from testing import ROOT, sources

# What gives names to images; `fetch` is of ftbuild/publishing/staging.py.
NAMING = {("bake", "run"), ("buildable", "ensure"), ("", "fetch"), ("staging", "fetch")}
# Called inside of such a block only.
WITHIN = {
    "ftbuild/build/buildable.py",
    "ftbuild/publishing/from_builder.py",
    "ftbuild/pipeline.py:_ensure_named",
}


def called(node: ast.AST) -> tuple[str, str] | None:
    """The module and the name of a function that is called."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name):
        return "", node.func.id
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        return node.func.value.id, node.func.attr
    return None


def bare(node: ast.AST, function: str = "") -> Iterator[str]:
    """Yield the functions with calls that give names outside of any `with daemon.replacing(...)`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.With) and any(
            called(item.context_expr) == ("daemon", "replacing") for item in child.items
        ):
            continue
        if called(child) in NAMING:
            yield function
        name = child.name if isinstance(child, ast.FunctionDef) else function
        yield from bare(child, name)


def test_no_image_loses_its_name_unnoticed() -> None:
    found = set()
    for file in sources():
        place = str(file.relative_to(ROOT))
        text = file.read_text()
        if "bake" in text or "buildable" in text or "staging" in place:
            found |= {(place, function) for function in bare(ast.parse(text))}
    left = {place for place, function in found if not {place, f"{place}:{function}"} & WITHIN}
    assert left == set()
