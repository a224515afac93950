"""A headless browser, for tests of pages."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest


def launched(*flags: str) -> Iterator[Any]:
    """Yield headless Chromium with these flags, and close it; skip the test if it is not installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install playwright")
    path = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is not on the path: install the system's package chromium")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(flags))
        yield running
        running.close()
