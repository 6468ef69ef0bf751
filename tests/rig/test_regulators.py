"""Regulators of actuators that know the circuit: which circuits they know, and what they demand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hybrid_rig import DAMPING, MASS, STIFFNESS, hybrid_rig, sources, with_strategy

from hilserver.circuit import engine as e
from hilserver.displacement.design import Followed, gains_for
from hilserver.displacement.linear import LinearMotion
from hilserver.rig.actuators import model_with_delay, tuning_of
from hilserver.rig.rig import Rig
from hilserver.rig.simulated import joined
from hilserver.tick.hybrid.displacement import COMPENSATIONS, DelayCompensation
from hilserver.tick.hybrid.memory import gains_of, has_regulator, known_states

STIFF = {"stiffness": "1e6 N/m", "damping": "1e3 N*s/m"}


def with_part(**part: Any) -> dict[str, Any]:
    """Changes: one more component in the circuit."""
    return {"circuit": {"components": {"more": part}}}


def test_a_linear_circuit_is_known_with_its_inputs() -> None:
    rig = hybrid_rig()
    assert has_regulator(rig.packed.index, 0)
    assert known_states(rig.packed.index, 0) == rig.packed.n_states + 1 + len(rig.circuit.inputs())


@pytest.mark.parametrize(
    "part",
    [
        {"type": "friction", "ports": {"rod": "rig.table"}, "coulomb": "10 N", "static": "10 N"},
        {
            "type": "end_stop",
            "ports": {"rod": "rig.table"},
            "upper": "40 mm",
            "stiffness": "1e6 N/m",
            "damping": "1e3 N*s/m",
        },
        {"type": "delay", "input": "push", "signal": "later", "delay": "5 ms"},
    ],
)
def test_a_circuit_that_is_not_linear_is_followed_without_knowing_it(part: dict[str, Any]) -> None:
    assert not has_regulator(hybrid_rig(with_part(**part)).packed.index, 0)


def test_a_circuit_without_the_node_has_no_regulator() -> None:
    given = sources()
    given["circuit"]["components"] = joined(given["circuit"], {"components": {}})["components"]
    for part in given["circuit"]["components"].values():
        part["ports"] = {port: node.replace("rig.table", "table") for port, node in part["ports"].items()}
    rig = hybrid_rig({"circuit": given["circuit"] | {"components": given["circuit"]["components"]}})
    assert not has_regulator(rig.packed.index, 0)


def first_gains(rig: Rig, compensation: DelayCompensation) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The gains at nominal parameters, of the first actuator."""
    index = rig.packed.index
    late, tracked = int(rig.plan.actuator["command_late"][0]), int(rig.plan.actuator["tracked"][0])
    count = known_states(index, 0) + gains_of(late) - 2
    first = int(index[int(index[e.REGULATORS])])
    first += COMPENSATIONS.index(compensation) * (1 + tracked + tracked**2) * count
    return rig.packed.value[first : first + count]


def test_gains_are_those_for_the_matrices_of_the_circuit() -> None:
    """The oscillator of the circuit by hand: its position and velocity are the only states that matter."""
    rig = hybrid_rig(with_strategy("prediction"))
    actuator, slow = rig.settings.actuators["table"], rig.slow_devices
    A = np.array([[0.0, 1.0], [-STIFFNESS / MASS, -DAMPING / MASS]])
    motion = LinearMotion(A - 1e-3 * np.eye(2), np.array([[0.0, 0.0], [0.0, -1.0 / MASS]]))
    followed = Followed(motion, DelayCompensation.PREDICTED, late_force=False)
    model, tuning = model_with_delay(actuator, rig.settings, slow), tuning_of(actuator, rig.settings)
    expected, _, _ = gains_for(followed, model, actuator.spread(), 1e-3, tuning)
    found = first_gains(rig, DelayCompensation.PREDICTED)
    states = list(rig.packed.values[: rig.packed.n_states])
    own = [found[states.index(f"rig.table.{what}")] for what in "xv"]
    assert own == pytest.approx(expected[:2], rel=1e-6)
    assert found[known_states(rig.packed.index, 0) + 2 :] == pytest.approx(expected[4:], rel=1e-6)


def test_a_switched_circuit_has_regulators_of_its_own() -> None:
    rig = hybrid_rig()
    heavier = {**rig.circuit.source, "components": {**rig.circuit.source["components"]}}
    heavier["components"]["mass"] = {**heavier["components"]["mass"], "mass": "900 kg"}
    packed = rig.pack(rig.read_circuit(heavier), like=rig.packed)
    assert has_regulator(packed.index, 0)
    assert packed.index.tobytes() == rig.packed.index.tobytes()
    place = int(packed.index[int(packed.index[e.REGULATORS])])
    assert np.abs(packed.value[place:] - rig.packed.value[place:]).max() > 1e-3
