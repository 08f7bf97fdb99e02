"""The page in a real browser: Debian's chromium, driven by Playwright.

Looked for on the PATH; with CALGRAD_INSTALL_BROWSER=1 (and as root) it is installed by apt-get where absent. Skipped with a
reason where there is none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading

import pytest

from calgrad.metrics import ece
from calgrad.report.document import make_report
from calgrad.report.sources import Model, read_sources
from calgrad.report.watch import Watch, make_server
from tests.report.test_page_document import HOSTILE, predictions
from tests.report.test_page_watch import make_run

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def find_chromium():
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None and os.environ.get("CALGRAD_INSTALL_BROWSER") == "1" and shutil.which("apt-get"):
        for command in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", *command], check=False, capture_output=True, timeout=600)
        found = shutil.which("chromium")
    return found


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra: dev)")
    path = find_chromium()
    if path is None:
        pytest.skip("no chromium here: install it, or set CALGRAD_INSTALL_BROWSER=1")
    with playwright.sync_playwright() as driver:
        try:
            opened = driver.chromium.launch(executable_path=path, args=FLAGS)
        except playwright.Error as error:
            pytest.skip(f"chromium does not start here: {str(error).splitlines()[0]}")
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def page_file(tmp_path_factory):
    names = {"class_names": ["cat", "dog", HOSTILE, "fox"]}
    models = [
        Model("loud", predictions(1500, factor=2.0, meta=names), predictions(800, factor=2.0, seed=1)),
        Model(f"shy {HOSTILE}", predictions(1500, factor=0.5, meta=names)),
        Model("true", predictions(1500, meta=names)),
    ]
    report = make_report(models, methods=("temperature", "svs"), title=f"Test {HOSTILE}")
    return report.save(tmp_path_factory.mktemp("page") / "report.html")


class Tab:
    """A page with what must not happen on it: messages, errors, dialogs and requests."""

    def __init__(self, browser, url, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.trouble, self.requests = [], []
        self.page.on("console", lambda m: self.trouble.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.trouble.append(str(e)))
        self.page.on("dialog", lambda d: (self.trouble.append(f"dialog {d.message}"), d.dismiss()))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.goto(url)
        self.page.wait_for_selector("#diagram svg, #comparison svg, #believe h2")

    def corner(self):
        return self.page.locator("#diagram svg text.strong").first.text_content()

    def button(self, section, name):
        return self.page.locator(f"#{section}").get_by_role("button", name=name, exact=True)


@pytest.fixture
def tab(browser, page_file):
    tab = Tab(browser, page_file.as_uri(), viewport={"width": 1280, "height": 900})
    yield tab
    tab.context.close()
    assert tab.trouble == []
    outside = [url for url in tab.requests if not url.startswith(("file:", "data:"))]
    assert outside == []


def test_loads_without_errors_or_requests_and_answers_in_order(tab):
    headings = tab.page.locator("h2").all_text_contents()
    assert headings == [
        "Can I believe its confidence?",
        "Where is it wrong?",
        "What fixes it?",
        "How do the models compare?",
    ]
    assert tab.page.locator(".verdict .head").text_content().startswith("No: it is over-confident by")


@pytest.mark.parametrize(("button", "binning"), [("equal width", "right"), ("equal mass", "adaptive")])
@pytest.mark.parametrize("bins", [5, 10, 15, 20, 30])
def test_bins_and_schemes_show_the_librarys_numbers(tab, button, binning, bins):
    p = predictions(1500, factor=2.0)
    tab.button("where", button).click()
    tab.button("where", str(bins)).click()
    assert tab.corner() == f"ECE {100 * ece(logits=p.logits, labels=p.labels, bins=bins, binning=binning):.2f} %"
    assert tab.button("where", str(bins)).get_attribute("aria-pressed") == "true"


def test_toggles_change_the_picture(tab):
    def drawn():
        return tab.page.locator("#diagram svg").first.evaluate("svg => svg.outerHTML")

    seen = {drawn()}
    for name in ("equal mass", "smooth", "where samples are", "equal width"):
        tab.button("where", name).click()
        seen.add(drawn())
    assert len(seen) == 5
    assert tab.page.locator("#diagram svg path.curve").count() == 0
    tab.button("where", "smooth").click()
    assert tab.page.locator("#diagram svg path.curve").count() == 1
    assert "smooth ECE" in tab.corner()


def test_classes_and_models_can_be_selected(tab):
    everyone = tab.corner()
    tab.page.locator("#where select").select_option(label="predicted: dog")
    assert tab.corner() != everyone
    tab.page.locator("#where table button.link", has_text="cat").click()
    assert "predicted: cat" in tab.page.locator("#where select option:checked").text_content()
    tab.button("believe", "true").click()
    assert tab.page.locator(".verdict").get_attribute("class") == "verdict yes"
    lines = tab.page.locator("#overlay svg path[fill=none]")
    assert lines.count() == 3
    tab.page.locator(".models input").nth(1).uncheck()
    assert lines.count() == 2


def test_the_table_sorts_both_ways(tab):
    header = tab.page.locator("#comparison th", has=tab.page.get_by_role("button", name="ECE (%)", exact=True))

    def column():
        index = header.evaluate("th => th.cellIndex")
        cells = tab.page.locator(f"#comparison tbody tr td:nth-child({index + 1})").all_text_contents()
        return [float(text) for text in cells]

    header.get_by_role("button").click()
    rising = column()
    assert rising == sorted(rising)
    assert header.get_attribute("aria-sort") == "ascending"
    header.get_by_role("button").click()
    assert column() == rising[::-1]
    assert header.get_attribute("aria-sort") == "descending"


def test_hover_and_arrow_keys_show_values(tab):
    tip = tab.page.locator("#tip")
    assert tip.is_hidden()
    tab.page.locator("#diagram svg").first.hover()
    assert re.search(r"says [\d.]+ %, is right [\d.]+ %", tip.text_content())
    tab.page.mouse.move(5, 5)
    assert tip.is_hidden()
    tab.page.locator("#diagram svg").first.focus()
    tab.page.keyboard.press("ArrowRight")
    first = tip.text_content()
    tab.page.keyboard.press("ArrowRight")
    assert tip.is_visible()
    assert tip.text_content() != first
    tab.page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_works_with_the_keyboard_and_keeps_the_focus(tab):
    reached = set()
    for _ in range(60):
        tab.page.keyboard.press("Tab")
        reached.add(tab.page.evaluate("document.activeElement.tagName.toLowerCase()"))
    assert {"a", "button", "select", "svg", "summary"} <= reached
    tab.button("where", "30").focus()
    tab.page.keyboard.press("Enter")
    assert tab.button("where", "30").get_attribute("aria-pressed") == "true"
    assert tab.page.evaluate("document.activeElement.textContent") == "30"
    outline = tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_every_control_has_a_name(tab):
    nameless = tab.page.evaluate(
        "[...document.querySelectorAll('button, select, input, svg[role=img]')].filter(n => !(n.textContent.trim() ||"
        " n.getAttribute('aria-label') || n.closest('label'))).length"
    )
    assert nameless == 0
    assert tab.page.locator("svg[role=img]").count() >= 6


def test_a_hostile_name_is_shown_and_does_not_run(tab):
    assert "alert(1)" in tab.page.title()
    assert tab.page.locator("img").count() == 0
    assert tab.page.evaluate("document.scripts.length") == 2
    assert "<img src=x" in tab.page.locator("#where").text_content()


def test_a_script_from_outside_the_page_may_not_run(browser, page_file, tmp_path):
    """The second wall: were the escaping broken, the page's policy would still stop a script that is not its own."""
    broken = page_file.read_text().replace(
        '<div id="page"></div>', '<div id="page"></div><script>document.title="owned"</script>'
    )
    path = tmp_path / "broken.html"
    path.write_text(broken)
    tab = Tab(browser, path.as_uri())
    assert tab.page.title() != "owned"
    assert any("Content Security Policy" in text for text in tab.trouble)
    tab.context.close()


def test_dark_and_light(browser, page_file):
    tab = Tab(browser, page_file.as_uri(), color_scheme="dark")
    assert tab.page.evaluate("document.documentElement.dataset.theme") == "dark"
    before = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.page.locator("#theme").click()
    assert tab.page.evaluate("document.documentElement.dataset.theme") == "light"
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    tab.page.reload()
    assert tab.page.evaluate("document.documentElement.dataset.theme") == "light"
    assert tab.trouble == []
    tab.context.close()


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_hangs_over_at_any_width(browser, page_file, width):
    tab = Tab(browser, page_file.as_uri(), viewport={"width": width, "height": 800})
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    diagram = tab.page.locator("#diagram svg").first.bounding_box()
    assert 240 < diagram["width"] <= width
    tab.context.close()


def test_prints_black_on_white_without_controls(browser, page_file):
    tab = Tab(browser, page_file.as_uri(), color_scheme="dark")
    tab.page.emulate_media(media="print")
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.page.locator(".controls").first.is_hidden()
    assert len(tab.page.pdf()) > 20_000
    tab.context.close()


def test_without_scripts_the_verdicts_remain(browser, page_file):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert "No: it is over-confident by" in page.locator("noscript, main").first.inner_text()
    context.close()


def test_the_page_follows_a_training(browser, tmp_path):
    run = make_run(tmp_path / "one", finished=False)
    watch = Watch(
        [tmp_path], lambda: make_report(read_sources([tmp_path], lenient=True), repairs=False, cache={}), seconds=0.2
    )
    watch.look()
    server = make_server(watch)
    stop = threading.Event()
    threads = [
        threading.Thread(target=server.serve_forever, daemon=True),
        threading.Thread(target=watch.follow, args=(stop,), daemon=True),
    ]
    for thread in threads:
        thread.start()
    tab = Tab(browser, f"http://127.0.0.1:{server.server_address[1]}/")
    try:
        assert tab.page.locator("h2").first.text_content() == "No finished run yet"
        assert tab.page.locator("#comparison svg").count() == 3
        make_run(run)
        tab.page.wait_for_selector(".verdict", timeout=10_000)
        assert "under-confident" in tab.page.locator(".verdict .head").text_content()
        assert tab.trouble == []
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
    tab.page.wait_for_selector("#live.lost", timeout=10_000)
    tab.context.close()
