"""The actuators whose position is controlled, in the first tab: how each one follows its node, and its strategy."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import ui

from hilserver.panel.driven import DrivenView
from hilserver.panel.jog import OF_ACTUATORS, JogControl
from hilserver.panel.learned import learned_text
from hilserver.panel.pieces import piece
from hilserver.protocol.driven import ActuatorDescription, ActuatorStatus
from hilserver.protocol.published import Description

FIELDS = {
    "position": ("displacement to follow", "m"),
    "measured": ("measured displacement", "m"),
    "error": ("error", "m"),
    "command": ("command", "m"),
    "force_measured": ("measured force", "N"),
    "force": ("force on the virtual circuit", "N"),
}
"""The values that are shown of each actuator: their titles and SI units."""
FINER = {"m": 2, "N": -2}
"""Decimal places more than usual: errors are a few micrometres."""
LIMITS = 4 | 8
"""Bits of its saturation: range and slew."""


class ActuatorsView(DrivenView[ActuatorDescription]):
    """Each actuator: displacement to follow and measured, error, command, forces, limits, choice of the strategy."""

    kind, title = "actuator", "Actuator"

    def _described(self, description: Description) -> Mapping[str, ActuatorDescription]:
        return description.actuators

    def _status(self, actuator: str) -> ActuatorStatus | None:
        """The actuator as the server reports it."""
        state = self.page.connection.state
        return None if state is None else state.actuators.get(actuator)

    def _present(self, name: str) -> str | None:
        status = self._status(name)
        return None if status is None else status.strategy

    def _build_values(self, name: str) -> None:
        titles = {word: title for word, (title, _) in FIELDS.items()}
        ui.html(piece("actuator_values", actuator=name, fields=titles), sanitize=False).classes("w-full")

    def _jog(self, name: str, info: ActuatorDescription) -> JogControl:
        return JogControl(self.page, {self.kind: name}, 1.0, OF_ACTUATORS)

    def _update(self) -> None:
        units, now = self.page.units, self.page.connection.history.latest()
        texts: dict[str, str] = {}
        for name in self._names:
            for word, (_, unit) in FIELDS.items():
                channel = f"actuator.{name}.{word}"
                texts[channel] = units.text(now.get(channel), unit, FINER[unit])
            flags = int(now.get(f"actuator.{name}.saturation") or 0)
            texts[f"limited.actuator.{name}"] = "at a limit" if flags & LIMITS else "oscillates" if flags else ""
            status = self._status(name)
            texts[f"learned.actuator.{name}"] = "" if status is None else learned_text(status.learned)
        self.page.show("texts", texts)
