"""The page of a nightly run in a real browser, on a phone and on a screen, in light and dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from ftbuild.nightly.record import NightlyRun
from ftbuild.nightly.report.write import write_reports
from testing import needs, recorded_runs

Scheme = Literal["light", "dark"]
RUNS: dict[str, Callable[[], NightlyRun]] = {"good": recorded_runs.good, "bad": recorded_runs.bad}
WIDTHS = (390, 1280)
SCHEMES: tuple[Scheme, ...] = ("light", "dark")

# WCAG 2.2: relative luminance and contrast of every visible text against what lies behind it.
CONTRASTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const solid = (c) => c.length < 4 || c[3] === 1;
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      if (at instanceof SVGTextElement && at.classList.contains('in')) {
        return parse(getComputedStyle(at.previousElementSibling).fill);
      }
      const color = parse(getComputedStyle(at).backgroundColor);
      if (!(at instanceof SVGElement) && solid(color)) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, element = text.parentElement;
    if (!text.data.trim() || ['title', 'STYLE'].includes(element.tagName)) continue;
    if (!element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const ink = parse(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(element))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), element.className.baseVal ?? element.className, text.data.trim()]);
  }
  return found;
}"""
NAMELESS = """() => [...document.querySelectorAll('svg, img, [role=img], [role=region], a, summary')]
  .filter(e => !((e.getAttribute('aria-label') || e.textContent).trim()))
  .map(e => e.outerHTML.slice(0, 200))"""
WIDE = """() => [...document.querySelectorAll('body *')]
  .filter(e => !e.closest('.scroll, svg, .skip') && e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.outerHTML.slice(0, 200))"""


@dataclass
class Visit:
    """A page in a browser, its requests and its errors."""

    page: Page
    folder: Path
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


Visiting = Callable[[int, Scheme], AbstractContextManager[Visit]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = needs.program("chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module", params=RUNS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = RUNS[request.param]()
    folder = tmp_path_factory.mktemp(request.param)
    write_reports(made, folder)
    recorded_runs.logs(folder, made)
    return folder


@pytest.fixture
def visit(browser: Browser, folder: Path) -> Visiting:
    @contextmanager
    def open_page(width: int, scheme: Scheme) -> Iterator[Visit]:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        visited = Visit(context.new_page(), folder)
        visited.page.on("request", lambda request: visited.requests.append(request.url))
        visited.page.on("console", lambda message: visited.errors.append(message.text))
        visited.page.on("pageerror", lambda error: visited.errors.append(str(error)))
        visited.page.on("dialog", lambda dialog: visited.errors.append(dialog.message))
        visited.page.goto((folder / "report.html").as_uri())
        yield visited
        context.close()

    return open_page


def show_all(page: Page) -> None:
    page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_requests_nothing_logs_nothing_and_fits(visit: Visiting, width: int, scheme: Scheme) -> None:
    with visit(width, scheme) as visited:
        show_all(visited.page)
        visited.page.wait_for_timeout(50)
        assert visited.requests == [(visited.folder / "report.html").as_uri()]
        assert visited.errors == []
        widths = visited.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1] == width
        assert visited.page.evaluate(WIDE) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_text_has_enough_contrast(visit: Visiting, scheme: Scheme) -> None:
    with visit(1280, scheme) as visited:
        show_all(visited.page)
        found: list[Any] = visited.page.evaluate(CONTRASTS)
        assert len(found) > 200
        assert [text for text in found if text[0] < 4.5] == []
        assert {"badge good", "word", "in", "axis", "square good"} <= {text[1] for text in found}


def test_every_picture_and_link_has_a_name(visit: Visiting) -> None:
    with visit(1280, "light") as visited:
        assert visited.page.evaluate(NAMELESS) == []
        assert visited.page.get_attribute("html", "lang") == "en"
        assert visited.page.locator("main").count() == visited.page.locator("h1").count() == 1


def test_every_tile_links_to_its_cell_and_every_log_link_to_a_file(visit: Visiting) -> None:
    with visit(1280, "light") as visited:
        links = visited.page.eval_on_selector_all("a.tile", "all => all.map(a => a.getAttribute('href'))")
        cells = visited.page.eval_on_selector_all("[id^='cell-']", "all => all.map(e => '#' + e.id)")
        assert sorted(links) == sorted(cells)
        files = visited.page.eval_on_selector_all(
            "a", "all => all.map(a => a.href).filter(h => h.startsWith('file:') && !h.includes('#'))"
        )
        assert len(files) > 3
        for file in files:
            assert Path(unquote(urlsplit(file).path)).is_file(), file


def test_clicking_a_tile_shows_its_cell(visit: Visiting) -> None:
    with visit(390, "light") as visited:
        link = visited.page.locator("a.tile").last
        target = (link.get_attribute("href") or "")[1:]
        link.click()
        box = visited.page.locator(f"[id='{target}']").bounding_box()
        assert box is not None
        assert -1 <= box["y"] < 900


def test_the_keyboard_reaches_every_link_and_every_part_that_scrolls(visit: Visiting) -> None:
    with visit(1280, "light") as visited:
        visited.page.keyboard.press("Tab")
        assert visited.page.evaluate("document.activeElement.className") == "skip"
        show_all(visited.page)
        unreachable = visited.page.evaluate(
            "() => [...document.querySelectorAll('a, summary, .scroll')].filter(e => e.tabIndex < 0).length"
        )
        assert unreachable == 0


def test_clicking_a_command_selects_all_of_it(visit: Visiting) -> None:
    with visit(1280, "light") as visited:
        command = visited.page.locator("footer pre.command")
        command.click()
        assert visited.page.evaluate("getSelection().toString().trim()") == command.inner_text().strip()
