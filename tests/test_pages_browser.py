"""The pages in a real browser, at the widths of a telephone, a tablet and a laptop: measured from element boxes."""

import itertools
import json
from pathlib import Path

import pages
import pytest
from chromium import launched

from hmmjax import explore, report
from hmmjax.io import Layout, Track

WIDTHS = (390, 768, 1400)
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip

# Boxes of all visible texts; those that leave the screen or are cut off by a box, except one that says it scrolls;
# and pairs that overlap.
MEASURE = """(root) => {
  const boxes = [], cut = [], overlaps = [];
  const walker = document.createTreeWalker(document.querySelector(root), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, .ticks, option")) continue;
    if (root === "body" && element.closest("dialog")) continue;
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const scrolls = element.closest(".scroll.more");
    for (const r of range.getClientRects()) {
      if (r.width < 1 || r.height < 1) continue;
      boxes.push([r.left + 1, r.top + 2, r.right - 1, r.bottom - 2, node.data.trim(), element]);
      if (scrolls) continue;
      if (r.left < -1 || r.right > window.innerWidth + 1) cut.push(node.data.trim());
      for (let p = element; p && p !== document.body; p = p.parentElement) {
        const style = getComputedStyle(p), b = p.getBoundingClientRect();
        if (style.overflowX !== "visible" && (r.left < b.left - 1 || r.right > b.right + 1)) cut.push(node.data.trim());
        if (style.overflowY === "hidden" && (r.top < b.top - 1 || r.bottom > b.bottom + 1)) cut.push(node.data.trim());
      }
    }
  }
  boxes.sort((a, b) => a[1] - b[1]);
  for (let i = 0; i < boxes.length; i += 1) {
    for (let j = i + 1; j < boxes.length && boxes[j][1] < boxes[i][3]; j += 1) {
      const [a, b] = [boxes[i], boxes[j]];
      if (Math.min(a[2], b[2]) > Math.max(a[0], b[0])) overlaps.push(`${a[4]} / ${b[4]}`);
    }
  }
  return { count: boxes.length, cut, overlaps };
}"""


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, if it is installed."""
    yield from launched(*FLAGS)


@pytest.fixture(scope="module")
def written(browser, tmp_path_factory):
    """A report and an exploration with usual and long names; the browser first, so that nothing is drawn without."""
    folder = tmp_path_factory.mktemp("pages")
    result = pages.full_result()
    report.write_report(result, folder, intervals=False, videos=False)
    tracks = [
        Track(video, kind, frames, labels, names, 25.0, Layout(format="npz", kind="labels"), f"{video}.npz")
        for kind, truth, names in (
            ("phases", result.truth_phases, result.phase_names),
            ("tools", result.truth_tools, result.tool_names),
        )
        for video, frames, labels in zip(result.ids[:2], result.frames, truth, strict=False)
    ]
    explore.write_exploration(explore.explore(tracks), folder / "annotations")
    return {"report": folder / "report.html", "explore": folder / "annotations" / "explore.html"}


@pytest.fixture
def opened(browser, written, request):
    """Open a page at a width; complaints of the browser and requests to a network fail the test."""
    complaints, tabs = [], []

    def open_page(name, width, height=844):
        tab = browser.new_page(viewport={"width": width, "height": height})
        tabs.append(tab)
        tab.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        tab.on("pageerror", lambda e: complaints.append(str(e)))
        tab.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else complaints.append(r.url))
        tab.goto(written[name].as_uri())
        return tab

    yield open_page
    for tab in tabs:
        tab.close()
    assert not complaints


def unfold(tab):
    tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    tab.wait_for_timeout(100)  # until the observer of sizes has run


def assert_readable(tab, root="body"):
    found = tab.evaluate(MEASURE, root)
    assert found["count"] > 10
    assert not found["cut"] and not found["overlaps"], found
    width = "[document.documentElement.scrollWidth, window.innerWidth]"
    wide, given = tab.evaluate(width)
    assert wide <= given


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["report", "explore"])
def test_nothing_is_cut_off_or_overlaps(opened, name, width):
    tab = opened(name, width)
    assert_readable(tab)
    unfold(tab)
    assert_readable(tab)
    # Every table but the minutes of all videos fits, so that raw and stabilized numbers are seen together.
    wide = "[...document.querySelectorAll('.scroll.more')].filter((b) => b.querySelector('table.full')).length"
    assert tab.evaluate(wide) == 0
    images = "[...document.images].every((i) => i.complete && i.naturalWidth > 0)"
    assert tab.evaluate(images)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_strips_are_named_and_the_time_axis_has_room(opened, width):
    tab = opened("report", width)
    names = tab.locator(".video >> nth=0").locator(".rows > span")
    assert names.all_inner_texts()[:4] == ["truth", "raw", "online", "stabilized"]
    assert all(names.nth(i).is_visible() for i in range(names.count()))
    ticks = [t.bounding_box() for t in tab.locator(".ticks > span").all()]
    assert all(a["x"] + a["width"] < b["x"] for a, b in itertools.pairwise(ticks)) and len(ticks) > 2


@pytest.mark.parametrize("width", WIDTHS)
def test_times_in_the_dialog_have_room_and_stay_on_the_canvas(opened, width):
    tab = opened("report", width)
    tab.locator("[data-video=video02]").first.click()
    assert_readable(tab, "#viewer")
    canvas = tab.locator("#canvas")
    canvas.focus()
    for keys in ((), ("+",), ("+", "PageUp"), ("PageDown", "PageDown"), ("+", "+", "+"), ("PageDown",)):
        for key in keys:
            tab.keyboard.press(key)
        labels = json.loads(canvas.get_attribute("data-labels"))
        assert len(labels) > 1 and all(a >= 0 and b <= canvas.bounding_box()["width"] for a, b in labels)
        assert all(b[0] - a[1] > 4 for a, b in itertools.pairwise(labels)), labels


@pytest.mark.parametrize("width", WIDTHS)
def test_everything_is_reached_with_the_keyboard(opened, width):
    tab = opened("report", width)
    focused = "document.activeElement.dataset.video || document.activeElement.id || document.activeElement.tagName"
    for _ in range(200):
        tab.keyboard.press("Tab")
        if tab.evaluate(focused) == "video01":
            break
    assert tab.evaluate(focused) == "video01"
    shown = "(() => { const e = document.activeElement; return getComputedStyle(e).outlineStyle; })()"
    assert tab.evaluate(shown) == "solid"
    tab.keyboard.press("Enter")
    assert tab.inner_text("#viewer-title") == "video01"
    inside = "document.getElementById('viewer').contains(document.activeElement)"
    assert tab.evaluate(inside)
    for _ in range(20):
        if tab.evaluate(focused) == "canvas":
            break
        tab.keyboard.press("Tab")
    canvas = tab.locator("#canvas")
    spoken = [canvas.get_attribute("aria-valuetext")]
    for key in ("ArrowRight", "Shift+ArrowRight", "ArrowLeft"):
        tab.keyboard.press(key)
        spoken.append(canvas.get_attribute("aria-valuetext"))
    assert "stabilized: " in spoken[1] and len(set(spoken)) == 4
    assert spoken[3] == tab.text_content("#readout")
    for _ in range(12):
        tab.keyboard.press("Shift+ArrowRight")
    assert float(canvas.get_attribute("aria-valuenow")) <= float(canvas.get_attribute("aria-valuemax"))
    tab.keyboard.press("Escape")
    assert not tab.locator("#viewer").is_visible() and tab.evaluate(focused) == "video01"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["report", "explore"])
def test_axe_has_no_serious_finding(opened, name, width):
    axe = pytest.importorskip("axe_playwright_python", reason="axe is missing: pip install axe-playwright-python")
    tab = opened(name, width)
    unfold(tab)
    tab.add_script_tag(path=Path(axe.__file__).with_name("axe.min.js"))
    assert_accessible(tab)
    if name == "report":
        tab.locator("[data-video=video01]").first.click()
        assert_accessible(tab)


def assert_accessible(tab):
    found = tab.evaluate("() => axe.run(document)")
    assert found["passes"]
    serious = [
        (v["id"], [n["html"] for n in v["nodes"]])
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert not serious
