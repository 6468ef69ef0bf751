"""The list of events in a report: nothing hides a fault, and equal warnings are counted."""

from __future__ import annotations

from hilserver.report.event_list import MAX_EVENTS, EventList, Listed


def test_a_flood_of_warnings_is_one_line_and_hides_no_fault() -> None:
    events = EventList()
    for k in range(1000):
        events.add(Listed(0.001 * k, k, "one tick missed", "warning"))
        events.add(Listed(0.001 * k, k, f"command {k}"))
    events.shorten()
    events.add(Listed(2.0, 2000, "FAULT: p_A_high", "fault"))
    events.add(Listed(2.5, 2500, "one tick missed", "warning"))
    events.add(Listed(3.0, 3000, "FAULT: p_A_high", "fault"))
    events.shorten()
    rows = [entry.cells() for entry in events.listed()]
    assert rows[:3] == [
        ("2.000", "2000", "FAULT: p_A_high"),
        ("3.000", "3000", "FAULT: p_A_high"),
        ("0.000 … 2.500", "0", "1001 × one tick missed"),
    ]
    assert len(rows) == MAX_EVENTS + 2
    assert events.dropped == 1000 - (MAX_EVENTS - 1)


def test_the_first_of_equal_warnings_counts_whatever_their_order() -> None:
    events = EventList()
    for k in (5, 3, 4):
        events.add(Listed(float(k), k, "2 ticks missed", "warning"))
    events.add(Listed(1.0, 1, "limit stroke is violated", "warning"))
    events.shorten()
    assert [entry.cells() for entry in events.listed()] == [
        ("1.000", "1", "limit stroke is violated"),
        ("3.000 … 5.000", "3", "3 × 2 ticks missed"),
    ]


def test_warnings_that_differ_in_numbers_only_are_one_line_with_the_latest_text() -> None:
    events = EventList()
    for time, text in ((2.0, "1 tick missed"), (4.0, "12 ticks missed"), (3.0, "7 ticks missed")):
        events.add(Listed(time, int(time), text, "warning"))
    for name in ("p_1_high", "p_2_high"):  # names are not numbers
        events.add(Listed(5.0, 5, f"limit {name} is violated", "warning"))
    events.add(Listed(6.0, 6, "9 ticks missed", "fault"))
    events.shorten()
    assert [entry.cells() for entry in events.listed()] == [
        ("6.000", "6", "9 ticks missed"),
        ("2.000 … 4.000", "2", "3 ×, latest: 12 ticks missed"),
        ("5.000", "5", "limit p_1_high is violated"),
        ("5.000", "5", "limit p_2_high is violated"),
    ]
