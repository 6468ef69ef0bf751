"""The characteristic curves of the selected component, drawn anew with each value that is entered."""

from __future__ import annotations

from nicegui import background_tasks, run, ui

from hilserver.editor.charts import characteristic_chart
from hilserver.editor.curves import CharacteristicCurves, characteristic
from hilserver.editor.parts import below, tables
from hilserver.editor.session import EditorSession
from hilserver.errors import HilserverError


class CurveView:
    """A chart, hidden for a component without curves."""

    def __init__(self, session: EditorSession, name: str) -> None:
        self.session, self.name = session, name
        self._asked = 0
        self._chart = ui.echart({}).classes("w-full characteristic").style("height: 230px")
        self._note = ui.label().classes("text-xs text-slate-500 characteristic-note")
        self._chart.visible = self._note.visible = False
        self.refresh()

    def refresh(self) -> None:
        """Calculate the curves of the component as it is now, in a thread, and show them."""
        self._asked += 1
        background_tasks.create(self._draw(self._asked))

    async def _draw(self, asked: int) -> None:
        document, circuit = self.session.document, self.session.checked.circuit
        table = circuit.source if circuit is not None else document.table  # with the values of parameters, if known
        part = tables(table, "components").get(self.name)
        if part is None:
            return
        found: CharacteristicCurves | None = None
        note = ""
        try:
            found = await run.io_bound(characteristic, part, document.parts, below(table, "fluid"))
        except HilserverError:
            note = "The curve appears when all required values are given."
        if asked != self._asked or self._chart.is_deleted:
            return
        if found is not None:
            self._chart.options.clear()
            self._chart.options.update(characteristic_chart(found))
            self._chart.update()
            note = "" if found.is_settled else "Not at rest at every point: this component oscillates or is very slow."
        self._chart.visible = found is not None
        self._note.set_text(note)
        self._note.visible = bool(note)
