"""Gas accumulator."""

from __future__ import annotations

from pydantic import Field, model_validator

from hilserver.components.base import Component, Fluid, Parameters, State, kernel
from hilserver.components.orifice import FlowAtDrop
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.fluid import capacitance
from hilserver.numerics.gas import polytropic_pressure
from hilserver.numerics.shape import clip
from hilserver.units import ATMOSPHERE, BAR, Number, Pressure, Volume

CLOSING = 0.01
"""Fraction of the gas volume over which the fluid port closes before the accumulator is empty or full."""


class Accumulator(Component):
    r"""Bladder, diaphragm or piston accumulator: the oil that flows in through its connection compresses a gas.

    .. math:: p_g V_g^n = p_0 V_0^n, \qquad V_g = V_0 - V, \qquad \dot V = Q = K\,s\,g(p_P - p_g)

    V is the oil inside, p_0 the precharge, p_g logged as a gauge pressure (the law uses absolute ones), g the square
    root law of the connection, laminar below its nominal drop. s closes the connection over the last 1 % of V_0 before
    it is empty (the poppet in the fluid port) or full: both ends are hard limits, and no oil is lost. Below the
    precharge the accumulator is empty and has no effect. The remaining oil (``fluid_volume``) is a volume at the node:
    C_P = V_f/B_e. A wide connection next to a small volume is stiff: use more sub-steps or the integrator
    ``rosenbrock``. n describes the heat exchange: 1 for slow changes (minutes), 1.4 for fast ones (seconds); nitrogen
    above 200 bar needs a larger n than an ideal gas. Source: polytropic change of state; g: Ellman & Piché 1999.
    """

    type_name = "accumulator"
    hydraulic = ("P",)
    states = (State("V", "m^3", initial="V_start", lower=0.0, upper="V_full", scale="V_s"),)

    gas_volume: Volume = Field(gt=0, description="effective gas volume without oil, V_0")
    precharge: Pressure = Field(gt=0, description="gauge pressure of the gas without oil, p_0")
    polytropic_exponent: Number = Field(
        default=1.2, ge=1, le=2, description="polytropic exponent, n; 1 for slow, 1.4 for fast changes"
    )
    nominal_flow: FlowAtDrop = Field(
        description='flow through the connection (port, shut-off block), like { flow = "100 l/min", drop = "3 bar" }'
    )
    least_gas_volume: Volume | None = Field(
        default=None, gt=0, description="gas volume at which the accumulator is full; default: a tenth of V_0"
    )
    fluid_volume: Volume | None = Field(
        default=None, gt=0, description="oil volume that remains in port and block, V_f; default: a tenth of V_0"
    )
    start_pressure: Pressure = Field(
        default="0 bar",
        ge=0,
        description="gauge pressure of the gas at the start; below the precharge the accumulator is empty",
    )

    @model_validator(mode="after")
    def _room_for_oil(self) -> Accumulator:
        if self._least() > 0.9 * self.gas_volume:
            raise ValueError("least_gas_volume must leave room for oil: at most 90 % of gas_volume")
        if self._start() > self.gas_volume - self._least():
            highest = polytropic_pressure(self._absolute(), self.gas_volume, self._least(), self.polytropic_exponent)
            raise ValueError(
                f"start_pressure: the accumulator is full at {(highest - ATMOSPHERE) / BAR:.0f} bar, "
                "where least_gas_volume is left: start below"
            )
        return self

    def _absolute(self) -> float:
        """Absolute precharge pressure, Pa."""
        return self.precharge + ATMOSPHERE

    def _least(self) -> float:
        return 0.1 * self.gas_volume if self.least_gas_volume is None else self.least_gas_volume

    def _start(self) -> float:
        """Oil inside at the start, m³."""
        compression = self._absolute() / max(self.start_pressure + ATMOSPHERE, self._absolute())
        return self.gas_volume * (1.0 - float(compression ** (1.0 / self.polytropic_exponent)))

    def parameters(self, fluid: Fluid) -> Parameters:
        drop = self.nominal_flow.drop
        return {
            "V_0": self.gas_volume,
            "V_full": self.gas_volume - self._least(),
            "V_s": CLOSING * self.gas_volume,
            "V_f": 0.1 * self.gas_volume if self.fluid_volume is None else self.fluid_volume,
            "V_start": self._start(),
            "p_pre": self._absolute(),
            "n": self.polytropic_exponent,
            "K": self.nominal_flow.coefficient(drop),
            "p_tr": drop,
            **fluid.parameters(),
        }


@kernel(Accumulator)
def accumulator(p_P, V, V_0, V_full, V_s, V_f, p_pre, n, K, p_tr, B_o, alpha_0, kappa, p_0):
    oil = clip(V, 0.0, V_full)
    p_gas = polytropic_pressure(p_pre, V_0, V_0 - oil, n) - p_0
    room = V_full - oil if p_P > p_gas else oil
    dV = K * min(room / V_s, 1.0) * root_of_drop(p_P - p_gas, p_tr)
    q_P = -dV
    C_P = capacitance(V_f, p_P, B_o, alpha_0, kappa, p_0)
    return q_P, C_P, dV, p_gas
