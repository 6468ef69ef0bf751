"""The tick: scale and check the inputs, step the virtual circuit, bridge, limit, store everything in the row.

One compiled function, the same under the real-time clock and in lockstep. It is a pure function of the row (its memory
and its new inputs), the plan and the packed circuit: the same inputs give the same outputs, bit for bit.
"""

from __future__ import annotations

from hilserver.numerics.arrays import Floats, Indices
from hilserver.numerics.shape import clip
from hilserver.tick.actuator import drive_actuators
from hilserver.tick.channels import scale_channels
from hilserver.tick.circuit import run_circuit, watch_circuit
from hilserver.tick.commands import take_command
from hilserver.tick.delayed_inputs import take_delayed
from hilserver.tick.estimator import follow_machine
from hilserver.tick.inputs import set_inputs
from hilserver.tick.limits import check_limits
from hilserver.tick.modes import watch
from hilserver.tick.outputs import drive_valves, set_outputs
from hilserver.tick.plan import plan_on
from hilserver.tick.reactions import react
from hilserver.tick.readings import note_readings
from hilserver.tick.row import header


def tick(block: Floats, ix: Indices, val: Floats, row: Floats, work: Floats, command: Floats) -> None:
    """One tick: ``row`` holds the result of the last tick and the new inputs, and is complete after the call.

    ``work`` is scratch space, of circuit and look-ahead; ``command`` is the mailbox record to take, all zero for none.
    """
    plan, head = plan_on(block), header(row)
    dt = plan.loop[0].dt
    head.time = head.tick * dt
    elapsed = (clip(head.missed, 0.0, plan.loop[0].max_missed) + 1.0) * dt
    scale_channels(plan, row, elapsed)
    note_readings(plan, row, elapsed)
    action = check_limits(plan, row)
    take_delayed(plan, row, elapsed)
    take_command(plan, row, command, action)
    watch(plan, row, action)
    action = react(plan, row, elapsed, action)
    set_inputs(plan, row, elapsed)
    follow_machine(plan, row, work, elapsed)
    drive_actuators(plan, ix, val, row, work, elapsed, action)
    run_circuit(plan, ix, val, row, work, elapsed)
    watch_circuit(plan, ix, val, row)
    drive_valves(plan, ix, row, work, elapsed, dt, action)
    set_outputs(plan, row)
