r"""The force of a specimen on its node, as if the node carried it: with mass, damping and stiffness as described.

.. math:: F = -L - k\,x - c\,v - m\,a

L is the force that its description does not contain. An actuator follows with an error, and the force is measured at
the position of the actuator. It is corrected to the position of the node by means of the description, so that an error
of the actuator does not become an error of the circuit. In pseudo-dynamic tests, this is done with the stiffness
(Combescure & Pegon, Soil Dyn. Earthq. Eng. 16 (1997) 427); here the inertia is included.

F is its mean over a step, and implicit: a changes with F by the mobility of the node. Otherwise a node that is lighter
than its specimen would be an unstable sequence. With :math:`\mu` instead of the true mobility :math:`\mu'` it is stable
if :math:`\mu' < \mu + (1 + r)/(3 m)` with :math:`r = \mu m`: an overestimate never harms it. The factor of k is that of
the trapezoidal rule, which is stable with any stiffness.
"""

from __future__ import annotations

from hilserver.numerics.compilable import compilable
from hilserver.tick.plan import ActuatorRecord


@compilable
def force_in_step(
    a: ActuatorRecord, load: float, x: float, v: float, unchanged: float, last: float, mobility: float, h: float
) -> float:
    """F, N, of a step of ``h`` s that begins with displacement ``x``, m, and velocity ``v``.

    ``load``: L, N. ``unchanged``: mean acceleration, m/s², if F remained the ``last`` one, N.
    """
    held = load + a.stiffness * (x + 0.5 * h * v) + a.damping * v
    rising = 0.25 * h * h * a.stiffness + 0.5 * h * a.damping + a.mass  # of the force with the acceleration
    return float((-held - rising * (unchanged - mobility * last)) / (1.0 + rising * mobility))
