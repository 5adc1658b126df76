"""YAML files as data, within limits, and with the line of everything in them.

YAML 1.1 has traps: a duplicate key silently wins, `075` is 61 and `1:20` is 80, an alias of aliases is a
million values, `<<` is a key of another mapping. All of them are errors here, and so are tags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer

from ftbuild.errors import ConfigError
from ftbuild.host import reading

# The largest file of ours has 1,150 values, with those that aliases repeat, in 8 levels.
MAX_VALUES = 10_000
MAX_LEVELS = 40
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_MERGE, _VALUE = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"


@dataclass(frozen=True)
class Document:
    """One YAML file: its data, and the nodes they were made of."""

    file: Path
    data: Any
    root: yaml.Node | None

    def place(self, *keys: str | int) -> str:
        """Return `file:line` of the deepest value that exists on the way of `keys` from the top."""
        return f"{self.file}:{_line(self.root, [str(key) for key in keys])}"


def read(file: Path) -> Document:
    """Read a file; ConfigError, with the line, for what is no YAML or beyond the limits."""
    text = reading.read_text(file)
    try:
        return Document(file, *parsed(text))
    except yaml.MarkedYAMLError as broken:
        mark = broken.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"not valid YAML: {broken.problem}", where=f"{file}{line}") from broken
    except yaml.YAMLError as broken:  # a character that YAML does not allow
        raise ConfigError(f"not valid YAML: {broken}", where=str(file)) from broken


def parsed(text: str) -> tuple[Any, yaml.Node | None]:
    """Return the data of a text, and the nodes they were made of; yaml.YAMLError as for `read`."""
    loader = _Loader(text)
    root = loader.get_single_node()
    return (None if root is None else loader.construct_document(root)), root


def _line(node: yaml.Node | None, path: list[str]) -> int:
    line = 1
    while node is not None:
        if isinstance(node, yaml.MappingNode) and path:
            found = next(((k, v) for k, v in node.value if k.value == path[0]), None)
            if found is None:
                return line
            line, node, path = found[0].start_mark.line + 1, found[1], path[1:]
        elif (
            isinstance(node, yaml.SequenceNode)
            and path
            and path[0].isdecimal()
            and int(path[0]) < len(node.value)
        ):
            node, path = node.value[int(path[0])], path[1:]
            line = node.start_mark.line + 1
        else:
            return line
    return line


# libyaml's parser, which PyYAML's wheels bring, is several times faster than the one in Python. Its composer
# has no limits, so Python's stands before it.
_Bases = (Composer, yaml.CSafeLoader) if hasattr(yaml, "CSafeLoader") else (yaml.SafeLoader,)


class _Loader(*_Bases):  # type: ignore[misc]  # bases of which only the machine knows
    """SafeLoader that refuses what has a surprising meaning, and what takes too much time or memory."""

    def __init__(self, text: str) -> None:
        _Bases[-1].__init__(self, text)
        Composer.__init__(self)
        self._open: list[str | None] = []
        self._values = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next node; the size of an alias is that of what it repeats."""
        event = self.peek_event()
        if getattr(event, "tag", None):
            raise _refused(event, f"the tag {event.tag} is not allowed; no tag is")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self._open:
                raise _refused(event, f"&{event.anchor} contains itself")
            self._count(event, self._sizes.get(str(event.anchor), 1))
            return self._composed(parent, index)
        if len(self._open) == MAX_LEVELS:
            raise _refused(event, f"more than {MAX_LEVELS} levels")
        before = self._values
        self._count(event, 1)
        self._open.append(event.anchor)
        node = self._composed(parent, index)
        self._open.pop()
        if event.anchor:
            self._sizes[event.anchor] = self._values - before
        return node

    def _composed(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        node: yaml.Node | None = Composer.compose_node(self, parent, index)
        return node

    def _count(self, event: yaml.Event, more: int) -> None:
        self._values += more
        if self._values > MAX_VALUES:
            raise _refused(event, f"more than {MAX_VALUES} values, with those that aliases repeat")

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping whose keys are plain values, each of them once."""
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _refused(key_node, "a key is a list or a mapping")
            if key_node.tag in (_MERGE, _VALUE):
                raise _refused(
                    key_node, f"the key {key_node.value} has a meaning of its own in YAML: not allowed"
                )
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise _refused(key_node, f"duplicate key {key!r} (first on line {seen[key]})")
            seen[key] = key_node.start_mark.line + 1
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        """Construct a whole number that means what it looks like."""
        if _DECIMAL.fullmatch(node.value):
            return int(node.value)
        if _LEADING_ZERO.fullmatch(node.value):
            raise _refused(node, f"{node.value} has a leading zero: YAML would read an octal number")
        raise _refused(
            node, f"{node.value[:40]} is no plain decimal number: YAML gives it a value of its own"
        )

    def construct_real(self, node: yaml.ScalarNode) -> float:
        """Construct a number with a fraction, in base 10 and without `_`."""
        if set("_:") & set(node.value):
            raise _refused(
                node, f"{node.value[:40]} is no plain decimal number: YAML gives it a value of its own"
            )
        made: float = self.construct_yaml_float(node)
        return made


def _refused(place: Any, problem: str) -> yaml.MarkedYAMLError:
    """Make the error for an event or a node."""
    return yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_decimal)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_real)
# A date is text: no key holds one.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
