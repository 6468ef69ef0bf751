"""Rigs with an actuator against judges that share nothing with the bridge: SciPy's solver, closed forms, sines.

Specimen, actuator, and circuit differ from the bridge's linear description where a test says so. Errors are RMS of the
true displacement relative to that of the right motion, from the beginning of the excitation on. The bounds are 1.5 to 2
times what was found, which is at least ten times below what the fault that a test looks for would cause, if not stated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from actuator_rigs import START, Hydraulic, Motion, Oscillator, Specimen, Stand, Table, moved, part, share, solved
from rig_bench import merged

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError
from hilserver.hybrid.rig_runs import HybridRig
from hilserver.margins.actuators import actuator_margins
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import CommandKind, Mode
from hilserver.toml import read_toml

HALF = 0.5 * 1030.0 * (2.0 * np.pi * 3.0) ** 2
"""N/m: half of the stiffness of a whole of 1030 kg and 3 Hz."""
SPECIMEN = Specimen(30.0, 46.0, HALF)
VIRTUAL = Oscillator(frequency=3.0, ratio=0.05, force=150.0, specimen=SPECIMEN)
CIRCUIT = VIRTUAL.circuit()
ACTUATOR = "actuator.table."


def off(motion: Motion, right: Floats) -> float:
    """Error of the displacement."""
    after = motion.time > START
    return share(motion.real[after], right[after])


def of_table(**values: Any) -> Table:
    """Changes of the actuator's table."""
    return {"rig": {"actuators": {"table": values}}}


# --- accuracy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1000.0, 4000.0])
@pytest.mark.parametrize(("late", "command"), [(0.0, 0.0), (0.002, 0.0), (0.0, 0.002)])
def test_prediction_is_right_with_delays_that_are_stated(rate: float, late: float, command: float) -> None:
    """Found 0.4 to 1.3 %. Half a tick of the force would be 3 % at 1 kHz, and 2 ms 20 %."""
    stand = Stand(
        CIRCUIT,
        rate,
        SPECIMEN,
        late=(late, late),
        stated=(late, late),
        command=(command, command),
        strategy="prediction",
    )
    motion = moved(stand.rig(), 9.0)
    assert off(motion, VIRTUAL.right(motion.time)) < 0.018


def test_a_force_that_is_not_compensated_is_late_by_half_a_tick() -> None:
    """The oscillator with the damping that half a tick of delay leaves it, c - k/2 dt, moves as the rig does."""
    motion = moved(Stand(CIRCUIT, 1000.0, SPECIMEN, strategy="state_feedback").rig(), 9.0)
    m, c, k = VIRTUAL.whole()

    def late(t: float, y: Floats) -> list[float]:
        return [y[1], (VIRTUAL.pushed(t) - (c - HALF * 0.5e-3) * y[1] - k * y[0]) / m]

    right, after = solved(late, [0.0, 0.0], motion.time)[:, 0], motion.time > START
    assert share(motion.virtual[after], right[after]) < 0.01
    assert share(motion.virtual[after], VIRTUAL.right(motion.time)[after]) > 0.02


@pytest.mark.parametrize(("strategy", "largest"), [("adaptive_lead", 0.016), ("prediction", 0.008)])
def test_an_actuator_of_real_hydraulics_moves_the_specimen_as_the_whole_moves(strategy: str, largest: float) -> None:
    """Servo valve, cylinder and position loop of the library; the bridge knows their five figures."""
    motion = hydraulic(strategy)
    assert off(motion, VIRTUAL.right(motion.time)) < largest


def hydraulic(strategy: str, **others: Table) -> Motion:
    """A run with the actuator of hydraulics, further components at the specimen."""
    drive = Hydraulic()
    middle = 0.5 * drive.stroke
    uncertain = {"specimen_stiffness": 0.05, "specimen_damping": 1.0, "f90": 0.05, "velocity_gain": 0.05}
    stand = Stand(
        CIRCUIT,
        1000.0,
        SPECIMEN,
        servo=drive.known(),
        drive=drive.drive(),
        machine=SPECIMEN.machine(middle, **others),
        strategy=strategy,
        of=("table.x", "pull"),
        middle=middle,
        changes=of_table(uncertainty=uncertain),
    )
    return moved(stand.rig(), 9.0, middle=middle)


def whole_with(extra: Callable[[float, float], float], time: Floats) -> Floats:
    """The whole with a further force that the bridge does not know of, N, against its motion."""
    m, c, k = VIRTUAL.whole()

    def motion(t: float, y: Floats) -> list[float]:
        return [y[1], (VIRTUAL.pushed(t) - c * y[1] - k * y[0] - extra(float(y[0]), float(y[1]))) / m]

    return solved(motion, [0.0, 0.0], time)[:, 0]


UNKNOWN: Mapping[str, tuple[Table, Callable[[float, float], float], float]] = {
    "damper": (
        part("damper", {"rod": "table", "base": "ground"}, damping="1000 N*s/m"),
        lambda x, v: 1000.0 * v,
        0.02,
    ),
    "friction": (
        part("friction", {"rod": "table"}, coulomb="20 N", static="20 N", reversal_speed="0.5 mm/s"),
        lambda x, v: 20.0 * float(np.tanh(v / 0.5e-3)),
        0.05,
    ),
    "end stop": (
        part("end_stop", {"rod": "table"}, upper="56 mm", stiffness="2e5 N/m", damping="100 N*s/m"),
        lambda x, v: 2e5 * max(x - 1e-3, 0.0) + (100.0 * max(v, 0.0) if x > 1e-3 else 0.0),
        0.10,
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_the_bridge_does_not_know_acts_on_the_circuit_with_the_measured_force(name: str) -> None:
    """adaptive_lead, whose circuit gets the measured force. Without it, the motion would be more than twice the bound
    off (asserted). The end stop: what is late or early at the contact of 2 MN/m is not small."""
    component, extra, largest = UNKNOWN[name]
    motion = hydraulic("adaptive_lead", extra=component)
    right, after = whole_with(extra, motion.time), motion.time > START
    assert share(VIRTUAL.right(motion.time)[after], right[after]) > 2.0 * largest
    assert off(motion, right) < largest


def test_a_node_at_a_mechanism_moves_as_the_boom_with_the_specimen() -> None:
    """One angle, with the geometry of the boom written out. Found 0.13 %."""
    stiffness, weight = 1e6, 4241.15
    ends = {"rod": "rig.table", "base": "earth"}
    held = f"{0.32 + weight / stiffness} m"
    components = {
        "earth": part("velocity_source", {"rod": "earth"}),
        "spring": part("spring", ends, stiffness=f"{stiffness} N/m", relaxed=held),
        "damper": part("damper", ends, damping="4000 N*s/m"),
        "sine": {"type": "sine_signal", "signal": "s", "frequency": "3 Hz", "start": f"{START} s"},
        "force": part("force_source", {"rod": "rig.table"}, command="s", force="2000 N"),
    }
    definition = dict(read_toml(Path(__file__).parents[2] / "config/mechanisms/boom.toml"))
    mechanisms = {"boom": {"definition": definition, "nodes": {"lift": "rig.table"}}}
    solver = {"integrator": "rk4", "substeps": 4}
    circuit = {"mechanisms": mechanisms, "solver": solver, "components": components}
    specimen = Specimen(30.0, 300.0, 2e5)
    motion = moved(Stand(circuit, specimen=specimen, changes=of_table(offset="-320 mm")).rig(), 9.0)

    def ram(angle: float) -> tuple[float, float]:
        """Extension since the start, m, and its change with the angle."""
        c, s = np.cos(angle), np.sin(angle)
        pin = np.array([0.65 * c + 0.1 * s, 0.65 * s - 0.1 * c])
        along = pin - np.array([0.15, -0.9])
        length = float(np.hypot(*along))
        return length - float(np.hypot(0.5, 0.8)), float(along @ np.array([-pin[1], pin[0]])) / length

    def boom(t: float, y: Floats) -> list[float]:
        (x, arm), (_, next_arm) = ram(float(y[0])), ram(float(y[0]) + 1e-5)
        bend, v, push = (next_arm - arm) / 1e-5, arm * float(y[1]), 0.0
        if t > START:
            push = 2000.0 * np.sin(6.0 * np.pi * (t - START))
        force = weight + push - (stiffness + 2e5) * x - 4300.0 * v - 30.0 * bend * float(y[1]) ** 2
        turning = force * arm - 200.0 * 9.81 * 1.306064 * np.cos(y[0])
        return [float(y[1]), float(turning) / (190.0 + 200.0 * 1.306064**2 + 30.0 * arm**2)]

    right = np.array([ram(angle)[0] for angle in solved(boom, [0.0, 0.0], motion.time)[:, 0]])
    assert off(motion, right) < 0.003


# --- timing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frequency", [2.0, 8.0])
@pytest.mark.parametrize(("strategy", "late"), [("state_feedback", 1.0), ("prediction", 0.5)])
def test_the_force_of_a_tick_is_that_of_its_begin_or_of_its_middle(
    frequency: float, strategy: str, late: float
) -> None:
    """By the phase of a sine: in ticks before the end of the tick, to a hundredth of one.

    With prediction, it is that of the position of the node, not of the actuator.
    """
    source = part("position_source", {"rod": "rig.table"}, command="s", travel="1 mm", time_constant="1 ms")
    sine = {"type": "sine_signal", "signal": "s", "frequency": f"{frequency} Hz"}
    circuit = {"solver": {"integrator": "rk4", "substeps": 10}, "components": {"source": source, "sine": sine}}
    motion = moved(Stand(circuit, 1000.0, SPECIMEN, noise=(0.0, 0.0), strategy=strategy).rig(), 8.0)
    omega = 2.0 * np.pi * frequency

    def phasor(values: Floats) -> complex:
        after = motion.time > 3.0
        turn = omega * motion.time[after]
        terms = np.stack([np.cos(turn), np.sin(turn), np.ones(len(turn))], axis=1)
        real, minus_imag, _ = np.linalg.lstsq(terms, values[after], rcond=None)[0]
        return complex(real, -minus_imag)

    specimen = SPECIMEN.stiffness + 1j * omega * SPECIMEN.damping - omega**2 * SPECIMEN.mass
    position = motion.virtual if strategy == "prediction" else motion.real
    found = -phasor(motion.column(ACTUATOR + "force")) / (specimen * phasor(position))
    assert -np.angle(found) / omega * 1000.0 == pytest.approx(late, abs=0.01)
    # the acceleration of the tick follows from those of the last two
    assert abs(found) == pytest.approx(1.0, abs=max(1e-3, (omega * 1e-3) ** 2))


def test_the_reference_of_simulate_is_the_whole_without_half_a_tick() -> None:
    """Against the closed form of the whole with the inputs of each tick held; a tick would be 1.9 %."""
    kept = {name: table for name, table in CIRCUIT["components"].items() if name not in ("mix", "s0", "s1", "s2")}
    times = np.arange(0.0, 3.0, 0.01)
    given = np.sin(6.0 * np.pi * times) + np.sin(4.0 * np.pi * times)
    points = [[f"{t:.3f} s", u] for t, u in zip(times.tolist(), given.tolist(), strict=True)]
    cycle = {"inputs": {"push": {"shape": "linear", "points": points}}}
    changes = {"rig": {"cycle": "cycle.toml", "inputs": {"push": {"range": [-3, 3]}}}, "cycle": cycle}
    stand = Stand({**CIRCUIT, "components": kept}, 1000.0, SPECIMEN, noise=(0.0, 0.0), changes=changes)
    result = HybridRig.of(stand.rig()).run({"table": "prediction"}).actuators["table"]
    m, c, k = VIRTUAL.whole()
    push, wanted = np.interp(result.time - 1e-3, times, given), np.zeros(2)  # held since the begin of each tick
    poles, modes = np.linalg.eig(np.array([[0.0, 1.0], [-k / m, -c / m]]))
    step = (modes * np.exp(poles * 1e-3) @ np.linalg.inv(modes)).real
    found = np.empty(len(push))
    for tick, u in enumerate(push):
        rest = np.array([VIRTUAL.force * u / k, 0.0])
        wanted = rest + step @ (wanted - rest)
        found[tick] = wanted[0]
    assert share(result.right, found) < 1e-9


CASES = {
    "oscillator": (1000.0, 1885.0, 180e3, Specimen(30.0, 100.0, 180e3)),
    "free mass": (1000.0, 0.0, 0.0, Specimen(30.0, 500.0, 2e5)),
    "undamped circuit": (1000.0, 0.0, 2e5, Specimen(30.0, 300.0, 2e5)),
    "negative spring": (1000.0, 2000.0, -2e5, Specimen(30.0, 100.0, 5e5)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_critical_delay_is_where_a_root_of_the_delayed_motion_crosses(name: str) -> None:
    """The root of m s² + c s + k + e^(-s tau) (specimen) that starts at tau 0, followed by Newton's method."""
    mass, damping, stiffness, specimen = CASES[name]
    ends = {"rod": "rig.table", "base": "earth"}
    coupling = part("elastic_coupling", ends, stiffness=f"{stiffness} N/m", damping=f"{damping} N*s/m")
    components = {
        "mass": part("load_mass", {"rod": "rig.table"}, mass=f"{mass} kg", gravity="0 m/s^2"),
        "earth": part("velocity_source", {"rod": "earth"}),
        **({"coupling": coupling} if stiffness or damping else {}),
    }
    rig = Stand({"components": components}, specimen=specimen).rig()
    found = actuator_margins(rig, compiled_program(rig.library))[0]
    assert found.critical is not None

    def growth(delay: float) -> complex:
        whole = (mass + specimen.mass, damping + specimen.damping, stiffness + specimen.stiffness)
        root = complex(np.roots(whole)[0])
        root = complex(root.real, abs(root.imag))
        for tau in np.linspace(0.0, delay, 400):
            for _ in range(20):
                part_of = specimen.mass * root**2 + specimen.damping * root + specimen.stiffness
                late = np.exp(-root * tau)
                value = mass * root**2 + damping * root + stiffness + late * part_of
                slope = 2.0 * mass * root + damping
                slope += late * (2.0 * specimen.mass * root + specimen.damping - tau * part_of)
                root -= value / slope
        return root

    assert growth(0.99 * found.critical).real < 0.0 < growth(1.01 * found.critical).real
    assert growth(found.critical).imag / (2.0 * np.pi) == pytest.approx(found.frequency, rel=1e-3)


# --- modes ------------------------------------------------------------------------------------------------------------


def speeds(motion: Motion, dt: float = 1e-3) -> Floats:
    """Changes of the command, m/s."""
    found: Floats = np.abs(np.diff(motion.command)) / dt
    return found


def test_the_approach_of_a_node_far_away_is_smooth() -> None:
    """40 mm in 1 s: at most 1.875 times as fast as on average, and a tenth more until the actuator moves with it."""
    source = part("velocity_source", {"rod": "rig.table"}, initial="40 mm")
    motion = moved(Stand({"components": {"source": source}}, 1000.0, SPECIMEN).rig(), 4.0)
    assert speeds(motion).max() == pytest.approx(1.875 * 0.04, rel=0.1)
    assert np.abs(np.gradient(motion.real, 1e-3)).max() == pytest.approx(1.875 * 0.04, rel=0.05)
    assert np.abs(motion.column(ACTUATOR + "error")).max() < 0.1e-3


def after(kind: CommandKind, changes: Table) -> Motion:
    """A command in motion, at 5.1 s, and 2 s more."""
    with LockstepRun(Stand(CIRCUIT, 1000.0, SPECIMEN, changes=changes).rig(), trace=True) as run:
        rows = [run.arm_and_start(), run.run(5100)]
        run.command(kind)
        rows.append(run.run(2000))
        true = run.true_values("lab")
        rig = run.rig
    names, start = list(rig.packed.names), len(rig.layout.names)
    every = np.concatenate(rows)
    circuit = every[:, start : start + len(names)]
    real = true[:, rig.plant_circuits["lab"].packed.names.index("table.x")]
    place = circuit[:, names.index("rig.table.x")]
    command = every[:, rig.layout.column(ACTUATOR + "command")]
    return Motion(circuit[:, names.index("t")], real, place, command, every, rig, true)


@pytest.mark.parametrize(
    ("kind", "at_trip", "mode", "stays"),
    [
        (CommandKind.STOP, "hold", Mode.ARMED, False),
        (CommandKind.TRIP, "hold", Mode.FAULT, True),
        (CommandKind.TRIP, "return", Mode.FAULT, False),
    ],
)
def test_in_motion_it_stays_or_returns_with_its_speed(kind: CommandKind, at_trip: str, mode: Mode, stays: bool) -> None:
    motion = after(kind, of_table(at_trip=at_trip, return_speed="2 mm/s"))
    assert motion.column("mode").view(np.int64)[-1] == mode
    later = motion.command[-1990:]
    assert np.abs(later[0]) > 1e-3
    assert np.ptp(later) == (0.0 if stays else pytest.approx(min(abs(later[0]), 2e-3 * 1.989), rel=1e-3))
    assert np.abs(np.diff(later)).max() <= 2.0001e-6


@pytest.mark.parametrize("missed", [1, 2, 5])
def test_missed_ticks_change_nothing_of_the_virtual_motion(missed: int) -> None:
    """The circuit catches up; the actuator is back within 0.1 s (found 0.13 mm off after 5 ticks at 0.2 m/s)."""
    found = []
    for ticks in (0, missed):
        with LockstepRun(Stand(CIRCUIT, 1000.0, SPECIMEN).rig()) as run:
            run.arm_and_start()
            run.run(5000)
            run.miss(ticks)
            rows = run.run(1000 - ticks)
        found.append(rows)
        start, names = len(run.rig.layout.names), list(run.rig.packed.names)
    place = start + names.index("rig.table.x")
    plain, with_gap = found[0][missed:, place], found[1][:, place]
    assert np.abs(with_gap - plain).max() < 5e-3 * np.abs(plain).max()
    errors = np.abs(found[1][:, run.rig.layout.column(ACTUATOR + "error")])
    assert errors[100:].max() < 1.1 * np.abs(found[0][:, run.rig.layout.column(ACTUATOR + "error")]).max()


def test_without_its_node_it_stays_and_comes_back_smoothly() -> None:
    mass = part("load_mass", {"rod": "other"}, mass="1 kg", gravity="0 m/s^2")
    library = standard_library()
    other, same = (read_circuit(c, library, "other") for c in ({"components": {"mass": mass}}, CIRCUIT))
    with LockstepRun(Stand(CIRCUIT, 1000.0, SPECIMEN).rig(), trace=True) as run:
        run.arm_and_start()
        run.run(5000)
        run.swap(other)
        away = run.run(1000)
        run.swap(same)
        back = run.run(2000)
        real = run.true_values("lab")[:, run.rig.plant_circuits["lab"].packed.names.index("table.x")]
        layout = run.rig.layout
    command, error = layout.column(ACTUATOR + "command"), layout.column(ACTUATOR + "error")
    assert np.ptp(real[-2500:-2000]) < 5e-6
    assert np.abs(np.diff(back[:, command])).max() < 1e-3 * 0.3  # the usual motion: 0.25 m/s
    assert np.abs(back[:, error]).max() < 0.05e-3
    assert (away[:, layout.column("mode")].copy().view(np.int64) == Mode.RUNNING).all()


WRONG: Mapping[str, tuple[Table, str]] = {
    "unknown channel": ({"force": "G"}, r'actuators\.table\.force: "G" is not a channel\. Allowed: F, x'),
    "unit of the force": ({"force": "x"}, r'force: channel "x" has the unit mm; .* unit N'),
    "unknown output": ({"output": "comand"}, r"output: .*Did you mean command\?"),
    "reversed range": ({"range": ["50 mm", "-50 mm"]}, r"range: the first displacement must be below"),
    "safe outside": ({"safe": "60 mm"}, r"safe: 60 mm is outside of the range, -50 mm … 50 mm"),
    "unit of a rate": ({"servo": {"velocity_gain": "50 m/s"}}, r"velocity_gain: .*measured in 1/s"),
    "unknown strategy": ({"bridge": {"strategy": "pi_lead"}}, r"'direct', 'state_feedback', 'adaptive'"),
    "unknown parameter": ({"uncertainty": {"stiffness": 0.1}}, r"specimen_stiffness"),
    "too uncertain": ({"uncertainty": {"f90": 0.6}}, r"uncertainty\.f90: 0\.6 is too much .* at most 0\.5"),
    "same raw output": ({"raw": [5, 5]}, r"raw: the outputs at both ends of the range must differ"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_named_with_its_place_and_what_would_be_right(name: str) -> None:
    changes, message = WRONG[name]
    sources = merged(Stand(CIRCUIT, specimen=SPECIMEN).sources(), of_table(**changes))
    with pytest.raises(ConfigurationError, match=message):
        assemble(sources, Path("stand.toml"), standard_library())
