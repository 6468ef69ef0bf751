"""The tab of the alarms: acknowledge, filter, look back."""

from __future__ import annotations

import datetime
from typing import Any

from nicegui import ui

from hilserver.panel.alarms import Entry
from hilserver.panel.pieces import piece
from hilserver.panel.view import Page
from hilserver.web.style import heading

KINDS = {"all": "all", "fault": "faults", "warning": "warnings", "switch": "switches", "info": "info"}
_STATE = """<q-td :props="props">
  <q-btn v-if="props.row.open" dense outline no-caps size="sm" label="Acknowledge" class="px-2 acknowledge"
    @click="$parent.$emit('acknowledge', props.row.key)"></q-btn></q-td>"""
_EVENT = """<q-td :props="props"><span :class="'kind ' + props.row.kind">{{ props.row.kind }}</span>
  <b class="count">{{ props.row.times }}</b
  ><span :class="props.row.open ? 'font-semibold' : ''">{{ props.row.text }}</span>
  <div class="text-xs text-slate-500">{{ props.row.when }}</div></q-td>"""


class AlarmsView:
    """The tab: present faults and warnings, and the latest events of the server's run."""

    def __init__(self, page: Page) -> None:
        self.page, self._seen = page, -1
        with ui.column().classes("card w-full gap-2"):
            heading("Now")
            self._now = ui.html("", sanitize=False).classes("w-full")
        with ui.column().classes("card w-full gap-2"):
            with ui.row().classes("w-full items-center gap-2"):
                heading("Events")
                ui.space()
                self._words = ui.input(placeholder="Filter", on_change=self._refill).props("outlined dense clearable")
                self._kind = ui.toggle(KINDS, value="all", on_change=self._refill).props("no-caps unelevated size=sm")
                self._all = ui.button("Acknowledge all", on_click=lambda: self._acknowledge(None))
                self._all.props("outline no-caps dense").classes("px-2")
            columns: list[dict[str, Any]] = [
                {"name": "event", "label": "event", "field": "text", "align": "left"},
                {"name": "state", "label": "", "field": "open", "align": "right"},
            ]
            self._table = ui.table(rows=[], columns=columns, row_key="key", pagination=20)
            self._table.props("flat dense wrap-cells hide-header no-data-label='No events.'").classes("w-full events")
            self._table.add_slot("body-cell-event", _EVENT)
            self._table.add_slot("body-cell-state", _STATE)
            self._table.on("acknowledge", lambda event: self._acknowledge(int(event.args)))
        page.each_round(self._follow, "Alarms")

    def _acknowledge(self, number: int | None) -> None:
        self.page.connection.alarms.acknowledge(number)
        self._refill()

    def _follow(self) -> None:
        connection = self.page.connection
        state = connection.state
        if state is not None:
            notes = [("fault", state.fault)] if state.fault else []
            notes += [("warn", text) for text in (*state.warnings, *state.degradations)]
            self._now.set_content(piece("notes", texts=notes or [("good", "No fault, no warning.")]))
        if connection.alarms.changes != self._seen:
            self._refill()

    def _refill(self) -> None:
        alarms = self.page.connection.alarms
        self._seen = alarms.changes
        self._all.set_enabled(bool(alarms.open()))
        self._table.rows = [
            {
                "key": entry.number,
                "kind": entry.kind,
                "times": entry.times,
                "text": entry.text,
                "open": entry.open,
                "when": when(entry),
            }
            for entry in alarms.listed(str(self._kind.value), self._words.value or "")
        ]


def when(entry: Entry) -> str:
    """The time of an entry, of several events the first and the last, and the tick of the last."""
    last = _clock(entry.last)
    return f"{last if entry.count == 1 else f'{_clock(entry.first)} … {last}'} · tick {entry.tick}"


def _clock(time: float) -> str:
    return datetime.datetime.fromtimestamp(time).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
