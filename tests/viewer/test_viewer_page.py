"""The page in a real browser: what is drawn, what the cursors say and what is exported is what was recorded."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from local_page import local_page, opened
from pages import only
from panel_bench import CHROMIUM, chromium
from playwright.sync_api import Browser, Page, Position, expect
from service_harness import eventually
from viewer_bench import SPIKE, STARTED, Run, record

from hilserver.numerics.arrays import Floats
from hilserver.record.export import export
from hilserver.record.notes import read_notes
from hilserver.viewer.figures_view import figure
from hilserver.viewer.layout import ViewLayout, ViewPlot, ViewTab, read_layout, write_layout
from hilserver.viewer.opening import open_log

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make test-programs)"),
]
BAR = 1e5
CHART = "getElement(Number(document.querySelector('.time-plot').id.slice(1))).chart"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """A long run, and a short one, which is opened as Parquet."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "logs").mkdir()
    before, after = (folder / name for name in documented_logs())
    long = record(before, seconds=400.0)
    short = record(after.with_suffix(".arrow"), seconds=6.0, seed=1, start=STARTED + 1000.0)
    export(short.path, after)
    return long, short


def documented_logs() -> list[str]:
    """The logs in the command of docs/viewing.md, which is the one that is run here."""
    command, verb, *logs = only("tested: tests/viewer/test_viewer_page.py::documented_logs").text.split()
    assert (command, verb) == ("hilserver", "view")
    return logs


@pytest.fixture(scope="module")
def url(runs: tuple[Run, Run]) -> Iterator[str]:
    folder = runs[0].path.parents[1]
    with local_page(folder, "view", *documented_logs()) as url:
        yield url
    assert not list(folder.glob(".nicegui*"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def screen(browser: Browser, url: str) -> Iterator[Page]:
    """A browser that has loaded the page once: it need not compile the scripts again, which is half of the work."""
    with opened(browser, url, 1400) as page:
        yield page


@pytest.fixture
def page(screen: Page, url: str) -> Iterator[Page]:
    """The page with both logs, in a browser that has forgotten what the test before this one has done there."""
    if screen.url == "about:blank":
        screen.goto(url)
    eventually(lambda: len(drawn(screen, 0)) > 100, 20)
    yield screen
    screen.evaluate("localStorage.clear(), sessionStorage.clear()")
    screen.context.clear_cookies()
    screen.emulate_media(color_scheme="light")
    screen.goto("about:blank")


def drawn(page: Page, curve: int) -> Floats:
    """The points of a curve, float64[n, 2]: times in s, values in the unit shown; exactly those of the chart."""
    script = f"""() => {{
        const series = {CHART}?.getOption()?.series?.find((one) => one.id === "curve{curve}");
        const bytes = new Uint8Array(new Float64Array(series ? series.data : 0).buffer);
        return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    }}"""
    return np.frombuffer(base64.b64decode(page.evaluate(script)), dtype="<f8").reshape(-1, 2)


def section(page: Page) -> tuple[float, float]:
    zoom = page.evaluate(f"() => {CHART}.getOption().dataZoom[0]")
    return float(zoom["startValue"]), float(zoom["endValue"])


def pixel(page: Page, time: float) -> Position:
    """Where a time is in the first pane, from the corner of the plot."""
    x = page.evaluate(f"() => {CHART}.convertToPixel({{ xAxisIndex: 0 }}, {float(time)!r})")
    return Position(x=x, y=100)


def rows(page: Page) -> dict[str, list[str]]:
    """The table of figures: the cells behind the name, by signal."""
    cells = [row.split("\t") for row in page.locator(".figures tbody").inner_text().splitlines() if row.strip()]
    return {name: rest for name, *rest in cells}


def shows(page: Page, signal: str, expected: list[str]) -> None:
    """The table has these figures of the signal, as soon as they are computed."""
    eventually(lambda: rows(page).get(signal) == expected, 20)


def narrower(page: Page, width: float) -> tuple[float, float]:
    """The section, as soon as it is narrower than this."""
    eventually(lambda: (now := section(page))[1] - now[0] < width, 20)
    return section(page)


def chosen_only(page: Page, *signals: str) -> None:
    """Choose these signals, and no others."""
    for box in page.locator('.signals .q-checkbox[aria-checked="true"]').all_inner_texts():
        page.locator(".signals .q-checkbox", has_text=box).first.click()
        expect(page.locator('.signals .q-checkbox[aria-checked="true"]', has_text=box)).to_have_count(0)
    for name in signals:
        page.locator(".search input").fill(name)
        others = page.locator('.signals .q-checkbox[aria-checked="false"]', has_not_text=name)
        expect(others).to_have_count(0)  # the list of what was found has come
        page.locator(".signals .q-checkbox", has_text=name).first.click()
        expect(page.locator('.signals .q-checkbox[aria-checked="true"]', has_text=name)).to_have_count(1)


def test_no_extreme_is_lost_from_the_whole_run_down_to_single_samples(page: Page, runs: tuple[Run, Run]) -> None:
    long = runs[0]
    time, pressure = long.values["time"], long.values["channel.p_A"] / BAR
    whole = drawn(page, 0)
    assert len(whole) < 2 * 1400
    assert (whole[:, 1].min(), whole[:, 1].max()) == (pressure.min(), pressure.max())
    assert whole[:, 1].max() == SPIKE / BAR
    at = time[long.spike]
    begin, end = section(page)
    assert (begin, end) == pytest.approx((0.0, 399.999))
    page.locator(".time-plot").hover(position=pixel(page, at))
    for _ in range(3):
        page.mouse.wheel(0, -600)
        begin, end = narrower(page, end - begin)
    while end - begin > 0.5:
        page.locator(".time-plot").click(position=pixel(page, at - 0.01 * (end - begin)))
        page.locator(".time-plot").click(position=pixel(page, at + 0.01 * (end - begin)), modifiers=["Shift"])
        expect(page.locator(".span")).to_contain_text("Between the cursors")
        page.get_by_role("button", name="To cursors").click()
        begin, end = narrower(page, end - begin)
    inside = (time >= begin) & (time <= end)
    expected = np.stack([time[inside], pressure[inside]], axis=1)
    eventually(lambda: len(drawn(page, 0)) == len(expected) + 2, 20)
    np.testing.assert_array_equal(drawn(page, 0)[1:-1], expected, "all samples, and one on each side")
    page.get_by_role("button", name="Whole").click()
    eventually(lambda: len(drawn(page, 0)) == len(whole), 20)


def test_cursors_and_statistics_are_those_of_the_recorded_samples(page: Page, runs: tuple[Run, Run]) -> None:
    plot = page.locator(".time-plot")
    plot.click(position=pixel(page, 100.0))
    plot.click(position=pixel(page, 300.0), modifiers=["Shift"])
    span = page.locator(".span")
    expect(span).to_contain_text("Between the cursors")
    found = re.search(r"([\d.]+) s … ([\d.]+) s", span.inner_text())
    assert found is not None
    begin, end = float(found[1]), float(found[2])
    assert (begin, end) == pytest.approx((100.0, 300.0), abs=1.0)
    time = runs[0].values["time"]
    inside = (time >= begin) & (time <= end)
    for name, unit, factor in (("channel.p_A", "bar", BAR), ("channel.x", "mm", 1e-3)):
        values = runs[0].values[name] / factor
        one, other = (values[np.argmin(np.abs(time - at))] for at in (begin, end))
        part = values[inside]
        figures = [part.min(), part.max(), part.mean(), np.sqrt(np.mean(part**2)), part.std()]
        expected = [unit, *map(figure, [one, other, other - one, *figures]), f"{inside.sum()}"]
        shows(page, f"{name} · 1", expected)
    assert rows(page)["channel.p_A · 2"][1:] == [*(8 * ["–"]), "0"], "the short run has no samples there"
    page.get_by_role("button", name="No cursors").click()
    expect(span).to_contain_text("Visible section")


def test_runs_lie_over_one_another_by_an_event_and_by_the_clock(page: Page, runs: tuple[Run, Run]) -> None:
    assert section(page) == pytest.approx((0.0, 399.999))
    page.get_by_role("button", name="event", exact=True).click()
    page.locator(".event").click()
    page.get_by_role("option", name="switch", exact=True).click()
    eventually(lambda: section(page) == pytest.approx((-200.0, 199.999)), 20)
    eventually(lambda: len(points := drawn(page, 1)) > 2 and points[0, 0] < 0, 20)
    short = drawn(page, 1)
    assert (short[0, 0], short[-1, 0]) == pytest.approx((-3.0, 2.999), abs=0.4)
    page.get_by_role("button", name="clock", exact=True).click()
    eventually(lambda: section(page) == pytest.approx((0.0, 1005.999)), 20)


def test_signals_are_found_by_words_and_drawn_on_the_axis_of_their_unit(page: Page) -> None:
    page.locator(".search input").fill("SUPPLY circuit")
    listed = page.locator(".signals .q-checkbox")
    expect(listed.last).to_have_text("circuit.supply.p [bar]")
    chosen_only(page, "circuit.supply.p", "channel.x")
    names = f"() => {CHART}.getOption().yAxis.map((axis) => axis.name)"
    eventually(lambda: page.evaluate(names) == ["bar", "mm"], 20)
    page.locator(".search input").fill("no such signal")
    expect(page.locator(".signals")).to_contain_text("No other matching signal")


def test_a_click_on_a_listed_signal_while_the_search_is_answered_is_not_lost(page: Page) -> None:
    """Both reach the server before the page is given the list of what was found."""
    box = page.locator(".signals .q-checkbox", has_text="circuit.supply.p")
    expect(box).to_have_attribute("aria-checked", "false")
    page.locator(".search input").evaluate(
        """async (field, box) => {
            field.value = "supply";
            field.dispatchEvent(new Event("input", {bubbles: true}));
            await new Promise((sent) => setTimeout(sent));
            box.click();
        }""",
        box.element_handle(),
    )
    others = page.locator('.signals .q-checkbox[aria-checked="false"]', has_not_text="supply")
    expect(others).to_have_count(0)
    expect(box).to_have_attribute("aria-checked", "true")
    eventually(lambda: len(drawn(page, 4)) > 100, 20)


def test_the_span_is_exported_and_the_plot_saved(page: Page, runs: tuple[Run, Run], tmp_path: Path) -> None:
    """Of the long log only: the other is closed first."""
    page.get_by_role("button", name="Close log 2").click()
    expect(page.locator(".log-name")).to_have_count(1)
    plot = page.locator(".time-plot")
    plot.click(position=pixel(page, 50.0))
    plot.click(position=pixel(page, 60.0), modifiers=["Shift"])
    expect(page.locator(".span")).to_contain_text("Between the cursors")
    for kind, words in (("csv", "CSV"), ("parquet", "PARQUET"), ("png", "PNG"), ("svg", "SVG")):
        page.get_by_role("button", name="Export").click()
        with page.expect_download() as download:
            page.locator(".q-menu .q-item", has_text=f"{words}:").click()
        file = tmp_path / download.value.suggested_filename
        download.value.save_as(file)
        assert file.suffix == f".{kind}"
        if kind in ("csv", "parquet"):
            log = open_log(file)
            first, last = log.span
            inside = (runs[0].values["time"] >= first) & (runs[0].values["time"] <= last)
            assert 9_000 < inside.sum() < 11_000
            for name in ("channel.p_A", "channel.x"):
                samples = log.read(name, 0, len(log.times(name)))
                np.testing.assert_array_equal(samples, runs[0].values[name][inside])
            log.close()
        elif kind == "png":
            assert file.read_bytes().startswith(b"\x89PNG")
            assert file.stat().st_size > 10_000
        else:
            text = file.read_text()
            assert text.startswith("<svg")
            assert "channel.p_A" in text
            assert text.count("<path") > 5


def test_spectrum_bode_one_signal_over_another_and_minus_another(page: Page) -> None:
    """The pressure swings with 40 bar at 3 Hz; a signal's response to itself is 1."""
    card = page.locator(".analysis")
    options = "getElement(Number(document.querySelector('.analysis .nicegui-echart').id.slice(1))).chart.getOption()"

    def computed(note: str) -> None:
        page.get_by_role("button", name="Compute").click()
        expect(card.locator(".analysis-note")).to_contain_text(note)

    page.locator(".time-plot").click(position=pixel(page, 100.0))
    page.locator(".time-plot").click(position=pixel(page, 130.0), modifiers=["Shift"])
    expect(page.locator(".span")).to_contain_text("Between the cursors")
    computed("Welch's method")
    eventually(lambda: page.evaluate(f"() => ({options}?.series || []).length") == 1, 20)
    points = np.array(page.evaluate(f"() => {options}.series[0].data"), dtype=float)
    peak = points[np.argmax(points[:, 1])]
    assert peak[0] == pytest.approx(3.0, abs=0.15)
    assert 0.84 * 40.0 < peak[1] < 40.5, "between two frequencies, the Hann window shows up to 15 % less"
    page.get_by_role("button", name="Bode").click()
    card.locator(".other").click()
    page.get_by_role("option", name="channel.p_A · 1", exact=True).click()
    computed("Welch's method")
    eventually(lambda: page.evaluate(f"() => ({options}?.series || []).length") == 3, 20)
    gain = np.array(page.evaluate(f"() => {options}.series[0].data"), dtype=float)
    np.testing.assert_allclose(gain[:, 1], 1.0, rtol=1e-9)
    for kind in ("csv", "svg", "png"):
        page.get_by_role("button", name="Save analysis 1").click()
        with page.expect_download() as download:
            page.locator(".q-menu .q-item", has_text=f"{kind.upper()}:").click()
        assert download.value.suggested_filename == f"bode.{kind}"
        content = Path(download.value.path()).read_bytes()
        assert content.startswith({"csv": b'"frequency, Hz",gain,"phase, ', "svg": b"<svg", "png": b"\x89PNG"}[kind])
        if kind == "csv":
            table = np.loadtxt(content.decode().splitlines()[1:], delimiter=",")
            np.testing.assert_array_equal(table[:, :2], gain)
    page.get_by_role("button", name="X/Y").click()
    computed("points, 1 of every 2 samples")
    page.get_by_role("button", name="Difference").click()
    computed("Choose two signals that are shown")
    card.locator(".other").click()
    page.get_by_role("option", name="channel.p_A · 2", exact=True).click()
    computed("channel.p_A · 1 − channel.p_A · 2 is in the plot")
    eventually(lambda: "channel.p_A · 1 − channel.p_A · 2" in rows(page), 20)


def named(page: Page, what: str, name: str) -> None:
    """Give the tab or the plot a name."""
    page.get_by_role("button", name=f"Change this {what}").click()
    page.locator(".q-menu .q-item", has_text="Rename").click()
    page.locator(".asked input").fill(name)
    page.locator(".asked input").press("Enter")
    expect(page.get_by_role("button", name=name, exact=True)).to_be_visible()


def test_a_layout_is_saved_and_laid_over_the_logs_again(page: Page, runs: tuple[Run, Run]) -> None:
    named(page, "tab", "Chambers")
    named(page, "plot", "Pressure")
    page.locator(".unit").first.click()
    page.get_by_role("option", name="MPa", exact=True).click()
    expect(page.get_by_role("checkbox", name="channel.p_A [MPa]")).to_be_visible()  # all is drawn anew by then
    page.get_by_role("button", name="Add a plot").click()
    expect(page.get_by_role("button", name="Plot 2", exact=True)).to_be_visible()
    page.get_by_role("button", name="Layout").click()
    page.locator(".q-menu .q-item", has_text="Save as").click()
    page.locator(".asked input").fill("bench")
    page.locator(".asked input").press("Enter")
    file = runs[0].path.with_name("bench.layout.toml")
    eventually(file.exists, 20)
    saved = ViewPlot(name="Pressure", signals=("channel.p_A", "channel.x"), units={"Pa": "MPa"})
    (tab,) = read_layout(file).tabs
    assert (tab.name, tab.plots) == ("Chambers", (saved, ViewPlot()))
    other = ViewPlot(name="Force", signals=("channel.x", "channel.F"), units={"m": "in"})
    write_layout(ViewLayout(tabs=(tab.model_copy(update={"plots": (saved, other)}), ViewTab(name="Second"))), file)
    page.get_by_role("button", name="Layout").click()
    page.locator(".q-menu .q-item", has_text="Load bench").click()
    names = f"() => {CHART}.getOption().yAxis.map((axis) => axis.name)"
    eventually(lambda: page.evaluate(names) == ["MPa", "mm", "in"], 20)
    titles = page.evaluate(f"() => {CHART}.getOption().title.map((title) => title.text)")
    assert titles == ["Pressure", "", "Force"]
    expect(page.locator(".missing")).to_have_text("Not in these logs: channel.F.")
    eventually(lambda: len(drawn(page, 0)) > 100, 20)
    assert drawn(page, 0)[:, 1].max() == SPIKE / 1e6
    page.get_by_role("button", name="Second").click()
    eventually(lambda: page.evaluate(names) == [""], 20)


def test_a_note_a_trigger_and_a_cursor_that_is_dragged(page: Page, runs: tuple[Run, Run]) -> None:
    """On a dark page."""
    page.emulate_media(color_scheme="dark")
    expect(page.locator(".card").first).to_have_css("background-color", "rgb(30, 41, 59)")
    long, plot = runs[0], page.locator(".time-plot")
    plot.click(position=pixel(page, 100.0))
    expect(page.locator(".figures tbody tr").first).to_contain_text("channel.p_A · 1")
    box = plot.bounding_box()
    assert box is not None
    for move, time in ((page.mouse.down, 100.0), (page.mouse.up, 300.0)):
        page.mouse.move(box["x"] + pixel(page, time)["x"], box["y"] + 100, steps=4)
        move()
    step = 400.0 / 1000  # at least of a pixel
    page.get_by_role("button", name="Add a note").click()
    page.locator(".note-text textarea").fill("squeals")
    page.get_by_role("button", name="Keep").click()
    expect(page.locator(".note-row")).to_contain_text("squeals")
    (note,) = read_notes(long.path)
    assert note.time == pytest.approx(300.0, abs=step)
    assert section(page) == pytest.approx((0.0, 399.999)), "not moved by dragging"
    marks = (
        f"() => {CHART}.getOption().series.find((one) => one.id === 'marks0').markLine.data.map((line) => line.name)"
    )
    eventually(lambda: "1: note: squeals" in page.evaluate(marks), 20)
    page.locator(".trigger-level input").fill("200")
    page.get_by_role("button", name="Find").click()
    expect(page.locator(".trigger-note")).to_have_text("log 1: 1, log 2: 1.")
    page.get_by_role("button", name="Next occurrence").click()
    spike = long.values["time"][long.spike]
    eventually(lambda: section(page) == pytest.approx((spike - 0.1, spike + 0.5), abs=2e-3), 20)
    page.get_by_role("button", name="Remove this note").click()
    expect(page.locator(".note-row")).to_have_count(0)
    assert read_notes(long.path) == ()


def test_a_browser_without_the_token_sees_nothing(browser: Browser, url: str) -> None:
    context = browser.new_context()
    for address in (url.partition("?")[0], f"{url.partition('?')[0]}?token=guessed"):
        answer = context.request.get(address)
        assert answer.status == 401
        assert "hilserver view" in answer.text()
    assert context.request.get(url, headers={"Host": "evil.example"}).status == 403
    context.close()
