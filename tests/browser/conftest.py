"""A real Chromium, offline, that notes every console message and every request."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from treeproof.report.page import write_report

ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MUST_RUN = "TREEPROOF_REQUIRE_BROWSER"
"""Set where a skipped browser test must fail, as in the project's own pipeline."""


@dataclass
class Opened:
    """A page with what happened while it was open."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def executable() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


def give_up(reason: str) -> None:
    if os.environ.get(MUST_RUN):
        pytest.fail(f"{reason}, and {MUST_RUN} is set")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = executable()
    if path is None:
        give_up("no chromium executable is installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        give_up("playwright is not installed")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Write a report and open it; keywords of the browser's context come first."""
    contexts = []

    def call(runs: Any, *, context: dict[str, Any] | None = None, **options: Any) -> Opened:
        path = tmp_path / "report.html"
        write_report(runs, path, **options)
        contexts.append(browser.new_context(**({"color_scheme": "light"} | (context or {}))))
        opened = Opened(contexts[-1].new_page())
        opened.page.on("console", lambda message: opened.messages.append(message.text))
        opened.page.on("pageerror", lambda error: opened.messages.append(str(error)))
        opened.page.on("dialog", lambda dialog: opened.messages.append("a dialog opened"))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.goto(path.as_uri())
        return opened

    yield call
    for made in contexts:
        made.close()
