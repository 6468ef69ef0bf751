"""Operator inputs as sliders, and the work cycle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from html import escape
from typing import Any

from nicegui import background_tasks, ui

from hilserver.errors import HilserverError
from hilserver.panel.view import HOLD_OFF, Page
from hilserver.protocol import commands
from hilserver.protocol.published import InputDescription
from hilserver.web.style import heading

SEEN = 0.6
"""Part of ``hold_to_run`` after which a browser that does not answer counts as lost; the rest is for the command."""


class InputsView:
    """The inputs of the rig, and the buttons of its work cycle."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._inputs: dict[str, InputControl] = {}
        self._described: Mapping[str, InputDescription] = {}
        with ui.column().classes("card w-full gap-2"):
            heading("Operator inputs")
            self._box = ui.column().classes("w-full gap-2")
            with ui.row().classes("w-full gap-2"):
                start = ui.button("Start work cycle", icon="autorenew", on_click=lambda: self._cycle("start"))
                stop = ui.button("Stop work cycle", on_click=lambda: self._cycle("stop"))
                self._buttons = [start.props("outline no-caps dense").classes("px-2"), stop.props("flat no-caps dense")]
        page.each_round(self._follow, "Operate")

    async def _cycle(self, action: Any) -> None:
        await self.page.command(commands.Cycle(action=action))

    def _follow(self) -> None:
        description = self.page.connection.description
        if description is not None and self._described != description.inputs:
            self._described = description.inputs
            self._build(description.inputs)
        for button in self._buttons:
            button.set_enabled(self.page.may_operate)
        for control in self._inputs.values():
            control.follow()

    def _build(self, inputs: Mapping[str, InputDescription]) -> None:
        for control in self._inputs.values():
            control.release()
        self._box.clear()
        with self._box:
            self._inputs = {
                name: InputControl(self.page, name, info) if info.hold_to_run is None
                else HoldToRunControl(self.page, name, info, info.hold_to_run)
                for name, info in inputs.items()
            }  # fmt: skip


class FreeSlider(ui.slider):
    """A slider that moves in the browser. NiceGUI's own waits for the server, and a late answer moves it back."""

    LOOPBACK = False


class InputControl:
    """The slider of an input. While an answer of the server is pending, only the latest value is kept."""

    def __init__(self, page: Page, name: str, info: InputDescription) -> None:
        self.page, self._name, self._info = page, name, info
        self._wanted = info.initial
        self._moved_at = 0.0
        self._sending = False
        centre = min(max(0.0, info.minimum), info.maximum) if info.hold_to_run is None else info.initial
        with ui.row().classes("w-full items-baseline no-wrap"):
            ui.label(name).classes("font-semibold").tooltip(info.description or name)
            ui.label(f"{info.minimum:g} … {info.maximum:g} {info.unit}").classes("text-xs text-slate-500 grow")
            self._shown = ui.label("–").classes("font-semibold")
        with ui.row().classes("w-full items-center no-wrap gap-3"):
            step = (info.maximum - info.minimum) / 200
            with ui.element("div").classes("grow") as self._box:
                self._slider = FreeSlider(min=info.minimum, max=info.maximum, step=step, value=0.0)
            self._slider.props(f"aria-label='{escape(name)}'")
            self._slider.on("update:model-value", lambda e: self._dragged(float(e.args)), throttle=0.1)
            button = ui.button(icon="filter_center_focus", on_click=lambda: self._to(centre))
            button.props(f"flat dense round size=sm aria-label='to {centre:g}'").tooltip(f"to {centre:g}")

    def follow(self) -> None:
        """Show the server's value, unless the user has just moved the slider."""
        self._slider.set_enabled(self.page.may_operate)
        state = self.page.connection.state
        value = state.target.get(f"input.{self._name}") if state is not None else None
        if value is not None and time.monotonic() - self._moved_at > HOLD_OFF:
            self._show(value)

    def release(self) -> None:
        """Nobody holds the slider any more."""

    async def _to(self, value: float) -> None:
        """A button: the slider moves there, too."""
        self._show(value)
        await self._send(value)

    def _dragged(self, value: float) -> Awaitable[None] | None:
        """The user has moved the slider there.

        It may be further by now. Hence it is not set: that would move it back under the user's hand, and the next key
        would count from there.
        """
        return self._send(value)

    def _send(self, value: float) -> Awaitable[None]:
        """Send this value next; awaited, the latest one has been sent."""
        self._moved_at, self._wanted = time.monotonic(), value
        self._tell(value)
        return self._send_latest()

    async def _send_latest(self) -> None:
        if self._sending:
            return
        self._sending = True
        try:
            sent = None
            while sent != self._wanted:
                sent = self._wanted
                await self.page.command(commands.SetInput(input=self._name, value=sent))
        finally:
            self._sending = False

    def _show(self, value: float) -> None:
        if abs(float(self._slider.value or 0.0) - value) > 1e-3:
            self._slider.set_value(round(value, 4))
        self._tell(value)

    def _tell(self, value: float) -> None:
        self._shown.set_text(f"{value:.3g}")


class HoldToRunControl(InputControl):
    """The slider of a hold-to-run input: its value is kept while the slider is held, and then returns to rest.

    It is held from the press of a pointer or key until its release. What the browser says at any other time does not
    count: the slider's last movement may arrive after its release.
    """

    def __init__(self, page: Page, name: str, info: InputDescription, hold_to_run: float) -> None:
        super().__init__(page, name, info)
        self._hold_to_run = hold_to_run
        self._held: asyncio.Task[None] | None = None
        """Renews the value while the slider is held."""
        for press in ("pointerdown", "keydown.capture"):  # of its box: NiceGUI ignores events of a disabled slider
            self._box.on(press, lambda e: self._grip(bool(e.args)), js_handler="(e) => panel.grip(e, emit)")
        self._slider.tooltip("Hold: the value is kept while you hold the slider. Release: it returns to rest.")

    def follow(self) -> None:
        """Show the server's value unless the slider is held; a rig that does not run takes it out of the hand."""
        if not self.page.may_operate:
            self.release()
        if self._held is None:
            super().follow()

    def release(self) -> None:
        """Stop renewing the value; the slider shows rest."""
        if self._held is not None:
            self._held = None
            self._show(self._info.initial)

    def _grip(self, held: bool) -> Awaitable[None] | None:
        if held and self._held is None and self.page.may_operate:
            self._wanted = float(self._slider.value)
            self._held = background_tasks.create(self._keep(), name=f"hold {self._name}")
        elif not held and self._held is not None:
            self.release()
            return self._send(self._info.initial)
        elif not held:
            self._slider.update()  # released before, when the rig stopped; the browser may have moved it since
        return None

    def _dragged(self, value: float) -> Awaitable[None] | None:
        if self._held is not None:
            return self._send(value)
        self._show(self._info.initial)
        return None

    async def _keep(self) -> None:
        """Renew the value of the held slider as long as the browser shows this page; then release it.

        The server waits for ``hold_to_run`` after the last value. Hence this does not only stop when the browser is
        lost: it sends the value at rest, so that the input is there within ``hold_to_run`` of the loss. It waits for
        nothing that the browser does, and continues when the page is discarded.
        """
        while self._held is asyncio.current_task() and self.page.may_operate:
            if not (seen := self.page.is_seen(SEEN * self._hold_to_run)):
                self.release()
            if not seen or not self._sending:
                value = self._wanted if seen else self._info.initial
                with suppress(HilserverError):
                    await self.page.connection.send(commands.SetInput(input=self._name, value=value))
            await asyncio.sleep(self._hold_to_run / 8)
        if self._held is asyncio.current_task():
            self.release()
