"""Directional valve 4/3."""

from __future__ import annotations

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.shared.four_way import CentredValve, four_way_valve
from hilserver.components.shared.spool import with_spool


@with_spool
class DirectionalValve43(CentredValve):
    r"""Directional valve 4/3, on/off or proportional: centre position, opening curves, overlap, delay, hysteresis.

    .. math:: Q_{edge} = \max(C_v\,w_{edge}(U),\; C_{leak}\,s(|U|))\;g(\Delta p)

    U is the spool's position: 0 in the centre, 1 opens P-A and B-T, -1 opens P-B and A-T. w is an edge's opening:
    linear from the overlap to full stroke, or the opening of the ``centre`` where that is larger; or a given curve
    (``openings``). A tandem centre has a separate path from P to T. An edge always passes at least its leakage, which
    a STEP s fades out by 10 % of full stroke.

    The command u, clipped to -1 … 1, reaches the spool through a pure ``delay`` and a backlash (``hysteresis`` h; full
    command still gives full stroke) with a null offset:

    .. math:: u_h \leftarrow \min(\max(u_h,\; u - h/2),\; u + h/2), \qquad U_{in} = \frac{u_h}{1 - h/2} + U_0

    The spool follows in one of three ways. The first two, both with a limited ``opening_rate``, are

    .. math:: \dot U = (U_{in} - U)/\tau, \quad \tau = \frac{1}{2\pi f_{45}} \qquad \mathrm{or} \qquad
       \ddot U = \omega^2 (U_{in} - U) - 2 d\,\omega\,\dot U, \quad \omega = 2\pi f_{90}

    The third is ``switching``, for on/off valves: a command above 0.5 (below -0.5) is on; after its dead time the spool
    moves at constant speed and completes the last tenth of its travel with a first-order lag; at the switching time
    it has made 95 % of its travel. Between the ends it passes the centre: towards it at the speed of switching off,
    away from it at that of switching on. A valve with one solenoid receives commands 0 … 1.

    Proportional, with ``centre = "closed"`` and nothing else, this is ``proportional_valve_4_3`` except for the
    leakage, which there adds to the opening. Source: theory §3; [Linjama]; Ellman & Piché 1999 for g.
    """

    type_name = "directional_valve_4_3"

    def parameters(self, fluid: Fluid) -> Parameters:
        return {**self.four_way_parameters(), **self.spool_parameters()}


kernel(DirectionalValve43)(four_way_valve)
