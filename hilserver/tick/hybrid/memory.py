"""The bridge of an actuator in the tick: its constants in the plan, its memory in the row."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from hilserver.circuit.engine import MOBILITIES
from hilserver.numerics.arrays import Floats, Indices, Matrix, as_matrix, signed
from hilserver.numerics.compilable import compilable, gives_arrays
from hilserver.tick.hybrid.displacement import DELAYS, SENSORS, DisplacementBridge, DisplacementMemory
from hilserver.tick.plan import Plan

STATES = 6
"""States of an actuator with its specimen (`hilserver.displacement.actuator`) and a force on this that is not known."""
LOAD = STATES - 1
"""The last state: the force that is not known."""
FOLLOWED = 4
"""Gains for what it follows: position, velocity, acceleration, and a force that has no effect on these."""
POINTS = 9
"""Number of times at which the motion of a node is foreseen: now, and at equal intervals."""


class Preview(NamedTuple):
    """Gains of the command for the foreseen positions of the node, then for its velocities.

    With their derivatives with respect to the parameters, as in `DisplacementBridge`.
    """

    gains: Floats
    slopes: Matrix
    curves: Matrix


@compilable
def entries(tracked: int) -> int:
    """Number of values that its filter estimates: states, disturbance, parameters, delays."""
    return STATES + 1 + tracked + DELAYS


@compilable
def gains_of(command_late: int) -> int:
    """Number of gains."""
    return FOLLOWED + STATES + 1 + max(command_late, 1)


@compilable
def design_cells(tracked: int, command_late: int) -> int:
    """Length of a design in the plan: the arrays of `DisplacementBridge`, in their order."""
    motion = (1 + tracked) * (STATES + 1) * STATES
    sensors = SENSORS * (3 * STATES + 1) + DELAYS
    return motion + sensors + entries(tracked) + (1 + tracked + tracked * tracked) * gains_of(command_late)


@compilable
def preview_cells(tracked: int) -> int:
    """Length of the gains for what is foreseen, behind the design."""
    return (1 + tracked + tracked * tracked) * 2 * POINTS


@compilable
def triangle(size: int) -> int:
    """Number of values of a symmetric matrix."""
    return size * (size + 1) // 2


@compilable
def memory_cells(tracked: int, command_late: int, displacement_late: int, force_late: int) -> int:
    """Length of a memory in the row: the arrays of `DisplacementMemory` but for the scratch space, in their order.

    Of the covariance, which is symmetric, the part up to the diagonal: a row is logged in every tick.
    """
    size, age = entries(tracked), max(displacement_late, force_late)
    return size + triangle(size) + STATES + 3 + command_late + 3 * age - displacement_late - force_late


@compilable
def scratch_cells(tracked: int) -> int:
    """Length of the scratch space."""
    size = entries(tracked)
    return 4 * size * size + 2 * size + FOLLOWED


@gives_arrays
def bridge_of(plan: Plan, i: int) -> DisplacementBridge:
    """The constants of the bridge of actuator ``i``."""
    a = plan.actuator[i]
    n, gains = a.tracked, gains_of(a.command_late)
    input_at = a.design + STATES * STATES
    slopes = input_at + STATES
    input_slopes = slopes + n * STATES * STATES
    seen = input_slopes + n * STATES
    rates = seen + SENSORS * STATES
    bends = rates + SENSORS * STATES
    variance = bends + SENSORS * STATES
    lateness = variance + SENSORS
    drift = lateness + DELAYS
    first = drift + entries(n)
    curves = first + (1 + n) * gains
    d = plan.design
    return DisplacementBridge(
        as_matrix(d[a.design : input_at], STATES),
        d[input_at:slopes],
        as_matrix(d[slopes:input_slopes], n * STATES),
        as_matrix(d[input_slopes:seen], n),
        as_matrix(d[seen:rates], SENSORS),
        as_matrix(d[rates:bends], SENSORS),
        as_matrix(d[bends:variance], SENSORS),
        d[variance:lateness],
        d[lateness:drift],
        d[drift:first],
        d[first : first + gains],
        as_matrix(d[first + gains : curves], n),
        as_matrix(d[curves : curves + n * n * gains], n * n),
        a.slow,
        inf,  # the limits of the command come after it
        a.command_late,
        a.displacement_late,
        a.force_late,
    )


@gives_arrays
def preview_of(plan: Plan, i: int) -> Preview:
    """The gains of actuator ``i`` for what is foreseen."""
    a = plan.actuator[i]
    n, first = a.tracked, a.design + design_cells(a.tracked, a.command_late)
    slopes = first + 2 * POINTS
    curves = slopes + n * 2 * POINTS
    d = plan.design
    return Preview(
        d[first:slopes],
        as_matrix(d[slopes:curves], n),
        as_matrix(d[curves : curves + n * n * 2 * POINTS], n * n),
    )


@compilable
def mobility_at(ix: Indices, val: Floats, i: int) -> float:
    """Acceleration of the node of actuator ``i`` by a force on it, 1/kg, not less than the true one."""
    mobility: float = val[signed(ix, MOBILITIES) + i]
    return mobility


@gives_arrays
def memory_of(plan: Plan, row: Floats, work: Floats, i: int) -> DisplacementMemory:
    """The memory of the bridge of actuator ``i``, with scratch space at the beginning of ``work``.

    The covariance is there, too: `take_covariance` and `keep_covariance` copy it from the row and back.
    """
    a, layout = plan.actuator[i], plan.layout[0]
    size, age = entries(a.tracked), max(a.displacement_late, a.force_late)
    first = layout.actuator_memory + i * layout.actuator_memory_cells
    now = first + size + triangle(size)
    commands = now + STATES
    displacements = commands + 1 + a.command_late + age
    forces = displacements + 1 + age - a.displacement_late
    square = size * size
    return DisplacementMemory(
        row[first : first + size],
        as_matrix(work[3 * square : 4 * square], size),
        row[now:commands],
        row[commands:displacements],
        row[displacements:forces],
        row[forces : forces + 1 + age - a.force_late],
        as_matrix(work[:square], size),
        as_matrix(work[square : 2 * square], size),
        as_matrix(work[2 * square : 3 * square], size),
        work[4 * square : 4 * square + size],
        work[4 * square + size : 4 * square + 2 * size],
    )


@compilable
def first_of_covariance(plan: Plan, i: int) -> int:
    """Place of the covariance of actuator ``i`` in the row."""
    layout = plan.layout[0]
    return int(layout.actuator_memory + i * layout.actuator_memory_cells + entries(plan.actuator[i].tracked))


@compilable
def take_covariance(plan: Plan, row: Floats, i: int, memory: DisplacementMemory) -> None:
    """Copy the covariance from the row."""
    place, P = first_of_covariance(plan, i), memory.covariance
    for j in range(P.shape[0]):
        for k in range(j + 1):
            P[j, k] = P[k, j] = row[place]
            place += 1


@compilable
def keep_covariance(plan: Plan, row: Floats, i: int, memory: DisplacementMemory) -> None:
    """Copy it to the row."""
    place, P = first_of_covariance(plan, i), memory.covariance
    for j in range(P.shape[0]):
        for k in range(j + 1):
            row[place] = P[j, k]
            place += 1
