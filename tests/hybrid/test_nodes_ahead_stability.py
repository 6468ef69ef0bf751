"""Nodes that are foreseen: stability and noise of the loop, and what is foreseen by the L-stable method.

Expectations are closed forms and SciPy.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from actuator_rigs import Oscillator, Servo, Specimen, Stand, Table, add_actuator, moved, part, share
from scipy.signal import cont2discrete

from hilserver.circuit.library import standard_library
from hilserver.compiler import compiled_program
from hilserver.margins.actuators import actuator_margins
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import Mode

RIGID = Specimen(30.0, 46.0, 1.8e5)
QUIET = (0.0, 0.0)


def rubbing(circuit: Table) -> Table:
    """The same circuit with 0.01 N of friction: it is not linear any longer."""
    rub = part("friction", {"rod": "rig.table"}, coulomb="0.01 N", static="0.01 N")
    return {**circuit, "components": {**circuit["components"], "rub": rub}}


def prescribed(frequency: float, integrator: str, substeps: int) -> Table:
    source = part("position_source", {"rod": "rig.table"}, command="s", travel="1 mm", time_constant="5 ms")
    sine = {"type": "sine_signal", "signal": "s", "frequency": f"{frequency} Hz"}
    solver = {"integrator": integrator, "substeps": substeps}
    return {"solver": solver, "components": {"source": source, "sine": sine}}


def late(found: Floats, right: Floats, time: Floats, frequency: float) -> float:
    """By how many s one sine is later than another."""
    turn = np.exp(-2j * np.pi * frequency * time)
    return float(-np.angle(np.sum(found * turn) / np.sum(right * turn))) / (2.0 * np.pi * frequency)


def growth(rig: Rig, strategy: str = "prediction") -> list[float]:
    """Of each actuator's loop, 1/s."""
    return [each.loops[strategy].growth for each in actuator_margins(rig, compiled_program(rig.library))]


@pytest.mark.parametrize(("frequency", "substeps"), [(3.0, 1), (3.0, 2), (12.0, 1), (12.0, 2), (20.0, 1)])
def test_the_l_stable_method_does_not_shift_signals_of_time(frequency: float, substeps: int) -> None:
    """A second-order lag of 5 ms behind a sine, against the closed form.

    After rejected steps it was 60 to 380 µs early. A method of second order reaches 0 to 3 µs with these steps.
    """
    stand = Stand(prescribed(frequency, "rosenbrock", substeps), 1000.0, RIGID, noise=QUIET)
    motion = moved(stand.rig(), 3.0)
    k = (motion.time > 1.0) & (motion.time <= 3.0)
    turn = 2j * np.pi * frequency
    right = (1e-3 * np.exp(turn * motion.time) / (1.0 + turn * 5e-3) ** 2).imag
    assert abs(late(motion.virtual[k], right[k], motion.time[k], frequency)) < 10e-6


@pytest.mark.parametrize(
    ("integrator", "substeps", "rate"), [("rosenbrock", 10, 1000.0), ("rk4", 14, 1000.0), ("rk4", 10, 2000.0)]
)
@pytest.mark.parametrize(("frequency", "largest"), [(3.0, 5e-4), (12.0, 5e-3), (20.0, 0.016)])
def test_a_prescribed_motion_is_foreseen_as_well_by_the_l_stable_method(
    integrator: str, substeps: int, rate: float, frequency: float, largest: float
) -> None:
    """The virtual motion is right here; only the look-ahead takes long steps.

    With the explicit method: 0.00, 0.17 and 0.81 %.
    """
    stand = Stand(prescribed(frequency, integrator, substeps), rate, RIGID, noise=QUIET)
    motion = moved(stand.rig(), 5.0)
    k = motion.time > 3.0
    assert share(motion.real[k], motion.virtual[k]) < largest


@pytest.mark.parametrize(
    ("mass", "specimen"),
    [
        (20.0, Specimen(30.0, 500.0, 1e5)),
        (60.0, Specimen(30.0, 500.0, 1.8e5)),
        (100.0, Specimen(30.0, 500.0, 1.8e5)),
        (100.0, Specimen(30.0, 2000.0, 2e5)),
        (300.0, Specimen(30.0, 500.0, 1.8e5)),
    ],
)
def test_a_specimen_may_be_as_heavy_as_its_node(mass: float, specimen: Specimen) -> None:
    """With the measured force at the actuator, all but the last grew at up to 40 1/s. The whole against SciPy."""
    virtual = Oscillator(mass, 8.0, 0.1, 300.0, specimen)
    stand = Stand(virtual.circuit(), 1000.0, specimen, noise=QUIET)
    assert growth(stand.rig())[0] <= 0.0
    motion = moved(stand.rig(), 6.0)
    k = motion.time > 4.0
    assert share(motion.real[k], virtual.right(motion.time)[k]) < 0.012


def test_delays_of_the_sensors_may_differ_if_they_are_stated() -> None:
    """Here the displacement is the later one: what the model does not explain is taken at one time."""
    virtual = Oscillator(1000.0, 3.0, 0.05, 1000.0, Specimen(30.0, 120.0, 1.2e6))
    for late in ((4e-3, 0.0), (0.0, 4e-3), (4e-3, 2e-3)):
        motion = moved(Stand(virtual.circuit(), 1000.0, virtual.specimen, late=late, stated=late).rig(), 6.0)
        k = motion.time > 4.0
        assert share(motion.real[k], virtual.right(motion.time)[k]) < 0.003


def test_the_impulse_of_the_specimen_is_that_of_its_momentum() -> None:
    """A free virtual mass carries one of twice its mass and is pushed: no impulse is lost between the ticks."""
    specimen, push = Specimen(60.0, 0.0, 0.0), 300.0
    components = {
        "mass": part("load_mass", {"rod": "rig.table"}, mass="30 kg", gravity="0 m/s^2"),
        "step": {"type": "step_signal", "signal": "step", "start": "3 s", "after": 1.0},
        "stop": {"type": "step_signal", "signal": "stop", "start": "3.1 s", "after": -1.0},
        "mix": {"type": "sum", "a": "step", "b": "stop", "signal": "push"},
        "force": part("force_source", {"rod": "rig.table"}, command="push", force=f"{push} N"),
        "earth": part("velocity_source", {"rod": "earth"}),
        "damper": part("elastic_coupling", {"rod": "rig.table", "base": "earth"}, stiffness="0 N/m", damping="0 N*s/m"),
    }
    circuit = {"solver": {"integrator": "rk4", "substeps": 4}, "components": components}
    servo = Servo(velocity_gain=3.0, force_decay=3.3)
    motion = moved(Stand(circuit, 1000.0, specimen, servo=servo, noise=QUIET).rig(), 3.5)
    v = motion.rows[:, len(motion.rig.layout.names) + list(motion.rig.packed.names).index("rig.table.v")]
    after = (motion.time > 3.12) & (motion.time < 3.4)
    assert v[after] == pytest.approx(push * 0.1 / 90.0, rel=2e-3)


@pytest.mark.parametrize(
    ("mass", "frequency", "specimen", "known"),
    [
        (300.0, 8.0, Specimen(30.0, 500.0, 1.8e5), 11e-6),
        (1000.0, 3.0, Specimen(30.0, 120.0, 1.2e5), 4.0e-6),
        (1000.0, 6.0, Specimen(30.0, 46.0, 7e5), 3.8e-6),
    ],
)
def test_the_command_at_rest_is_as_quiet_as_that_of_the_regulator(
    mass: float, frequency: float, specimen: Specimen, known: float
) -> None:
    """Change of the command per tick with 100 N of noise, 0.05 % of the load cell's range.

    With a regulator that knows the circuit: 11, 4.0 and 3.8 µm (RMS).
    """
    circuit = Oscillator(mass, frequency, 0.1, 0.0, specimen).circuit()
    motion = moved(Stand(circuit, 1000.0, specimen, noise=(5e-6, 100.0)).rig(), 3.0)
    k = (motion.time > 2.0) & (motion.time < 2.98)
    assert float(np.std(np.diff(motion.command[k]))) < 2.0 * known


@pytest.mark.parametrize(("mass", "frequency"), [(2000.0, 3.0), (500.0, 6.0)])
def test_a_damping_stated_twice_too_large_makes_nothing_swing(mass: float, frequency: float) -> None:
    """Without tracking it. With the measured force at the actuator, the second one was 200 % off; now it is 18 %."""
    virtual = Oscillator(mass, frequency, 0.15, 500.0, Specimen(30.0, 2000.0, 2e5))
    known = replace(virtual.specimen, damping=4000.0)
    motion = moved(Stand(virtual.circuit(), 1000.0, virtual.specimen, known, noise=QUIET).rig(), 5.0)
    k = motion.time > 3.0
    assert share(motion.real[k], virtual.right(motion.time)[k]) < 0.25


def two_actuators(mass: float, specimen: Specimen, strategy: str) -> Rig:
    """Two nodes of ``mass`` kg, coupled stiffly, each with such a specimen; 10 N from 2 s on."""
    components = {"earth": part("velocity_source", {"rod": "earth"})}
    for name in ("table", "two"):
        node = f"rig.{name}"
        components[f"m_{name}"] = part("load_mass", {"rod": node}, mass=f"{mass} kg", gravity="0 m/s^2")
        components[f"k_{name}"] = part(
            "elastic_coupling", {"rod": node, "base": "earth"}, stiffness="2e5 N/m", damping="1000 N*s/m"
        )
    components["coupling"] = part(
        "elastic_coupling", {"rod": "rig.table", "base": "rig.two"}, stiffness="1e7 N/m", damping="2e4 N*s/m"
    )
    components["push"] = {"type": "step_signal", "signal": "push", "start": "2 s", "after": 1.0}
    components["force"] = part("force_source", {"rod": "rig.table"}, command="push", force="10 N")
    circuit: Table = {"solver": {"integrator": "rosenbrock", "substeps": 8}, "components": components}
    stand = Stand(circuit, 1000.0, specimen, noise=QUIET, strategy=strategy)
    sources = stand.sources()
    add_actuator(sources)
    return assemble(sources, Path("stand.toml"), standard_library())


@pytest.mark.parametrize(
    ("mass", "carried", "strategy"),
    [(100.0, 20.0, "prediction"), (200.0, 60.0, "prediction"), (400.0, 5.0, "adaptive"), (100.0, 60.0, "adaptive")],
)
def test_the_check_sees_two_actuators_that_swing_together(mass: float, carried: float, strategy: str) -> None:
    """10 N act on one of them. Only those of the last row swing."""
    rig = two_actuators(mass, Specimen(carried, 500.0, 2e5), strategy)
    with LockstepRun(rig) as run:
        run.arm_and_start()
        run.run(5000)
        rows = run.run(500)
    x = rows[:, len(rig.layout.names) + list(rig.packed.names).index("rig.table.x")]
    swings = bool(np.ptp(x) > 1e-3) or not np.all(rows[:, rig.layout.column("mode")].view(np.int64) == Mode.RUNNING)
    assert swings == (max(growth(rig, strategy)) > 0.0) == (carried == 60.0 and strategy == "adaptive")


def test_inputs_are_foreseen_as_the_closed_form_needs() -> None:
    """A step that is known 40 ms in advance, exact to 0.02 % by the discrete transition matrix."""
    virtual = Oscillator(1000.0, 3.0, 0.1, 0.0, Specimen(30.0, 500.0, 1.8e5))
    circuit = rubbing(virtual.circuit())
    for name in ("s0", "s1", "s2", "mix"):
        circuit["components"].pop(name)
    circuit["components"]["force"] = part("force_source", {"rod": "rig.table"}, command="stick", force="3000 N")
    changes = {"rig": {"inputs": {"stick": {"delay": "40 ms"}}}}
    rig = Stand(circuit, 1000.0, virtual.specimen, noise=QUIET, changes=changes).rig()
    motion = moved(rig, 4.0, lambda run: run.set_input("stick", 1.0))
    m, c, k = virtual.whole()
    A, B = np.array([[0.0, 1.0], [-k / m, -c / m]]), np.array([[0.0], [3000.0 / m]])
    A, B = cont2discrete((A, B, np.eye(2), np.zeros((2, 1))), 1e-3)[:2]
    state, right = np.zeros(2), np.zeros(len(motion.time))
    for tick, value in enumerate(motion.column("input.stick")):
        state = A @ state + B[:, 0] * value
        right[tick] = state[0]
    after = motion.time > 1.5
    assert share(motion.real[after], right[after]) < 2e-3
