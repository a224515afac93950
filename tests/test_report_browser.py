"""The report's page in a headless browser."""

import re

import pytest
from chromium import launched
from reports import handmade, write_all


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_all(handmade(), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, if it is installed."""
    yield from launched("--no-sandbox")


def test_in_a_browser(browser, written):
    page = browser.new_page(viewport={"width": 1300, "height": 800})
    complaints, requests = [], []
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.on("request", lambda r: requests.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
    page.goto((written[0] / "report.html").as_uri())
    broken = "Array.from(document.images).filter(i => !i.complete || i.naturalWidth === 0).length"
    assert page.evaluate(broken) == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    page.click("[data-video=video02] >> nth=0")
    canvas = page.locator("#canvas")
    assert page.inner_text("#viewer-title") == "video02" and canvas.get_attribute("data-to") == "60.00"
    colors = page.evaluate(
        "() => { const c = document.getElementById('canvas'), d = c.getContext('2d').getImageData(0, 0, c.width,"
        " c.height).data, s = new Set(); for (let i = 0; i < d.length; i += 4) s.add(d[i] + ',' + d[i + 1] + ',' +"
        " d[i + 2]); return [...s]; }"
    )
    assert {"204,121,167", "240,228,66", "94,44,165"} <= set(colors)  # phases 0 and 2, a stabilized tool
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    assert "truth" in page.inner_text("#readout") and re.search(
        r"\(truth [\w ]+, raw \w+\)", page.inner_text("#readout")
    )
    page.mouse.wheel(0, -300)
    page.wait_for_function("Number(document.getElementById('canvas').dataset.to) < 60")
    page.keyboard.press("n")
    page.keyboard.press("0")
    page.click("[data-do=previous]")
    assert page.inner_text("#viewer-title") == "video01"
    page.keyboard.press("Escape")
    page.click(".change-link >> nth=0")
    assert page.inner_text("#viewer-title") == "video01" and float(canvas.get_attribute("data-from")) <= 40
    assert not complaints and not requests


def test_a_laptop_shows_picture_and_readout_together(browser, written):
    page = browser.new_page(viewport={"width": 1366, "height": 640})
    page.goto((written[0] / "report.html").as_uri())
    page.click("[data-video=video01] >> nth=0")
    readout, canvas = (page.locator(f"#{name}").bounding_box() for name in ("readout", "canvas"))
    assert readout["y"] >= 0 and readout["y"] + readout["height"] <= canvas["y"] + 1
    assert canvas["y"] + canvas["height"] <= 640


def test_paper_keeps_the_key(browser, written):
    page = browser.new_page(viewport={"width": 720, "height": 1000})
    page.goto((written[0] / "report.html").as_uri())
    page.emulate_media(media="print")
    assert "from the top: truth, raw, online, stabilized" in page.inner_text("#videos")
    assert "Click on a video" not in page.inner_text("#videos")
    cut = "[...document.querySelectorAll('.video .id')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert page.evaluate(cut) == 0
    unit = "(() => { const u = document.querySelector('.unit'); return u.scrollWidth <= u.clientWidth + 1; })()"
    assert page.evaluate(unit)
    assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.tHead)")
