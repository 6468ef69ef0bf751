"""The button that applies the circuit to a rig, and its dialog: what would change, and what came of it."""

from __future__ import annotations

from nicegui import ui

from hilserver.editor.live import RigLink, differences
from hilserver.editor.session import EditorSession
from hilserver.errors import HilserverError


class LiveView:
    """A button; it is enabled while the circuit has no problem."""

    def __init__(self, session: EditorSession, link: RigLink) -> None:
        self.session, self.link = session, link
        self._button = ui.button(f"Apply to {link.rig}", icon="bolt", on_click=self._ask)
        self._button.props("no-caps outline").classes("apply-live")
        self.refresh()

    def refresh(self) -> None:
        """Follow the circuit."""
        self._button.set_enabled(self.session.checked.circuit is not None)

    async def _ask(self) -> None:
        """Show what would change, and apply it if the user wants that."""
        circuit = self.session.checked.circuit
        if circuit is None:
            return
        try:
            mode, running = await self.link.running()
        except HilserverError as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return
        changes = list(differences(running, circuit))
        with ui.dialog() as dialog, ui.column().classes("card gap-2 live-changes"):
            ui.label(f"{self.link.rig} is {mode}. Its circuit (version {running.version}) would change:")
            with ui.column().classes("gap-0 text-sm").style("max-height: 50vh; overflow: auto"):
                for text in changes or ["Nothing: this circuit is running already."]:
                    ui.label(text)
            with ui.row().classes("w-full justify-end gap-2"):
                ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps")
                apply = ui.button("Apply", on_click=lambda: dialog.submit(True)).props("unelevated no-caps")
                apply.set_enabled(bool(changes))
        wanted = await dialog
        dialog.delete()
        if not wanted:
            return
        try:
            answer = await self.link.apply(circuit, running.version)
        except HilserverError as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return
        if answer.ok:
            ui.notify(f"Applied to {self.link.rig}: active since tick {answer.tick}.", type="positive")
        else:
            text = "\n".join(answer.problems) or str(answer.reason)
            ui.notify(f"{self.link.rig} refused it: {text}", type="negative", multi_line=True, timeout=15_000)
