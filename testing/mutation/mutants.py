"""Mutants of a module: copies of its syntax tree that differ by one small fault. Pure.

Text for people is left alone, as its words are no behaviour: docstrings, texts with a space, the arguments of
an exception. So are annotations, decorators and imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

SHOWN = 60
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NAMES = (ast.Name, ast.Attribute)
_LITERALS = (ast.Tuple, ast.List, ast.Set)
_WITHOUT_FAULTS = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Pass, ast.Try)
_GENERIC = ("dict", "frozenset", "list", "ndarray", "set", "tuple", "type")
# Arguments with text for people, or about its layout.
_FOR_PEOPLE = ("where", "hint", "indent", "report")
# The way from a node to one below it: field names, and indices of lists.
_Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Mutant:
    """A fault: the lines of the statement that holds it, and its description.

    `in_function`: the statement runs when a function is called, and not when the module is imported.
    """

    first: int
    last: int
    what: str
    in_function: bool
    _original: ast.Module
    _path: _Path
    _new: ast.AST | list[ast.AST] | None

    @property
    def tree(self) -> ast.Module:
        """The tree of the whole module with the fault; made anew, as thousands would fill the memory."""
        copy = deepcopy(self._original)
        _put(copy, self._path, deepcopy(self._new))
        return ast.fix_missing_locations(copy)


def mutants(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module's source, in the order of its lines."""
    tree = ast.parse(source)
    for path, statement, in_function in _statements(tree, (), False):
        for inner, new, what in _faults(statement, ()):
            last = _own_end(statement)
            yield Mutant(statement.lineno, last, what, in_function, tree, (*path, *inner), new)


_Fault = tuple[_Path, ast.AST | list[ast.AST] | None, str]


def _statements(node: ast.AST, path: _Path, in_function: bool) -> Iterator[tuple[_Path, ast.stmt, bool]]:
    """Yield every statement but definitions, imports and what only tools read."""
    inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for number, child in enumerate(getattr(node, field, ())):
            here = (*path, field, number)
            if _is_for_tools(child):
                continue
            is_docstring = number == 0 and field == "body" and _is_text(child)
            if isinstance(child, ast.stmt) and not is_docstring and not isinstance(child, _WITHOUT_FAULTS):
                yield here, child, inside
            yield from _statements(child, here, inside)


def _is_for_tools(node: ast.AST) -> bool:
    """Return whether only type checkers and star imports read a statement."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if not isinstance(node, ast.Assign):
        return False
    is_type = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in ("TypeVar", "ParamSpec")
    return is_type or ast.unparse(node.targets[0]) == "__all__"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _own_end(statement: ast.stmt) -> int:
    """Return the last line of a statement without the statements in it."""
    below = (node for node in ast.walk(statement) if node is not statement)
    first = min((node.lineno for node in below if isinstance(node, ast.stmt)), default=None)
    if first is None:
        return statement.end_lineno or statement.lineno
    return max(statement.lineno, first - 1)


def _faults(node: ast.AST, path: _Path) -> Iterator[_Fault]:
    """Yield the faults of a node and of those below it, but not of statements below it."""
    yield from ((path, new, what) for new, what in _replacements(node))
    if isinstance(node, _LITERALS) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        for number, entry in enumerate(node.elts):
            yield (*path, "elts"), _without(node.elts, number), f"without {_shown(entry)}"
    if isinstance(node, ast.Dict):
        for number, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            less = _with(node, keys=_without(node.keys, number), values=_without(node.values, number))
            yield path, less, f"without {_shown(key or value)}"
    if isinstance(node, ast.Call):
        for number, keyword in enumerate(node.keywords):
            if keyword.arg and keyword.arg not in _FOR_PEOPLE:
                new = _without(node.keywords, number)
                yield (*path, "keywords"), new, f"{_shown(node.func)} without {keyword.arg}="
    for field, child in _children(node):
        yield from _faults(child, (*path, *field))


def _children(node: ast.AST) -> Iterator[tuple[_Path, ast.AST]]:
    if isinstance(node, ast.Raise):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment", "format_spec"):
            continue
        if isinstance(node, ast.Subscript) and name == "slice" and _is_type(node):
            continue
        for number, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                continue
            if isinstance(child, ast.keyword) and child.arg in _FOR_PEOPLE:
                continue
            if isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant) and _is_sentence(node):
                continue
            if isinstance(child, ast.AST):
                yield ((name,) if number is None else (name, number)), child


def _is_sentence(node: ast.JoinedStr) -> bool:
    parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
    return any(map(str.isspace, "".join(map(str, parts))))


def _is_type(node: ast.Subscript) -> bool:
    """Return whether this is a generic type, `Mapping[str, int]`, and not an entry of a value."""
    name = ast.unparse(node.value).rpartition(".")[2] if isinstance(node.value, _NAMES) else ""
    return name in _GENERIC or (name[:1].isupper() and not name.isupper())


def _replacements(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield what may stand in place of a node, with a description."""
    old = node
    for new in _others(node):
        yield new, f"{_shown(old)} -> {_shown(new)}"


def _others(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, [operator, *more], comparators) if type(operator) in _COMPARISONS:
            yield ast.Compare(left, [_COMPARISONS[type(operator)](), *more], comparators)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS and not _is_format(node):
            yield ast.BinOp(left, _OPERATORS[type(operator)](), right)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(str() as value) if not any(map(str.isspace, value)):
            yield ast.Constant(f"{value}mutated")
        case ast.If(test) | ast.While(test) if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.IfExp(test) if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[_, *_]):
            yield _with(node, ifs=[])
        case ast.Return(ast.AST() as value) if not _is_none(value):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call() | ast.Yield() | ast.YieldFrom()):
            yield ast.Pass()
        case ast.AugAssign() | ast.Raise() | ast.Delete():
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


def _is_format(node: ast.BinOp) -> bool:
    return isinstance(node.op, ast.BitOr) and any(_is_none(side) for side in (node.left, node.right))


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _with(node: ast.AST, **fields: object) -> ast.AST:
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


def _without(entries: Sequence[ast.AST | None], number: int) -> list[ast.AST]:
    return [*entries[:number], *entries[number + 1 :]]  # type: ignore[list-item]


def _put(tree: ast.AST, path: _Path, new: ast.AST | list[ast.AST] | None) -> None:
    *way, last = path
    place: object = tree
    for step in way:
        place = place[step] if isinstance(step, int) else getattr(place, step)  # type: ignore[index]
    if isinstance(last, int):
        place[last] = new  # type: ignore[index]
    else:
        setattr(place, last, new)


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node).strip().splitlines()[0]
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
