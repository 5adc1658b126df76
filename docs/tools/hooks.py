"""MkDocs hooks: pages from outside docs/.

Every page is written for the repository, where its links lead to files of the checkout. Here these links are
rewritten to the places of the same files on the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
# Pages and files that stand elsewhere in the checkout, by their path there.
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "benchmarks/log.md",
    "ftserve/README.md",
    "sample/README.md",
)
FILES = ("LICENSE", "benchmarks/results/*.svg")
_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
_CODE = re.compile(r"(^```.*?^```|^ {4}.*?$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files from outside docs/."""
    for path in sorted(_outside()):
        files.append(File.generated(config, _place(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links between files of the checkout."""
    source = page.file.src_uri
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # it would hold the page itself alone
    repository = source if source in _outside() else f"docs/{source}"
    # Code is left alone: split() gives text and code in turn.
    parts = _CODE.split(markdown)
    parts[::2] = [_LINK.sub(lambda link: _rewritten(link, repository, source), part) for part in parts[::2]]
    return "".join(parts)


def _outside() -> set[str]:
    found = {path for path in PAGES if (ROOT / path).exists()}
    return found | {str(file.relative_to(ROOT)) for pattern in FILES for file in ROOT.glob(pattern)}


def _place(repository: str) -> str:
    """Where the site has a file of the checkout."""
    return "LICENSE.txt" if repository == "LICENSE" else repository.removeprefix("docs/")


def _rewritten(link: re.Match[str], repository: str, source: str) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(repository), link[2]))
    if target.startswith(".."):
        return link[0]
    place = posixpath.relpath(_place(target), posixpath.dirname(source) or ".")
    return f"{link[1]}{place}{link[3]}"
