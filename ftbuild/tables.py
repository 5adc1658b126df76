"""Tables as text."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO


def render(titles: Sequence[str], rows: Sequence[Sequence[str]], *, header: bool = True) -> str:
    """A table as text; as wide as its content, so that a pipe or a CI log never wraps it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD if header else None, show_header=header, pad_edge=False)
    for title in titles:
        table.add_column(title, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    out = StringIO()
    Console(file=out, width=100_000, markup=False, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
