"""Live plots in a layout, and triggers with their windows, without a browser: what is shown, saved and sent."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from bare_page import bare_page, in_the_end
from fastapi import Request
from nicegui import background_tasks
from panel_page import SilentPage, described, recorded
from viewer_bench import record

from hilserver.panel.live_layout import LiveLayout, channels_of, signals
from hilserver.panel.live_trigger import LiveTriggerView, is_watched
from hilserver.panel.plots_view import PlotsView
from hilserver.panel.settings import PanelSettings
from hilserver.panel.wall import WallPlots
from hilserver.panel.web import Panel, UserSession
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import ArmTrigger, EndTrigger
from hilserver.protocol.published import TriggerStatus
from hilserver.record.cuts import FOLDER
from hilserver.viewer.layout import ViewAlign, ViewLayout, ViewPlot, ViewTab, read_layout, write_layout

OURS = ViewLayout(
    align=ViewAlign(by="clock"),
    tabs=(
        ViewTab(name="one", plots=(ViewPlot(name="pressures", signals=("channel.p_A", "channel.p_Z")),)),
        ViewTab(name="two", plots=(ViewPlot(signals=("channel.x", "channel.p_B", "valve.main.flow_virtual")),)),
    ),
)
"""A layout as the viewer writes it: with a signal that this rig lacks, and a plot of three units."""


def test_the_names_of_a_log_are_those_of_telemetry_and_back() -> None:
    here = described()
    names = ("channel.p_A", "channel.p_Z", "circuit.supply.p", "valve.main.flow_virtual", "loop.work")
    shown = channels_of(ViewPlot(signals=names), here)
    assert shown == ["p_A", "channel.p_Z", *names[2:]]
    assert signals(shown, here) == names
    live = LiveLayout()
    live.load(OURS)
    assert live.layout == OURS, "nothing is lost"


def test_tabs_and_plots_are_arranged_saved_and_found_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with bare_page():
            page = SilentPage()
            view = PlotsView(page, recorded(tmp_path))
            page.update()
            before = len(page._fast)
            tabs, titles = view.shown.tabs, [plot.name for plot in view.shown.tabs.shown.plots]
            assert titles == ["Pressures", "Position", "Operator inputs"]
            view._tabs._do(tabs.add_plot, False)
            view._choose(3, ["x", "circuit.supply.p"])
            tabs.change_plot(name="mine")
            view._tabs._do(lambda: tabs.move_plot(-3), False)
            assert view.plots[0].given == ["x", "circuit.supply.p"]
            view._tabs._do(tabs.add, True)
            tabs.change(name="second")
            assert [plot.given for plot in view.plots] == [[]]
            assert len(page._fast) == before - len(titles) + 1, "what was removed is not updated any more"
            page.update()
            assert [*page._message["charts"]] == [str(view.plots[0]._id)]
            assert len(page._message["gone"]) >= len(titles), "the browser does not wait for it"
            menu = view._layouts
            assert menu.file == tmp_path / "lab.layout.toml"
            menu._save(menu.file)
            saved = read_layout(tmp_path / "lab.layout.toml")
            assert saved.tabs[0].plots[0] == ViewPlot(name="mine", signals=("channel.x", "circuit.supply.p"))
            again = PlotsView(page, recorded(tmp_path))
            page.update()
            await in_the_end(lambda: again.shown.layout == saved)

    asyncio.run(run())


def test_a_layout_of_recordings_is_shown_live(tmp_path: Path) -> None:
    """Of three units two are drawn; the third is named, and stays in the layout. The pause holds."""

    async def run() -> None:
        async with bare_page():
            page = SilentPage()
            view = PlotsView(page, recorded(None, lambda: False))
            page.update()
            view._toggle()
            await view._load(OURS)
            assert view.plots[0].channels == ["p_A", "channel.p_Z"]
            assert view.plots[0]._held == view._held == 1
            view.shown.tabs.show(1)
            view._rebuild()
            (plot,) = view.plots
            assert (plot.given, plot.channels) == (["x", "p_B", "valve.main.flow_virtual"], ["x", "p_B"])
            assert plot._note.text == "Not drawn (there is no third axis): main virtual flow."
            assert view.shown.layout == OURS
            wall = SilentPage("Wall")
            plots = WallPlots(wall, [], 60, OURS.tabs[1])
            wall.update()
            assert [plot.given for plot in plots.plots] == [["x", "p_B", "valve.main.flow_virtual"]]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("entered", "sent"),
    [
        ({"_level": "120", "_hysteresis": "2"}, {"when": "p_A > 120 bar", "hysteresis": "2 bar"}),
        ({"_edge": "falling", "_level": "12,5 MPa"}, {"when": "p_A < 12.5 MPa"}),
        ({"_edge": "either", "_before": "20 ms"}, {"when": "p_A > 0 bar", "either": True, "before": "20 ms"}),
        ({"_signal": "valve.main.flow_virtual", "_level": "3"}, {"when": "valve.main.flow_virtual > 3 l/min"}),
        ({"_kind": "mode", "_mode": "FAULT"}, {"mode": "FAULT"}),
        ({"_kind": "event", "_event": "limit"}, {"event": "limit"}),
    ],
)
def test_a_trigger_is_sent_as_entered(entered: dict[str, Any], sent: dict[str, Any]) -> None:
    async def run() -> ArmTrigger:
        async with bare_page():
            view = LiveTriggerView(SilentPage(), recorded(None))
            view._offer()
            for name, value in entered.items():
                getattr(view, name).value = value
            return view._entered(repeat=True)

    usual = {"before": "0.1 s", "after": "0.5 s"}
    assert asyncio.run(run()) == ArmTrigger.model_validate({"trigger": "panel", "repeat": True, **usual, **sent})


def test_the_window_of_a_trigger_is_shown_with_any_signal(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    first, second = (record(tmp_path / FOLDER / f"{name}_lab_panel.arrow").path for name in ("1", "2"))
    waiting = TriggerStatus(text="p_A > 120 bar", state="ARMED")

    async def run() -> None:
        async with bare_page():
            page = SilentPage()
            view = LiveTriggerView(page, recorded(tmp_path))
            page.tells(triggers={"other": waiting.model_copy(update={"file": str(second), "configured": True})})
            await view._arm(repeat=True)
            assert [command.name for command in page.sent] == ["trigger"]
            window = view._window

            def shows(file: Path) -> bool:
                return bool(window._box.visible) and window._title.text == file.name

            assert not window._box.visible, "the one of somebody else is shown on demand only"
            for file in (first, second):
                done = waiting.model_copy(update={"file": f"/on/the/server/{FOLDER}/{file.name}", "count": 1})
                page.tells(triggers={"panel": done})
                await in_the_end(partial(shows, file))
                names = [curve.name for curve in window.overlay.curves()]
                assert names == (["channel.p_A"] if file == first else ["channel.p_A", "channel.x"])
                times, values = window.overlay.curves()[0].samples(0.0, 1.0)
                assert len(times) == len(values) == 1001, "every sample of 1 s at 1 kHz"
                window._signals.value = ["channel.p_A", "channel.x"]
            await view._show("panel", "/elsewhere/cuts/3_lab_panel.arrow")
            assert window._note.text.startswith("/elsewhere/cuts/3_lab_panel.arrow is not on this computer")
            page.problem = "trigger: 8 triggers are armed"
            view._followed = ""
            await view._arm(repeat=False)
            assert view._followed == "", "refused"
            assert EndTrigger(trigger="panel") not in page.sent
            buttons = (*view._operating, *(row.end for row in view._rows if row.end is not None))
            assert [button.text for button in buttons if button.enabled] == ["Single", "Normal", "End"]
            page.connection.role = "viewer"
            page.update()
            assert not any(button.enabled for button in buttons)

    asyncio.run(run())


def test_two_pages_do_not_replace_each_others_triggers(tmp_path: Path) -> None:
    """Nor does a window from before the arming pass for that of the trigger that was armed."""
    (tmp_path / FOLDER).mkdir()
    old = record(tmp_path / FOLDER / "1_lab_panel.arrow").path
    armed = TriggerStatus(text="p_A > 0 bar", state="ARMED")

    async def run() -> None:
        async with bare_page():
            one, two = SilentPage(), SilentPage()
            first, second = (LiveTriggerView(page, recorded(tmp_path)) for page in (one, two))
            one.tells()
            await first._arm(repeat=False)
            done = armed.model_copy(update={"state": "DONE", "file": str(old)})
            for page in (one, two):
                page.tells(triggers={"panel": done})
            await in_the_end(lambda: bool(first._window._box.visible))
            first._window._box.visible = False
            await second._arm(repeat=False)
            await first._arm(repeat=False)
            assert [command.trigger for command in (*one.sent, *two.sent)] == ["panel", "panel", "panel-2"]
            before = set(background_tasks.running_tasks)
            one.update()  # the state is still that from before
            for page in (one, two):
                page.tells(triggers={"panel": armed, "panel-2": armed})
            assert background_tasks.running_tasks <= before, "no window is being opened"
            assert (first._name.value, second._name.value) == ("panel", "panel-2")

    asyncio.run(run())


def test_the_list_of_triggers_stays_in_place_while_they_occur() -> None:
    async def run() -> None:
        async with bare_page():
            page = SilentPage()
            view = LiveTriggerView(page, recorded(None))
            swing = TriggerStatus(text="p_A > 0 bar", state="ARMED")
            page.tells(triggers={"swing": swing})
            (row,) = view._rows
            assert not row._show.visible
            page.tells(triggers={"swing": swing.model_copy(update={"count": 5, "file": "a.arrow"})})
            assert view._rows == [row]
            assert (row._words.text, row._show.visible) == ("waiting, 5 so far", True)
            full = {"count": 1000, "state": "DONE", "trouble": "it has 1000 recordings"}
            page.tells(triggers={"swing": swing.model_copy(update=full)})
            assert row._words.text == "ended: it has 1000 recordings"

    asyncio.run(run())


def test_triggers_can_wait_for_what_the_recorder_can_watch() -> None:
    here = described()
    watched = ("p_A", "valve.main.flow_virtual", "circuit.tank.p", "circuit.throttle.Q")
    others = ("circuit.t", "tick", "loop.work", "device.io.errors", "valve.main.saturation", "gone")
    assert [name for name in (*watched, *others) if is_watched(name, here)] == [*watched]


def test_the_layout_of_the_wall_is_read_from_the_folder(tmp_path: Path) -> None:
    write_layout(OURS, tmp_path / "bench.layout.toml")
    (tmp_path / "bad.layout.toml").write_text("tabs = 3")
    panel = Panel(PanelSettings("lab", BrokerAddress(), recordings=tmp_path))
    session = panel._sessions["firefox"] = UserSession(SilentPage().connection)

    def shown(name: str, **query: str) -> ViewTab | str:
        request = cast(Request, SimpleNamespace(query_params=query))
        return asyncio.run(panel._layout(request, "firefox", session, name))

    assert shown("bench") == OURS.tabs[0]
    assert shown("bench", tab="two") == OURS.tabs[1]
    assert shown("bench", tab="three") == "The layout bench has no tab three."
    assert shown("../bench") == "There is no layout ../bench in the folder of the recordings."
    assert "bad.layout.toml" in str(shown("bad"))
