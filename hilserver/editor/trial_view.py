"""Trial runs beside the drawing: for how long, with which inputs, and what comes out."""

from __future__ import annotations

from nicegui import ui

from hilserver.editor.charts import trial_chart
from hilserver.editor.session import EditorSession
from hilserver.editor.trial import LONGEST, Trial, run_trial
from hilserver.web.display import Units
from hilserver.web.style import heading


class TrialView:
    """A button that simulates the circuit as it is drawn, saved or not."""

    def __init__(self, session: EditorSession) -> None:
        self.session = session
        self._inputs: dict[str, float] = {}
        self._units = Units()
        self._names: list[str] = []
        self._runs = False
        self._text: str | None = None
        with ui.column().classes("card w-full gap-2"):
            with ui.row().classes("w-full items-center gap-3"):
                heading("Simulate")
                self._seconds = ui.number("time [s]", value=5.0, min=0.01, max=LONGEST).props("outlined dense")
                self._seconds.classes("w-24 trial-seconds")
                self._boxes = ui.row().classes("items-center gap-2")
                ui.space()
                self._button = ui.button("Simulate", icon="play_arrow", on_click=self._run).props("no-caps outline")
                self._button.classes("simulate")
            self._note = ui.label().classes("note warn w-full trial-note whitespace-pre-line")
            self._old = ui.label("These curves are of the circuit before your last edits.")
            self._old.classes("text-xs text-slate-500 trial-old")
            self._charts = ui.element("div").classes("grid grid-cols-1 lg:grid-cols-2 gap-2 w-full trial-charts")
        self.refresh()

    def refresh(self) -> None:
        """Offer the inputs that the circuit has now, and tell whether the curves are still those of it."""
        self._old.visible = self._text not in (None, self.session.document.text)
        circuit = self.session.checked.circuit
        self._button.set_enabled(circuit is not None and not self._runs)
        names = circuit.inputs() if circuit is not None else self._names
        if names == self._names:
            return
        self._names = names
        self._boxes.clear()
        with self._boxes:
            for name in names:
                box = ui.number(name, value=self._inputs.setdefault(name, 0.0)).props("outlined dense")
                box.classes("w-24").tooltip("0 until 0.1 s, then this value")
                box.on_value_change(lambda e, name=name: self._inputs.update({name: float(e.value or 0.0)}))

    async def _run(self) -> None:
        document = self.session.document
        self._runs = True
        self._button.disable()
        self._note.set_text("Running …")
        try:
            inputs = {name: self._inputs.get(name, 0.0) for name in self._names}
            text = document.text
            found = await run_trial(text, document.file, float(self._seconds.value or 0.0), inputs)
        finally:
            self._runs = False
            if not self._button.is_deleted:
                self._button.set_enabled(self.session.checked.circuit is not None)
        if not self._button.is_deleted:
            self._show(found, text)

    def _show(self, found: Trial, text: str) -> None:
        self._text = text if found.panels else None
        self._note.set_text(found.error or "\n".join(found.notes))
        self._charts.clear()
        with self._charts:
            for panel in found.panels:
                ui.echart(trial_chart(panel, self._units)).classes("w-full trial-chart").style("height: 260px")
        self.refresh()
