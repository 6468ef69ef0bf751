"""Orifice: a fixed restriction."""

from __future__ import annotations

from math import pi, sqrt

from pydantic import Field, model_validator

from hilserver.components.base import Component, Datasheet, Fluid, Parameters, kernel
from hilserver.numerics.flow import root_of_drop
from hilserver.units import Flow, Length, Number, Pressure

CREEPING = 0.75 * 50.4
"""Re_tr over C_d²: the slope 1.5·K/sqrt(p_tr) of g at no drop is that of Wuest's law."""
MIN_DYNAMIC_PRESSURE = 1e3
"""Pa; smallest default of p_tr: few sensors resolve it, and a steeper curve would require steps of microseconds."""
OF_A_POINT = 1e5
"""Pa; default of p_tr where a point of a datasheet is given: most such restrictions are no single sharp-edged hole."""


class FlowAtDrop(Datasheet):
    """A point of a restriction's datasheet: Q_N at dp_N."""

    flow: Flow = Field(gt=0, description="nominal flow, Q_N")
    drop: Pressure = Field(gt=0, description="pressure drop at which it flows, dp_N")

    def coefficient(self, p_tr: float) -> float:
        """K of Q = K·g(dp), m³/(s·sqrt(Pa)): the curve passes through this point also where it is laminar."""
        return self.flow / root_of_drop(self.drop, p_tr)


class Orifice(Component):
    r"""A sharp-edged restriction between A and B, the same in both directions; by a point of its datasheet or by size.

    .. math:: Q = K\,g(\Delta p), \qquad K = \frac{Q_N}{g(\Delta p_N)} \quad \mathrm{or} \quad
       K = C_d\,\frac{\pi d^2}{4}\sqrt{\frac{2}{\rho}}, \qquad \Delta p = p_A - p_B

    with g the square root law, laminar below p_tr. C_d is 0.6 … 0.7 for a sharp edge and turbulent flow. Where the
    diameter is given, p_tr follows from it and the viscosity: at small drops the flow is Wuest's for creeping flow
    through a sharp-edged hole, so that

    .. math:: Q = \frac{\pi d^3}{50.4\,\rho\nu}\,\Delta p \quad (\Delta p \to 0), \qquad
       p_{tr} = \frac{\rho}{2}\left(\frac{Re_{tr}\,\nu}{C_d\,d}\right)^2, \qquad Re_{tr} = 37.8\,C_d^2

    which is a Reynolds number of 14.5 for C_d = 0.62. For large holes p_tr is not less than 0.01 bar. Where a point is
    given, nothing is known of the shape, and p_tr is 1 bar by default.
    Source: theory §3; [Linjama]; Ellman & Piché 1999; size: Merritt, Hydraulic Control Systems (1967), eq. 3-20;
    creeping flow: W. Wuest, Ingenieur-Archiv 22 (1954), in Merritt ch. 3.4.
    """

    type_name = "orifice"
    hydraulic = ("A", "B")

    nominal_flow: FlowAtDrop | None = Field(
        default=None, description='a point of the datasheet, like { flow = "10 l/min", drop = "5 bar" }'
    )
    diameter: Length | None = Field(default=None, gt=0, description="diameter of the hole, d, if no point is given")
    discharge_coefficient: Number = Field(
        default=0.62, gt=0, le=1, description="discharge coefficient of the hole, C_d"
    )
    transition_pressure: Pressure | None = Field(
        default=None, gt=0, description="laminar below this drop, p_tr; default: from diameter and viscosity, or 1 bar"
    )

    @model_validator(mode="after")
    def _point_or_size(self) -> Orifice:
        if (self.nominal_flow is None) == (self.diameter is None):
            raise ValueError("give either nominal_flow (a point of the datasheet) or diameter (of the hole)")
        if self.nominal_flow is not None and "discharge_coefficient" in self.model_fields_set:
            raise ValueError("discharge_coefficient belongs to diameter: nominal_flow already defines the flow")
        return self

    def _transition(self, fluid: Fluid) -> float:
        """p_tr, Pa."""
        if self.transition_pressure is not None:
            return self.transition_pressure
        if self.diameter is None:
            return OF_A_POINT
        speed = CREEPING * self.discharge_coefficient * fluid.viscosity / self.diameter
        return max(0.5 * fluid.density * speed**2, MIN_DYNAMIC_PRESSURE)

    def _coefficient(self, fluid: Fluid) -> float:
        """K of Q = K·g(dp), m³/(s·sqrt(Pa))."""
        if self.nominal_flow is not None:
            return self.nominal_flow.coefficient(self._transition(fluid))
        assert self.diameter is not None
        return self.discharge_coefficient * 0.25 * pi * self.diameter**2 * sqrt(2.0 / fluid.density)

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"K": self._coefficient(fluid), "p_tr": self._transition(fluid)}


@kernel(Orifice)
def orifice(p_A, p_B, K, p_tr):
    q_B = K * root_of_drop(p_A - p_B, p_tr)
    q_A = -q_B
    return q_A, q_B
