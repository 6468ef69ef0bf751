"""Double-acting cylinder with a rod on both sides."""

from __future__ import annotations

from hilserver.components.base import kernel
from hilserver.components.shared.piston import DoubleActing, chamber_A, chamber_B, piston


class DoubleRodCylinder(DoubleActing):
    r"""Double-acting cylinder with equal rods on both sides: the same force and speed in both directions.

    .. math:: F = A\,(p_A - p_B) - F_\mu - F_{end}, \qquad A = \frac{\pi}{4}\,(D^2 - d^2)

    x = 0 is the end stop reached under pressure at B; motion under pressure at A is positive. Chambers, friction,
    cushions and lines are as in ``cylinder``, with the same area on both sides; the rods' ambient pressures cancel.
    ``moving_mass`` is the piston with both rods.
    Source: theory §3; [Virtual hydraulics] ch. 4.2.4; [Linjama] (dry friction).
    """

    type_name = "double_rod_cylinder"

    def areas(self) -> tuple[float, float]:
        return self.annulus_area(), self.annulus_area()


kernel(DoubleRodCylinder)(chamber_A)
kernel(DoubleRodCylinder)(chamber_B)
kernel(DoubleRodCylinder)(piston)
