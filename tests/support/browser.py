"""Looks at pages in a real Chromium: what a person would see, and what the page asked the network for.

A test module takes the fixtures by importing both: ``from support.browser import browser, open_page  # noqa: F401``.
Without Chromium the tests skip and say so; where the environment variable CI is set they fail instead.
"""

import io
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib.image
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

PATIENCE = 120_000
"""Milliseconds for anything that Chromium is asked to do: a machine that runs other tests is slow, not broken."""

OpenPage: TypeAlias = Callable[..., "Seen"]
"""``open_page(path_or_address, width=1280, dark=False)``."""


@dataclass
class Seen:
    """A page that is open, and what happened since it was asked for."""

    page: Page
    console: list[str] = field(default_factory=list)  # errors and warnings, and exceptions that nobody caught
    requests: list[str] = field(default_factory=list)  # addresses, but for those that hold their own content

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def colours(self) -> int:
        """How many different colours a screenshot of the window has: a blank one has one."""
        pixels = matplotlib.image.imread(io.BytesIO(self.page.screenshot()), format="png")
        red, green, blue = (pixels[..., channel].astype(np.float64) for channel in range(3))
        return len(np.unique(red + 1000 * green + 1000000 * blue))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium, without a window.

    It is closed with the module: Playwright keeps an event loop running meanwhile, and there is one at most.
    """
    found = next((program for program in map(shutil.which, PROGRAMS) if program), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI is set, and there is no Chromium here. Install it, for example with apt install chromium.")
        pytest.skip("there is no Chromium here: apt install chromium")
    with sync_playwright() as playwright:
        # In a container Chromium's own sandbox does not start as root; the pages are our own.
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=PATIENCE)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    contexts: list[Any] = []

    def opened(address: str | Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> Seen:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        seen = Seen(context.new_page())
        seen.page.on(
            "console", lambda said: seen.console.append(said.text) if said.type in ("error", "warning") else None
        )
        seen.page.on("pageerror", lambda error: seen.console.append(str(error)))
        where = address.resolve().as_uri() if isinstance(address, Path) else address
        seen.page.on("request", lambda asked: _note(seen, asked.url, where))
        seen.page.goto(where)
        return seen

    yield opened
    for context in contexts:
        context.close()


def _say(seen: Seen, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        seen.console.append(text)


def _note(seen: Seen, url: str, own: str) -> None:
    if url != own and not url.startswith(("data:", "blob:")):
        seen.requests.append(url)
