"""Reactions and playouts in the panel, without a browser: what is sent, refused and shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bare_page import bare_page
from panel_page import SilentPage

from hilserver.errors import HilserverError
from hilserver.panel.automation import AutomationView
from hilserver.panel.command_dialog import command_of
from hilserver.protocol.commands import BeginPlayout, React
from hilserver.protocol.published import PlayoutStatus, ReactionStatus

PLAYED = {"state": "CONTROLLED", "frequency": 4.0, "amplitude": 0.00598, "target": 0.006, "drive": 0.21}


def playout(**changes: Any) -> PlayoutStatus:
    return PlayoutStatus(**{**PLAYED, "cycles": 250, "wanted": 1000, "phase_error": -0.2, **changes})


def test_a_reaction_is_armed_listed_and_released() -> None:
    async def run() -> None:
        async with bare_page():
            page = SilentPage("Operate", reactions=2)
            view = AutomationView(page)
            page.tells()
            assert (view._reactions[0].visible, view._playouts[0].visible) == (True, False), "as the rig has room"
            dialog = view._react
            dialog.open()
            entered: dict[str, Any] = {
                "reaction": "over",
                "when": "p_A > 200 bar",
                "then": "set",
                "input": "joystick",
                "ramp": "1 s",
            }
            for name, value in (entered | {"repeat": True}).items():
                dialog._fields[name].value = value
            await dialog._send()
            assert dialog._reason.text == "set requires value."
            dialog._fields["value"].value = "-0,5"
            page.problem = "when: no such channel."
            await dialog._send()
            assert (dialog._reason.text, dialog.dialog.value) == ("when: no such channel.", True), "it stays open"
            page.problem = ""
            await dialog._send()
            assert page.sent[-1] == React(**entered, value=-0.5, repeat=True)
            assert not dialog.dialog.value
            held = ReactionStatus(text="p_A > 200 bar: hold", state="HOLDING", met=True)
            page.tells(reactions={"over": held})
            ((_, words, progress),) = view._shown
            assert words.text == "holding the commands; its condition is met"
            assert not progress.visible
            (button,) = view._buttons
            page.tells(reactions={"over": held.model_copy(update={"state": "ENDED", "met": False})})
            assert words.text == "ended the run: release it before the next start"
            assert view._buttons == [button], "nothing moves under the mouse"
            assert button.enabled
            page.connection.role = "viewer"
            page.update()
            assert not button.enabled

    asyncio.run(run())


def test_a_playout_is_followed_to_its_end() -> None:
    async def run() -> None:
        async with bare_page():
            page = SilentPage("Operate", playouts=1)
            view = AutomationView(page)
            page.tells(playouts={"shake": playout(state="LEARNING")})
            ((about, words, progress),) = view._shown
            (button,) = view._buttons
            page.tells(playouts={"shake": playout()})
            assert about.text == "CONTROLLED"
            assert view._buttons == [button], "a click on it is never lost"
            assert words.text == "250 of 1000 cycles at 4 Hz; 99.7 % of the amplitude, phase −0.2°, drive 0.21"
            assert progress.value == 0.25
            page.tells(playouts={"shake": playout(cycles=500, amplitude=None, phase_error=None)})
            assert words.text == "500 of 1000 cycles at 4 Hz; – of the amplitude, phase –, drive 0.21"
            assert len(view._buttons) == 1
            page.tells(playouts={"shake": playout(cycles=1000, state="COMPLETED")})
            assert (view._shown[0][2].value, view._buttons) == (1.0, [])
            view._play.open()
            assert list(view._play._fields["channel"].options) == page.connection.history.channels()

    asyncio.run(run())


def test_the_form_of_a_playout_gives_its_command() -> None:
    texts = {"playout": "shake", "input": "joystick", "channel": "x", "amplitude": " 6 mm ", "frequency": "4 Hz"}
    entered = {**texts, "cycles": "60", "drive": "0,2", "tolerance": "0.03", "limit": "", "centre": "", "mean": "0.0"}
    given: dict[str, Any] = {**texts, "amplitude": "6 mm"}
    assert command_of(BeginPlayout, entered) == BeginPlayout(**given, cycles=60, drive=0.2, tolerance=0.03)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"cycles": "many"}, "cycles: "),
        ({"mean": "1,000"}, "mean: 1,000: thousands are not separated"),
        ({"drive": "0"}, "drive: "),
        ({"centre": "3 mm"}, "centre and centre_per"),
    ],
)
def test_what_is_wrong_in_a_form_is_said(wrong: dict[str, str], problem: str) -> None:
    right = {"playout": "a", "input": "b", "channel": "x", "amplitude": "1 mm", "frequency": "1 Hz", "cycles": "1"}
    with pytest.raises(HilserverError, match=problem):
        command_of(BeginPlayout, right | wrong)
