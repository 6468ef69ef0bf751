"""Alarms of the panel: collapsed, acknowledged, filtered, sorted."""

from __future__ import annotations

from typing import Literal

from hilserver.panel.alarms import Alarms
from hilserver.panel.connection import Connection
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.published import Event, Events

Kind = Literal["fault", "switch", "warning", "info"]


def alarms(*events: tuple[Kind, str]) -> Alarms:
    found = Alarms()
    for number, (kind, text) in enumerate(events):
        found.add(Event(kind=kind, text=text, tick=number, time=float(number)))
    return found


def shown(found: Alarms, kind: str = "all", words: str = "") -> list[str]:
    return [entry.times + entry.text for entry in found.listed(kind, words)]


def test_equal_warnings_are_one_entry_and_a_fault_is_on_top_of_them() -> None:
    warning: tuple[Kind, str] = ("warning", "1 tick missed")
    found = alarms(("fault", "FAULT: p_A_high"), *(179 * [warning]), ("info", "SAFE"))
    assert shown(found) == ["FAULT: p_A_high", "179 × 1 tick missed", "SAFE"]
    assert len(found.open()) == 2
    (entry,) = found.listed("warning")
    assert (entry.first, entry.last, entry.tick) == (1.0, 179.0, 179)


def test_texts_that_differ_in_their_numbers_only_are_one_entry() -> None:
    found = alarms(
        ("warning", "output valve is not confirmed for 0.3 s"), ("warning", "output valve is not confirmed for 1 s")
    )
    assert shown(found) == ["2 ×, latest: output valve is not confirmed for 1 s"]


def test_switches_are_never_collapsed() -> None:
    found = alarms(("switch", "version 2"), ("switch", "version 3"))
    assert shown(found) == ["version 3", "version 2"]
    assert found.open() == []


def test_an_event_after_its_alarm_was_acknowledged_is_a_new_alarm() -> None:
    found = alarms(("fault", "FAULT: trip"), ("warning", "limit stroke is violated"))
    found.acknowledge(found.listed("fault")[0].number)
    assert [entry.text for entry in found.open()] == ["limit stroke is violated"]
    assert shown(found) == ["limit stroke is violated", "FAULT: trip"]
    found.add(Event(kind="fault", text="FAULT: trip", tick=9, time=9.0))
    assert shown(found) == ["FAULT: trip", "limit stroke is violated", "FAULT: trip"]
    found.acknowledge()
    assert found.open() == []
    assert shown(found) == ["FAULT: trip", "limit stroke is violated", "FAULT: trip"]


def test_entries_are_found_by_kind_and_words() -> None:
    found = alarms(("warning", "limit stroke is violated"), ("switch", "relief: 1 bar → 2 bar"), ("info", "ARMED"))
    assert shown(found, "switch") == ["relief: 1 bar → 2 bar"]
    assert shown(found, words="Stroke") == ["limit stroke is violated"]


def test_a_panel_that_comes_later_shows_what_happened_before_once() -> None:
    """Also after a loss of the connection: what happened meanwhile is added, what was acknowledged stays so."""
    panel = Connection(BrokerAddress(), "lab")
    fault, warning, mark = (
        Event(kind=kind, text=text, tick=tick, time=float(tick), details={"mode": "FAULT"})
        for tick, (kind, text) in enumerate(
            (("fault", "FAULT: p_A_high"), ("warning", "tick missed"), ("info", "mark"))
        )
    )
    panel._take("events", Events(events=(fault, warning)).payload())
    panel.alarms.acknowledge()
    panel._take("event", warning.payload())
    panel._take("events", Events(events=(fault, warning, mark)).payload())
    assert shown(panel.alarms) == ["mark", "tick missed", "FAULT: p_A_high"]
    assert panel.alarms.open() == []
