"""The documentation site: it builds without a warning, links lead somewhere, other hosts are not asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import tasks
from testing import ROOT

# What a browser loads by itself, as opposed to links that a reader follows.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "srcset", "link": "href"}


@dataclass
class Page(HTMLParser):
    """One HTML page: its anchors, links and what it loads."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        address = values.get(LOADED.get(tag, "href"))
        if address is None:
            return
        self.links.append(address)
        if tag in LOADED and values.get("rel") != "canonical":
            self.loads.append(address)


def read(html: str) -> Page:
    page = Page()
    page.feed(html)
    return page


def broken(site: Path) -> Iterator[str]:
    """Links between the pages of a site that lead to no file or no anchor."""
    pages = {file: read(file.read_text()) for file in site.rglob("*.html") if file.name != "404.html"}
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if target.is_dir():
                target /= "index.html"
            lacks = target in pages and parts.fragment and unquote(parts.fragment) not in pages[target].ids
            if not target.is_file() or lacks:
                yield f"{file.relative_to(site)}: {link}"


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    assert list(broken(site)) == []


def test_a_link_without_target_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html">x</a><a href="#top">x</a><a href="#no">x</a>'
    )
    assert list(broken(tmp_path)) == ["a.html: b.html", "a.html: #no"]


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    pages = {str(file.relative_to(site)): read(file.read_text()).loads for file in site.rglob("*.html")}
    assert [(name, load) for name, loads in pages.items() for load in loads if urlsplit(load).netloc] == []
    styles = [*site.rglob("*.css"), *site.rglob("*.svg")]
    assert styles
    assert [
        file.name for file in styles if re.search(r"(url\(|@import)\s*['\"]?https?:", file.read_text())
    ] == []


def test_the_reference_has_every_key_of_the_configuration(site: Path) -> None:
    text = (site / "configuration.html").read_text()
    for schema in (ROOT / "buildcfg" / "schema").glob("*.json"):
        for key in json.loads(schema.read_text())["properties"]:
            assert f"<code>{key}</code>" in text


def test_the_reference_has_every_command_with_its_options(site: Path) -> None:
    text = (site / "commands.html").read_text()
    for members in tasks.namespace.groups.values():
        for member in members:
            start = text.index(f'<h3 id="invoke-{member.typed.replace(".", "")}">')
            section = text[start : text.find("<h3", start + 1)]
            for option in member.signature.options:
                name = option.flag[2:]
                assert re.search(rf"<code>--(\[no-\])?{name}[ <]", section), f"{member.typed} {option.flag}"
    assert str(ROOT) not in text


def test_pictures_are_small_and_name_no_path_of_the_machine_that_made_them() -> None:
    pictures = [*(ROOT / "docs" / "images").glob("*.png"), *(ROOT / "docs" / "images").glob("*.svg")]
    assert pictures
    for file in pictures:
        assert file.stat().st_size < 200_000, file.name
    for file in pictures:
        if file.suffix == ".svg":
            assert not re.search(r"/(home|root|tmp|work|srv)/", file.read_text()), file.name
