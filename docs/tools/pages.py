"""Parts of the pages that are made of code, schemas, configuration and records.

    python -m docs.tools.pages     # renews them all

A page holds such a part between `<!-- name -->` and `<!-- end -->`, so that it stands in the Markdown itself.
A test compares every part with what this makes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

from docs.tools import references, tables, tested
from ftbuild.config import loader
from ftbuild.config.schema import Config

ROOT = Path(__file__).resolve().parents[2]
PARTS: dict[str, Callable[[Config], str]] = {
    "commands": lambda _: "\n".join(references.commands()),
    "keys": lambda _: "\n".join(references.keys()),
    "matrix": lambda _: output("matrix", "--triton", "22.12"),
    "releases": tables.releases,
    "models": tables.models,
    "tested": lambda config: tested.page(tested.read(), config),
}
# The page of each part.
PAGES = {
    "commands": "docs/commands.md",
    "keys": "docs/configuration.md",
    "matrix": "README.md",
    "releases": "README.md",
    "models": "docs/requirements.md",
    "tested": "docs/tested.md",
}


def output(*arguments: str) -> str:
    """Return what a command prints in a pipe, as a page shows it."""
    environment = {**os.environ, "DOCKER_HOST": "unix:///nowhere"}
    argv = [sys.executable, "-m", "invoke", *arguments]
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return textwrap.indent(done.stdout, "    ")


def renewed(text: str, name: str, part: str) -> str:
    """Return a page's text with one part renewed; ValueError where the page lacks its marks."""
    marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not marks.search(text):
        raise ValueError(f"no place for {name}")
    return marks.sub(lambda found: f"{found[1]}\n{part.strip(chr(10))}\n\n{found[2]}", text, count=1)


def stale(config: Config) -> Iterator[tuple[Path, str]]:
    """Yield the pages that are not what is made today, with what they would be."""
    for page in dict.fromkeys(PAGES.values()):
        old = new = (ROOT / page).read_text()
        for name in (name for name, where in PAGES.items() if where == page):
            new = renewed(new, name, PARTS[name](config))
        if new != old:
            yield ROOT / page, new


def main() -> None:
    """Renew every page."""
    for page, text in stale(loader.load(loader.OWN)):
        page.write_text(text)
        print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
