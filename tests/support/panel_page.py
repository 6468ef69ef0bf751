"""What the panel's views need of a page, without browser, broker and server; commands are kept and answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hilserver.panel.connection import Connection
from hilserver.panel.recordings import Recorded
from hilserver.panel.view import Page
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import Command
from hilserver.protocol.published import (
    Answer,
    ChannelDescription,
    Description,
    InputDescription,
    ServerState,
    Telemetry,
    refusal,
)
from hilserver.viewer.layout_view import ViewerFiles
from hilserver.viewer.opening import logs_in
from hilserver.viewer.store import LogStore
from hilserver.web.display import Units

CHANNELS = {"p_A": "Pa", "p_B": "Pa", "x": "m"}


def described(**more: Any) -> Description:
    """A rig with two pressures, a position and a joystick."""
    channels = {name: ChannelDescription(unit=unit, kind="measured") for name, unit in CHANNELS.items()}
    channels["valve.main.flow_virtual"] = ChannelDescription(unit="m^3/s", kind="bridge")
    joystick = InputDescription(unit="", minimum=-1.0, maximum=1.0, initial=0.0)
    none: dict[str, Any] = {"commands": {}, "topics": {}, "valves": {}}
    return Description(rig="lab", version="1", channels=channels, inputs={"joystick": joystick}, **none, **more)


class SilentPage(Page):
    """A page with a described rig and one sample. ``sent`` are the commands; ``problem`` refuses the next ones."""

    def __init__(self, tab: str = "Plots", **more: Any) -> None:
        super().__init__(Connection(BrokerAddress(), "lab"), Units(), tab)
        self.connection.description = described(**more)
        self.connection.online, self.connection.role = True, "operator"
        values: dict[str, tuple[float | None, ...]] = dict.fromkeys((*CHANNELS, "circuit.supply.p"), (1.0,))
        self.connection.history.add(Telemetry(t0=0.0, dt=0.01, channels={**values, "valve.main.flow_virtual": (0.0,)}))
        self.sent: list[Any] = []
        self.problem = ""

    def tells(self, **state: Any) -> None:
        """The server's state, which the views then show."""
        self.connection.state = ServerState(mode="RUNNING", tick=0, time=0.0, **state)
        self.update()

    def update(self) -> None:
        """A round of updates."""
        for tab, action in (*self._slow, *self._fast):
            if tab in ("", self.tab):
                action()

    async def command(self, command: Command, *, quiet: bool = False) -> Answer | None:
        self.sent.append(command)
        if self.problem:
            return refusal(command.name, None, [self.problem], 0.0)
        return command.answer(time=0.0)


def recorded(folder: Path | None, may_write: Callable[[], bool] = lambda: True) -> Recorded:
    """The recordings of a folder."""
    files = ViewerFiles(lambda: folder, may_write=may_write)
    return Recorded(LogStore(), lambda: {} if folder is None else logs_in(folder), files)
