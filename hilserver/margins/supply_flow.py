"""Does the pump of a simulated drive deliver the flow that the virtual circuit requests?

A rig file states no pump of a real supply, but the drive of a simulated rig may contain one: then its pressure falls as
that of a real supply does, if the pump is too small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hilserver.circuit.model import Circuit
from hilserver.components.accumulator import Accumulator
from hilserver.components.fixed_pump import FixedPump
from hilserver.components.flow_source import FlowSource
from hilserver.components.pressure_source import PressureSource
from hilserver.components.shared.variable_pump import VariablePump
from hilserver.margins.capacity import TO_PORT, Capacity, flow_text
from hilserver.rig.rig import Rig
from hilserver.units import shown_value

TOLERANCE = 0.02
"""Fraction by which the pump may be too small: leakage and compressibility of the circuit at rest."""


def too_small_pumps(rig: Rig, capacities: Sequence[Capacity]) -> Iterator[str]:
    """Drives whose pumps deliver less than the largest steady flow into one port, in words, with the keys.

    Not where an accumulator or another source helps. The flows into several ports are not added: those of a common
    virtual pump do not occur at the same time.
    """
    largest = {c.valve: c.largest for c in capacities if c.direction == TO_PORT and c.largest is not None}
    for device in (device for device in rig.devices if device.is_simulated):
        pumps = pump_flows(rig.plant_circuits[device.name].circuit)
        flows = [q for name, q in largest.items() if rig.settings.valves[name].device == device.name]
        if not pumps or not flows:
            continue
        wanted, delivered = max(flows, key=lambda flow: flow.q), sum(pumps.values())
        if wanted.q > (1.0 + TOLERANCE) * delivered:
            deliver = "the pump delivers" if len(pumps) == 1 else "the pumps deliver"
            yield (
                f"devices.{device.name}.drive: {', '.join(pumps)}: {deliver} {shown_value(delivered, 'm^3/s', 3)}, but "
                f"the virtual circuit requests {flow_text(wanted)}. The real supply pressure will fall: use a larger "
                "pump or an accumulator, or a smaller flow in the virtual circuit."
            )


def pump_flows(circuit: Circuit) -> dict[str, float]:
    """The maximum flow of each pump, m³/s, by the key that states it; none where other sources supply the circuit."""
    found: dict[str, float] = {}
    for placed in circuit.placed:
        match placed.component:
            case PressureSource() | FlowSource() | Accumulator():
                return {}
            case FixedPump() as pump:
                found[f"components.{placed.name}.displacement"] = pump.displacement * pump.speed
            case VariablePump() as pump:
                found[f"components.{placed.name}.max_flow"] = pump.max_flow
    return found
