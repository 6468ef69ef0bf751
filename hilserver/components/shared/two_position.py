"""Shared by valves with two positions: leakage over closed edges."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.orifice import FlowAtDrop
from hilserver.components.shared.spool import SpoolValve
from hilserver.units import Pressure


class TwoPositionValve(SpoolValve):
    """A valve between a rest position (U = 0) and a working one (U = 1); subclasses add ports and edges."""

    leakage: FlowAtDrop | None = Field(
        default=None,
        description='over each closed edge, such as { flow = "20 cm^3/min", drop = "100 bar" }; none if not given',
    )
    transition_pressure: Pressure = Field(default="1 bar", gt=0, description="laminar below this drop, p_tr")

    def shut_parameters(self) -> dict[str, float]:
        """Kernel parameters of the closed edges."""
        p_tr = self.transition_pressure
        return {"C_leak": self.leakage.coefficient(p_tr) if self.leakage else 0.0, "p_tr": p_tr}
