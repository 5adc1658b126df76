"""Tables as text."""

from __future__ import annotations

from collections.abc import Sequence


def render(titles: Sequence[str], rows: Sequence[Sequence[str]], *, header: bool = True) -> str:
    """Render a table as wide as its content, so that a pipe or a CI log never wraps it."""
    from tabulate import tabulate

    shown = {"headers": titles, "tablefmt": "simple"} if header else {"tablefmt": "plain"}
    text = tabulate(rows, disable_numparse=True, **shown)
    return "\n".join(line.rstrip() for line in text.splitlines())
