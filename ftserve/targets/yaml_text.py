"""YAML in which texts of several lines, such as scripts, stay readable, and every text stays one."""

from __future__ import annotations

import re
from typing import Any

import yaml

# Texts that PyYAML writes bare, and that readers in Go take for truth values, numbers or dates: kubectl, Helm
# and Compose (gopkg.in/yaml.v2 and v3, resolve.go, which leaves out the underscores of a number first).
_NO_TEXT = re.compile(
    r"[yYnN]|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?0([xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Write what stands in several places in each of them."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _NO_TEXT.fullmatch(text.replace("_", "")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dump(*documents: Any) -> str:
    """Return the documents in the order of their keys."""
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=1000)
    return text
