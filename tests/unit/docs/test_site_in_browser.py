"""The documentation site in a real browser, on a phone and on a screen: it fits and asks no other host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, sync_playwright

from testing import needs

PAGES = (
    "index.html",
    "quickstart.html",
    "commands.html",
    "ftserve/serving.html",
    "tested.html",
    "benchmarks/index.html",
)
SEARCH_MILLISECONDS = 120_000
# What reaches beyond the screen, but for what scrolls by itself.
WIDE = """() => [...document.querySelectorAll('.md-content *')]
  .filter(e => !e.closest('.md-typeset__scrollwrap, pre, .headerlink, svg, p:has(> img[src$=".svg"])'))
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.outerHTML.slice(0, 200))"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's own name
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = needs.program("chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_pages_fit_and_ask_no_other_host(
    address: str, browser: Browser, width: int, scheme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    for name in PAGES:
        page.goto(address + name)
        assert page.evaluate(WIDE) == [], name
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width, name
    assert [url for url in requests if not url.startswith((address, "data:", "blob:"))] == []
    assert complaints == []
    context.close()


def test_the_search_finds_the_glossary(address: str, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(address)
    # What is typed before the search has its index may be lost.
    started = "() => !document.querySelector('.md-search-result__meta').textContent.includes('Initializing')"
    page.wait_for_function(started, timeout=SEARCH_MILLISECONDS)
    # Keys, since the page reads the field when one is released.
    page.locator("[data-md-component=search-query]").press_sequentially("glossary")
    found = page.locator('.md-search-result__item a[href*="glossary.html"]').first
    found.wait_for(timeout=SEARCH_MILLISECONDS)
    page.close()
