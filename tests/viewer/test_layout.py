"""Layouts: what is shown can be written, read again, and laid over another log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import only
from viewer_bench import record

from hilserver.errors import ConfigurationError, HilserverError
from hilserver.viewer.axis_units import axis_unit
from hilserver.viewer.layout import (
    ViewAlign,
    ViewAnalysis,
    ViewLayout,
    ViewPlot,
    ViewTab,
    layout_file,
    layout_text,
    layouts_in,
    parse_layout,
    read_layout,
    write_layout,
)
from hilserver.viewer.overlay import Overlay
from hilserver.viewer.store import LogStore
from hilserver.viewer.tabs import Tabs

names = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=12)
plots = st.builds(
    ViewPlot,
    name=names,
    signals=st.lists(names, max_size=3).map(tuple),
    units=st.sampled_from([{}, {"Pa": "MPa"}, {"Pa": "kPa", "m": "in"}]),
)
analyses = st.builds(
    ViewAnalysis,
    name=names,
    kind=st.sampled_from(["spectrum", "bode", "xy"]),
    signals=st.lists(names, max_size=2).map(tuple),
    averages=st.sampled_from([1, 8]),
)
tabs = st.builds(
    ViewTab,
    name=names,
    plots=st.lists(plots, min_size=1, max_size=3).map(tuple),
    differences=st.lists(st.tuples(names, names), max_size=2).map(tuple),
    analyses=st.lists(analyses, max_size=2).map(tuple),
)
layouts = st.builds(
    ViewLayout,
    align=st.builds(ViewAlign, by=st.sampled_from(["start", "clock", "event"]), event=names, number=st.integers(1, 9)),
    tabs=st.lists(tabs, min_size=1, max_size=3).map(tuple),
)


@given(layouts)
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_again(layout: ViewLayout) -> None:
    assert parse_layout(layout_text(layout).encode(), "a.toml") == layout


def test_layouts_of_a_folder_are_found_by_name(tmp_path: Path) -> None:
    file = layout_file(tmp_path, " pressures at 40 °C ".replace("°", "deg "))
    write_layout(ViewLayout(tabs=(ViewTab(name="p ± 5 bar"),)), file)
    assert layouts_in(tmp_path) == {"pressures at 40 deg C": file}
    assert read_layout(file).tabs[0].name == "p ± 5 bar", "no tolerance"
    assert layouts_in(tmp_path / "none") == {}
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("name", ["", "../other", "a/b", ".hidden", "x" * 61, "a\nb"])
def test_a_layout_is_not_written_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(HilserverError, match="can't be the name of a layout"):
        layout_file(tmp_path, name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[tabs]]\nnme = 'x'", r"f\.toml: tabs\[0\]\.nme: unknown key\. Did you mean name\?"),
        ("tabs = []", r"f\.toml: tabs: there must be at least one\."),
        (
            "[[tabs]]\n[[tabs.plots]]\nunits = {Pa = 'kN'}",
            r'f\.toml: tabs\[0\]\.plots\[0\]\.units: "kN" is not a unit for values in Pa\. '
            r"Possible units: bar, MPa, psi, Pa\.",
        ),
        (
            "[[tabs]]\n[[tabs.plots]]\nunits = {'9**9**9' = 'bar'}",
            r'tabs\[0\]\.plots\[0\]\.units: "9\*\*9\*\*9" is not the SI unit of a quantity\. Known are 1/s, K, N',
        ),
        ("[[tabs]]\n[[tabs.plots]]\nunits = {Foo = 'bar'}", r'units: "Foo" is not the SI unit'),
        ("[[tabs]]\n[[tabs.analyses]]\naverages = 3", r"tabs\[0\]\.analyses\[0\]\.averages: 3 is not one of 1, 4, 8"),
        ("[align]\nby = 'even'", r"f\.toml: align\.by: \"even\" is not one of 'start', 'clock'"),
        ("tabs = [", r"f\.toml: the file is not valid TOML"),
        ("[[tabs]]\n" * 51, r"f\.toml: tabs: .*at most 50"),
        ("[[tabs]]\n" + "[[tabs.plots]]\n" * 21, r"f\.toml: tabs\[0\]\.plots: .*at most 20"),
        ("[[tabs]]\n" + "[[tabs.analyses]]\n" * 21, r"f\.toml: tabs\[0\]\.analyses: .*at most 20"),
        ("[[tabs]]\ndifferences = [" + '["a", "b"],' * 201 + "]", r"tabs\[0\]\.differences: .*at most 200"),
        (
            "[[tabs]]\n[[tabs.plots]]\nsignals = [" + '"a",' * 201 + "]",
            r"f\.toml: tabs\[0\]\.plots\[0\]\.signals: .*at most 200",
        ),
    ],
)
def test_what_is_wrong_in_a_layout_is_named(text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected) as error:
        parse_layout(text.encode(), "f.toml")
    assert len(error.value.problems) == 1


def test_the_unit_of_an_axis_is_any_of_its_dimension() -> None:
    assert (axis_unit("psi", "Pa").factor, axis_unit("kPa", "Pa").factor) == pytest.approx((6894.757293168, 1e3))
    assert axis_unit("l/min", "m^3/s").factor == pytest.approx(1 / 6e4)
    for unit, si in (("degC", "K"), ("bar", "m"), ("nonsense", "N"), ("", "Pa")):
        with pytest.raises(ValueError, match=r"is not a unit for values in|is not a multiple of"):
            axis_unit(unit, si)


def test_a_layout_is_laid_over_another_log(tmp_path: Path) -> None:
    """What that log lacks is named, and still there when the layout is saved again."""
    record(tmp_path / "one.arrow")
    shown = Overlay([LogStore().open(tmp_path / "one.arrow")])
    layout = documented()
    lacking = layout.tabs[0].plots[0].model_copy(update={"signals": ("channel.p_A", "channel.p_Z")})
    changed = (layout.tabs[0].model_copy(update={"plots": (lacking, *layout.tabs[0].plots[1:])}), *layout.tabs[1:])
    shown.load(ViewLayout(align=layout.align, tabs=changed))
    assert shown.missing() == ["channel.p_Z"]
    assert [(c.name, c.plot, c.shown.unit) for c in shown.curves()] == [
        ("channel.p_A", 0, "MPa"),
        ("channel.x", 1, "mm"),
    ]
    assert shown.layout.tabs == changed
    shown.choose(["channel.p_Z", "channel.p_A", "channel.x"])
    assert shown.signals == ("channel.p_Z", "channel.p_A", "channel.x"), "what is missing stays"


def documented() -> ViewLayout:
    """The layout of docs/viewing.md: signals of the log that is recorded here."""
    return parse_layout(only("tested: tests/viewer/test_layout.py::documented").text.encode(), "docs/viewing.md")


def test_a_layout_that_cannot_be_aligned_so_shows_all_else(tmp_path: Path) -> None:
    record(tmp_path / "one.arrow")
    shown = Overlay([LogStore().open(tmp_path / "one.arrow")])
    plots = (ViewPlot(signals=("channel.x",)),)
    with pytest.raises(HilserverError, match="no event named dance"):
        shown.load(ViewLayout(align=ViewAlign(by="event", event="dance"), tabs=(ViewTab(plots=plots),)))
    assert (shown.aligned.by, [c.name for c in shown.curves()]) == ("start", ["channel.x"])


def test_a_signal_in_two_plots_has_one_colour_and_two_units(tmp_path: Path) -> None:
    record(tmp_path / "one.arrow")
    shown = Overlay([LogStore().open(tmp_path / "one.arrow")])
    plots = (ViewPlot(signals=("channel.x", "channel.p_A")), ViewPlot(signals=("channel.p_A",), units={"Pa": "psi"}))
    shown.load(ViewLayout(tabs=(ViewTab(plots=plots),)))
    _, bar, psi = shown.curves()
    assert (bar.colour, bar.shown.unit, bar.plot) == (psi.colour, "bar", 0)
    assert (psi.shown.unit, psi.plot) == ("psi", 1)
    assert bar.value(1.0) * 1e5 == pytest.approx(psi.value(1.0) * 6894.757293168)


def test_a_curve_is_found_by_the_name_it_has_beside_other_logs(tmp_path: Path) -> None:
    for name in ("one.arrow", "two.arrow"):
        record(tmp_path / name)
    store = LogStore()
    one, both = (
        Overlay([store.open(tmp_path / name) for name in names])
        for names in (["one.arrow"], ["one.arrow", "two.arrow"])
    )
    for shown in (one, both):
        shown.choose(["channel.p_A"])

    def found(shown: Overlay, name: str) -> str | None:
        curve = shown.find(name)
        return None if curve is None else curve.name

    assert found(one, "channel.p_A · 1") == found(one, "channel.p_A") == "channel.p_A"
    assert found(one, "channel.p_A · 2") is None
    assert found(both, "channel.p_A") == "channel.p_A · 1"
    assert found(both, "channel.p_A · 2") == "channel.p_A · 2"
    assert found(both, "channel.x") is None, "not shown"


def test_tabs_plots_and_analyses_are_added_named_moved_and_removed() -> None:
    page = Tabs()
    page.change(name="first")
    page.add()
    page.change(name="second")
    page.move(-1)
    page.move(-1)
    assert ([tab.name for tab in page.all], page.place) == (["second", "first"], 0)
    page.change_plot(name="a", signals=("x",))
    page.add_plot()
    page.change_plot(name="b")
    page.move_plot(-1)
    assert ([plot.name for plot in page.shown.plots], page.selected.name) == (["b", "a"], "b")
    page.remove_plot()
    assert page.selected.signals == ("x",)
    page.remove_plot()
    assert page.shown.plots == (ViewPlot(),), "of the last one, only the content"
    page.add_analysis()
    page.change_analysis(1, kind="bode")
    page.move_analysis(1, -1)
    assert [analysis.kind for analysis in page.shown.analyses] == ["bode", "spectrum"]
    page.remove_analysis(0)
    assert [analysis.kind for analysis in page.shown.analyses] == ["spectrum"]
    page.remove()
    page.remove()
    assert (page.all, page.place) == ((ViewTab(),), 0)


def test_no_more_is_added_than_a_layout_may_have() -> None:
    """So that whatever is shown can be saved, and read again."""
    page = Tabs()
    for add, most in ((page.add, 50), (page.add_plot, 20), (page.add_analysis, 20)):
        for _ in range(most - 1):
            add()
        with pytest.raises(HilserverError, match=f"A layout has at most {most} "):
            add()
    page.choose(tuple(f"s{k}" for k in range(200)))
    page.subtract(tuple(("a", f"s{k}") for k in range(200)))
    with pytest.raises(HilserverError, match="at most 200 signals in a plot"):
        page.choose(tuple(f"s{k}" for k in range(201)))
    with pytest.raises(HilserverError, match="at most 200 differences in a tab"):
        page.subtract(tuple(("a", f"s{k}") for k in range(201)))
    layout = ViewLayout(tabs=page.all)
    assert parse_layout(layout_text(layout).encode(), "a.toml") == layout
