r"""The classical position control of an actuator: a PI controller behind a lead compensator.

.. math:: C(s) = k_P + k_I / s, \qquad G(s) = g\,\frac{s + z}{s + p}

Both in discrete form after Tustin. Source: Silva, Gomez, Maghareh, Dyke & Spencer, Mech. Syst. Signal Process. 135
(2020) 106381, sec. 5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable


class PiLead(NamedTuple):
    """Coefficients of the difference equations, and their last values.

    ``lead``: of the position now, of the last one, and of the last output; ``pi``: of the error now and of the last
    one. ``last``: position, output of the lead, error and command of the last tick.
    """

    lead: Floats
    pi: Floats
    last: Floats


def pi_lead(k_P: float, k_I: float, gain: float, zero: float, pole: float, dt: float) -> PiLead:
    """The controller for a tick of ``dt`` s; ``k_I``, ``zero`` and ``pole`` in 1/s."""
    c = 2.0 / dt
    lead = np.array([gain * (c + zero), gain * (zero - c), c - pole]) / (c + pole)
    return PiLead(lead, np.array([k_P + 0.5 * k_I * dt, -k_P + 0.5 * k_I * dt]), np.zeros(4))


@compilable
def rounded_to(value: float, quantum: float) -> float:
    """The nearest multiple of the quantum of a converter.

    >>> rounded_to(0.62, 0.25)
    0.5
    """
    return float(np.rint(value / quantum)) * quantum


@compilable
def pi_lead_command(controller: PiLead, position: float, displacement: float, quantum: float) -> float:
    """The command, m, before its converter. ``quantum``: of the converters within and before the controller."""
    lead, pi, last = controller.lead, controller.pi, controller.last
    leading = lead[0] * position + lead[1] * last[0] + lead[2] * last[1]
    last[0], last[1] = position, leading
    error = rounded_to(rounded_to(leading, quantum) - displacement, quantum)
    command: float = last[3] + pi[0] * error + pi[1] * last[2]
    last[2], last[3] = error, command
    return command
