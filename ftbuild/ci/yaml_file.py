"""Readable YAML from plain data: scripts as blocks, a blank line between jobs, versions beside pins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

# Wider than any line in use: a folded command is hard to read.
_WIDTH = 1000


def render(header: str, data: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """Return a YAML file of `data`; each of `comments` follows its text wherever that ends a line."""
    text = "\n".join([header, "", *(_section(key, value) for key, value in data.items())]).rstrip() + "\n"
    for value, comment in (comments or {}).items():
        text = text.replace(f"{value}\n", f"{value}  # {comment}\n")
    return text


def _section(key: str, value: object) -> str:
    """Return a top-level key; blank lines separate jobs below it."""
    if key == "jobs" and isinstance(value, dict):
        jobs = (_indented(_dump({name: job})) for name, job in value.items())
        return "jobs:\n" + "\n".join(jobs)
    return _dump({key: value})


def _indented(text: str) -> str:
    return "".join(f"  {line}" if line.strip() else line for line in text.splitlines(keepends=True))


def _dump(data: object) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that indents lists below their key, repeats instead of using anchors, and writes blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
