"""Actuators whose position is controlled, in the panel without a browser: what is shown, and what a choice sends."""

from __future__ import annotations

import asyncio
from typing import Any

from bare_page import bare_page
from panel_page import SilentPage

from hilserver.panel.actuators import ActuatorsView
from hilserver.panel.plots import default_plots
from hilserver.protocol.commands import SelectStrategy
from hilserver.protocol.driven import ActuatorDescription, ActuatorStatus, LearnedValue
from hilserver.protocol.published import Telemetry

TABLE = ActuatorDescription(strategies=("direct", "adaptive", "prediction"), description="moves the specimen")
STIFFNESS = LearnedValue(
    value=1.2e6, configured=1.19e6, minimum=1e6, maximum=1.4e6, unit="N/m", known=True, at_bound=False, state="tracked"
)
SAMPLES = {"position": 3.4512e-3, "measured": 3.46e-3, "error": 8.8e-6, "command": 4e-3, "force": -4012.0}


def status(strategy: str = "prediction") -> ActuatorStatus:
    same: dict[str, Any] = {"position": 3.45e-3, "measured": 3.46e-3, "estimate": 3.46e-3, "error": 8.8e-6}
    rest: dict[str, Any] = {"command": 4e-3, "force": 4020.0, "reaction": -4012.0}
    return ActuatorStatus(strategy=strategy, **same, **rest, learned={"specimen_stiffness": STIFFNESS})


class ShowingPage(SilentPage):
    """A page with an actuator; ``texts``: what was shown last."""

    def __init__(self) -> None:
        super().__init__("Operate", actuators={"table": TABLE})
        self.texts: dict[str, str] = {}
        self.sample(SAMPLES)

    def sample(self, values: dict[str, float]) -> None:
        channels: dict[str, tuple[float | None, ...]] = {f"actuator.table.{k}": (v,) for k, v in values.items()}
        self.connection.history.add(Telemetry(t0=1.0, dt=0.01, channels=channels))

    def show(self, kind: str, values: Any) -> None:
        if kind == "texts":
            self.texts |= values


def test_an_actuator_is_shown_and_its_strategy_chosen() -> None:
    async def run() -> None:
        async with bare_page():
            page = ShowingPage()
            view = ActuatorsView(page)
            page.tells(actuators={"table": status()})
            assert page.texts["actuator.table.position"] == "3.451 mm"
            assert page.texts["actuator.table.error"] == "0.009 mm"
            assert page.texts["actuator.table.force"] == "−4012.0 N"
            assert page.texts["actuator.table.force_measured"] == "–"
            assert page.texts["limited.actuator.table"] == ""
            assert page.texts["learned.actuator.table"] == "learned: specimen stiffness 1.2e+06 N/m (tracked)"
            choice = view._choices["table"]
            assert (choice.options, choice.value) == (["direct", "adaptive", "prediction"], "prediction")
            await view._select("table", "prediction")
            assert page.sent == [], "it is that already"
            await view._select("table", "adaptive")
            assert page.sent == [SelectStrategy(actuator="table", strategy="adaptive")]
            page.sample({"saturation": 8.0})
            page.connection.role = "viewer"
            page.tells(actuators={"table": status("adaptive")})
            assert page.texts["limited.actuator.table"] == "at a limit"
            assert not choice.enabled

    asyncio.run(run())


def test_displacement_error_and_forces_are_plotted() -> None:
    plots = default_plots(ShowingPage())
    assert plots["Displacement to follow and measured"] == ["actuator.table.position", "actuator.table.measured"]
    assert plots["Error of the displacement"] == ["actuator.table.error"]
    assert plots["Forces"] == ["actuator.table.force_measured", "actuator.table.force"]
