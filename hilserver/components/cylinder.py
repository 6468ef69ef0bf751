"""Double-acting hydraulic cylinder."""

from __future__ import annotations

from hilserver.components.base import kernel
from hilserver.components.shared.piston import DoubleActing, chamber_A, chamber_B, piston


class Cylinder(DoubleActing):
    r"""Double-acting cylinder with one rod: two chambers and a piston. x = 0 is fully retracted; positive is extending.

    .. math:: C_A \dot p_A = \sum Q - A_A v - C\,(p_A - p_B), \qquad C_B \dot p_B = \sum Q + A_B v + C\,(p_A - p_B)

    .. math:: F = A_A p_A - A_B p_B - (A_A - A_B)\,p_{amb} - F_\mu - F_{end} - m\,g \sin\alpha

    Chamber volumes V_0A + A_A·x and V_0B + A_B·(stroke - x), filled with the circuit's oil; the dead volumes include
    the plumbing at the ports that is not a separate component. The oil in the lines moves faster than the piston; its
    kinetic energy is a mass at the rod, m_oA·(A_A/A_lineA)² + m_oB·(A_B/A_lineB)². Lines count here as mass only: their
    volume belongs to the dead volume or to a pipe or hose. Pressures are gauge, so p_amb is 0 unless the rod end is
    not in the atmosphere.
    The weight of piston and rod counts where ``direction`` states alpha, the angle of extending above the horizontal.

    Friction is selectable. ``law = "efficiency"``:

    .. math:: F_\mu = \xi(|v|)\,\tanh(v/v_0)\,|A_A p_A - A_B p_B|\,(1 - \eta)

    ``law = "stribeck"`` and ``"lugre"`` as in ``friction``, with F_S and F_C under pressure

    .. math:: \Psi = 1 + (p_A/3 + 2 p_B/3)/p_{ref}

    times as large where ``reference_pressure`` is given. Defaults: F_S 10 % of the maximum force, F_C 30 % below it, b
    equal to F_S per 1 m/s, sigma0 = F_S/bend, sigma1 = sqrt(sigma0·m) with the cylinder's own mass.

    Cushions, in the last ``length`` of the stroke, s a STEP over ``closing``:

    .. math:: F_{cushion} = k\,v^2\,s^2, \qquad k = A_c^3\,\Delta p_N/Q_N^2

    The trapped oil counts as incompressible and a check valve lets the piston leave freely. Valid while the cushion's
    pressure, F_cushion/A_c, is below the cylinder's rating; at too high a speed it is overestimated, and its slope
    2·F/v relative to the mass requires small steps or ``rosenbrock``.

    The logged ``F_mu`` and ``F_end`` (stops and cushions) are positive against increasing position.
    Source: theory §3; [Virtual hydraulics] eqs. 3.48, 4.7, 4.8, ch. 4.2.4; [Linjama] (dry friction).
    """

    type_name = "cylinder"

    def areas(self) -> tuple[float, float]:
        return self.bore_area(), self.annulus_area()


kernel(Cylinder)(chamber_A)
kernel(Cylinder)(chamber_B)
kernel(Cylinder)(piston)
