"""Critical delay of the loop of circuit, bridge and machine: against formulas, and against rigs that oscillate."""

from __future__ import annotations

from dataclasses import replace
from math import acos, pi, sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import program
from lift_bench import both, lift, of_valves
from linear_bench import linear
from rig_bench import bench_rig, merged

from hilserver.circuit.analysis import LinearModel
from hilserver.fidelity.strategies import simulate
from hilserver.margins.bridge_delay import bridge_delay
from hilserver.margins.delay import NO_STEADY_MOTION, DelayResult, delay_margins, warnings
from hilserver.margins.loop import DelayedLoop
from hilserver.margins.margins import margins
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import Saturation
from hilserver.tick.row import headers

pytestmark = pytest.mark.slow

# --- formulas ---------------------------------------------------------------------------------------------------------


def gain(Y: Any) -> LinearModel:
    """Something that answers at once."""
    Y = np.array(Y, dtype=float)
    return LinearModel(np.zeros((0, 0)), np.zeros((0, Y.shape[1])), np.zeros((Y.shape[0], 0)), Y, (), np.zeros(0))


def loop(Z: LinearModel, Y: LinearModel, K: Any = None) -> DelayedLoop:
    n = Z.D.shape[0]
    return DelayedLoop(Z, Y, np.zeros((n, n)) if K is None else np.array(K, dtype=float), np.eye(n), tuple(range(n)))


def oscillator(m: float, c: float, k: float) -> LinearModel:
    """Force to position of a mass on a spring with a damper."""
    return linear([[0, 1], [-k / m, -c / m]], [[0], [1 / m]], [[1, 0]], [[0]])


def mass_on_oil(C: float, A: float, m: float) -> LinearModel:
    """Flow to pressure of a chamber of capacitance C that moves a mass by a piston of area A."""
    return linear([[0, -A / C], [A / m, 0]], [[1 / C], [0]], [[1, 0]], [[0]])


def delay_of_a_damper(C: float, A: float, m: float, G: float) -> float:
    r"""C·p' = q - A·v, m·v' = A·p, q = -G·p(t - tau): a quarter period at the upper of the two crossings.

    jωm·G·e^(-jωτ) = -(A² - ω²mC): ω²mC - ωmG - A² = 0 and τ = π/(2ω).
    """
    omega = (G * m + sqrt((G * m) ** 2 + 4.0 * m * C * A * A)) / (2.0 * m * C)
    return pi / (2.0 * omega)


@pytest.mark.parametrize("driven", [(1,), (0, 2), (0, 1, 2)])
def test_eigenvalues_are_those_of_the_whole_loop(driven: tuple[int, ...]) -> None:
    """(1 - Z·K)^-1·Z·R·(Y - K_d) with a row per port, of which the smaller product has all that are not 0."""
    rng, n, states = np.random.default_rng(3), 3, 5
    Z, Y = (linear(*(rng.standard_normal(size) for size in sizes)) for sizes in [((5, 5), (5, 3), (3, 5), (3, 3))] * 2)
    K, R = np.diag(rng.standard_normal(n)), rng.standard_normal((n, len(driven)))
    omega = np.array([0.5, 3.0, 40.0])
    found = DelayedLoop(Z, Y, K, R, driven).eigenvalues(omega)
    for w, few in zip(omega, found, strict=True):
        z, y = (m.C @ np.linalg.inv(1j * w * np.eye(states) - m.A) @ m.B + m.D for m in (Z, Y))
        whole = np.linalg.eigvals(np.linalg.inv(np.eye(n) - z @ K) @ z @ R @ (y - K)[list(driven)])
        assert few == pytest.approx(whole[np.argsort(-np.abs(whole))][: len(driven)], rel=1e-9)


@pytest.mark.parametrize("G", [1e-13, 1e-12, 1e-11, 1e-10])
def test_critical_delay_of_an_orifice_that_damps_a_mass(G: float) -> None:
    C, A, m = 0.9e-3 / 1.5e9, 1.9635e-3, 400.0
    found = min(loop(mass_on_oil(C, A, m), gain([[-G]])).crossings())
    assert found[0] == pytest.approx(delay_of_a_damper(C, A, m, G), rel=1e-6)


@pytest.mark.parametrize(("c", "k_s"), [(3.0, 40.0), (3.0, 200.0), (15.0, 250.0)])
def test_critical_delay_of_a_late_spring(c: float, k_s: float) -> None:
    """m·z'' + c·z' + k·z + k_s·z(t - tau) = 0, as a tested spring in real-time hybrid testing.

    A root jω needs k_s·(cos ωτ - j·sin ωτ) = mω² - k - jcω. Form of the equation: Wallace et al. 2005.
    """
    m, k = 2.0, 225.0
    a, b, d = m * m, c * c - 2.0 * m * k, k * k - k_s * k_s  # a·ω⁴ + b·ω² + d = 0
    roots = [sqrt(x) for x in np.roots([a, b, d]) if abs(x.imag) < 1e-12 and x.real > 0.0]
    expected = []
    for omega in roots:
        cosine, sine = (m * omega**2 - k) / k_s, c * omega / k_s
        assert cosine**2 + sine**2 == pytest.approx(1.0)
        expected.append(acos(cosine) / omega)  # the sine is positive
    found = sorted(loop(oscillator(m, c, k), gain([[-k_s]])).crossings())
    assert [delay for delay, _ in found] == pytest.approx(sorted(expected), rel=1e-6)


def test_negative_damping_of_a_short_delay() -> None:
    """A spring late by tau is a damper -k_s·tau (Horiuchi et al. 1999): with a small c, tau = c/k_s is critical."""
    m, k, k_s, c = 2.0, 225.0, 90.0, 0.05
    assert min(loop(oscillator(m, c, k), gain([[-k_s]])).crossings())[0] == pytest.approx(c / k_s, rel=1e-3)


def test_two_ports_have_the_crossings_of_both() -> None:
    values = [(6e-13, 1.9635e-3, 400.0, 2e-11), (4e-13, 1.2566e-3, 250.0, 6e-11)]
    Z = [mass_on_oil(C, A, m) for C, A, m, _ in values]
    both = linear(
        np.block([[Z[0].A, np.zeros((2, 2))], [np.zeros((2, 2)), Z[1].A]]),
        np.block([[Z[0].B, np.zeros((2, 1))], [np.zeros((2, 1)), Z[1].B]]),
        np.block([[Z[0].C, np.zeros((1, 2))], [np.zeros((1, 2)), Z[1].C]]),
        np.zeros((2, 2)),
    )
    found = sorted(delay for delay, _ in loop(both, gain(np.diag([-values[0][3], -values[1][3]]))).crossings())
    alone = [delay for Z, v in zip(Z, values, strict=True) for delay, _ in loop(Z, gain([[-v[3]]])).crossings()]
    assert found == pytest.approx(sorted(alone), rel=1e-6)
    assert found[0] == pytest.approx(min(delay_of_a_damper(*v) for v in values), rel=1e-6)


@pytest.mark.parametrize(("share", "oscillates"), [(0.0, True), (0.4, True), (0.49, True), (0.51, False), (1.5, False)])
def test_any_delay_is_stable_if_the_real_valve_has_half_the_virtual_damping(share: float, oscillates: bool) -> None:
    """q = K·p + (Y - K)·p(t - tau): where |Y - K| < |K|, what comes late can't outweigh what comes at once."""
    Y, Z = -3e-11, mass_on_oil(6e-13, 1.9635e-3, 400.0)
    found = list(loop(Z, gain([[Y]]), [[share * Y]]).crossings())
    assert bool(found) == oscillates


def test_every_crossing_is_a_root_of_the_loop() -> None:
    Z, Y, K = mass_on_oil(6e-13, 1.9635e-3, 400.0), linear([[-190.0]], [[190.0]], [[-5e-11]], [[-2e-11]]), -6e-12
    found = list(loop(Z, Y, [[K]]).crossings())
    assert found
    for delay, omega in found:
        z, y = (part.response(np.array([omega]))[0, 0, 0] for part in (Z, Y))
        assert abs(1.0 - z * (K + np.exp(-1j * omega * delay) * (y - K))) < 1e-6


# --- rigs -------------------------------------------------------------------------------------------------------------

CYLINDER = {
    "port_A": "A",
    "bore": "50 mm",
    "rod_diameter": "30 mm",
    "stroke": "1 m",
    "dead_volume_A": "0.4 l",
    "mass": "400 kg",
}
RESTRICTOR = {
    "components": {
        "way": {
            "type": "laminar_restrictor",
            "ports": {"A": "rig.A", "B": "tank"},
            "nominal_flow": {"flow": "12 l/min", "drop": "100 bar"},
        },
        "tank": {"type": "tank", "ports": {"T": "tank"}},
    }
}


def test_a_rig_with_a_laminar_restrictor_has_the_formulas_critical_delay() -> None:
    """Its supply is not known: without the real valve's own damping the machine over its stroke is the formula's."""
    rig = bench_rig({"cylinders": {"lift": CYLINDER}, "inputs": None}, RESTRICTOR)
    found = delay_margins(rig, program())
    assert not found.supply_known
    G, A = 12 / 6e4 / 100e5, 0.25 * pi * 0.05**2
    for point in found.points:
        C = (0.4e-3 + A * point.stroke) / 1.5e9
        assert point.crossings[0][0] == pytest.approx(delay_of_a_damper(C, A, 400.0, G), rel=1e-4)
        assert point.damping == pytest.approx(0.5 * G / A * sqrt(400.0 / C), rel=1e-3)
        assert point.fastest == pytest.approx(A / sqrt(400.0 * C) / (2.0 * pi), rel=1e-3)


def test_free_air_hardly_counts_at_the_pressures_of_a_machine() -> None:
    """0.5 % of air at atmospheric pressure make the oil 50 times as soft at 1 bar, and 3 % at 50 bar."""

    def frequency(air: float) -> float:
        cylinder = {**CYLINDER, "air_fraction": air}
        found = margins(bench_rig({"cylinders": {"lift": cylinder}, "inputs": None}, RESTRICTOR), program())
        return next(each.hertz for each in found.capacity.frequencies if each.what == "the machine")

    assert 0.95 * frequency(0.0) < frequency(0.005) < 0.995 * frequency(0.0)


def test_margins_that_are_unknown_for_want_of_a_steady_motion_are_a_note() -> None:
    """Where only the description of the machine is missing, the table says so, and there is nothing to note."""
    unknown = DelayResult("", (), (), False, NO_STEADY_MOTION)
    (said,) = warnings(unknown, ["feedback"])
    assert said.startswith("stability: the margins are unknown: the virtual circuit reaches no steady motion")
    assert not list(warnings(replace(unknown, missing="the rig file has no [cylinders]"), ["feedback"]))


def test_a_shaft_that_turns_freely_leaves_the_margins_as_they_are() -> None:
    shaft = {
        "components": {
            "engine": {"type": "speed_source", "ports": {"shaft": "engine"}, "speed": "1500 rpm"},
            "flywheel": {"type": "inertia", "ports": {"shaft": "engine"}, "inertia": "0.1 kg*m^2"},
        }
    }
    cylinders = {"cylinders": {"lift": CYLINDER}, "inputs": None}
    alone, beside = (delay_margins(bench_rig(cylinders, c), program()) for c in (RESTRICTOR, merged(RESTRICTOR, shaft)))
    for one, other in zip(alone.margins, beside.margins, strict=True):
        assert other.critical == pytest.approx(one.critical, rel=1e-6)


def test_the_fastest_motion_of_a_strongly_damped_rig_is_that_of_its_chamber() -> None:
    """m·C·s² + m·G·s + A² = 0 with a large G: the pressure falls with the chamber's G/C, less what the mass takes."""
    wide = {"components": {"way": {"nominal_flow": {"flow": "300 l/min"}}}}
    rig = bench_rig({"cylinders": {"lift": CYLINDER}, "inputs": None}, merged(RESTRICTOR, wide))
    G, A = 300 / 6e4 / 100e5, 0.25 * pi * 0.05**2
    for point in delay_margins(rig, program()).points:
        C = (0.4e-3 + A * point.stroke) / 1.5e9
        fast = np.abs(np.roots([400.0 * C, 400.0 * G, A * A])).max()
        assert point.fastest == pytest.approx(fast / (2.0 * pi), rel=1e-3)
        assert point.fastest == pytest.approx(G / C / (2.0 * pi), rel=0.1)
        assert point.damping == 1.0


@pytest.mark.parametrize(("supply", "oscillates"), [(60, False), (95, False), (105, True), (400, True)])
def test_a_low_real_supply_makes_any_delay_safe(supply: float, oscillates: bool) -> None:
    """A restrictor that leads oil from 100 bar to the port: a drop dp, and G = Q/dp. The real valve: K = Q/(2·dp_real).

    So K is more than half of G while the real drop is less than the virtual one.
    """
    fixed = {"device": None, "source": None, "scale": None, "value": f"{supply} bar"}
    changes = {"cylinders": {"lift": CYLINDER}, "inputs": None, "channels": {"p_S": fixed}}
    circuit = merged(RESTRICTOR, {"components": {"tank": {"pressure": "100 bar"}}})
    found = delay_margins(bench_rig(changes, circuit), program())
    assert found.supply_known
    with_flow = [point for point in found.points if point.load > 0.0]
    assert with_flow
    assert all(bool(point.crossings) == oscillates for point in with_flow)


def test_missing_information_is_reported() -> None:
    no_machine = delay_margins(bench_rig(), program())
    assert "[cylinders]" in no_machine.missing
    assert no_machine.margins == ()
    other_port = bench_rig({"cylinders": {"lift": {**CYLINDER, "port_A": "B"}}, "ports": {"B": "p_A"}})
    assert "no valve drives a port" in delay_margins(other_port, program()).missing


def growth(rig: Rig, seconds: tuple[float, float]) -> float:
    """How fast the oscillation of the pressure in port A grows, 1/s: from the amplitudes of two halves of a time."""
    with LockstepRun(rig, program=program()) as run:
        rows = run.run_cycle()
    t, p = rows[:, 1], rows[:, rig.layout.column("channel.p_A")]
    first, last = seconds
    middle = 0.5 * (first + last)

    def amplitude(begin: float, end: float) -> float:
        part = (t >= begin) & (t < end)
        return float(np.std(p[part] - np.polyval(np.polyfit(t[part], p[part], 2), t[part])))

    return float(np.log(amplitude(middle, last) / amplitude(first, middle)) / (middle - first))


def slowly_lowering(strategy: str, delay: float = 1.0) -> Rig:
    """The lift rig, lowering slowly from near its end, with an actuator later than the rig file says, ms.

    The simulated machine and its friction, not [cylinders]: what is compared is the simulated rig.
    """
    points = [["0 s", 0.0], ["50 ms", 0.0], ["150 ms", -0.1], ["1.5 s", -0.1]]
    actuators = {name: {"delay": f"{delay} ms"} for name in ("valve_A", "valve_B")}
    return lift(
        both(
            {
                "rig": {"cylinders": None, "devices": {"rig": {"actuators": actuators}}},
                "devices": {"rig": {"machine": {"nodes": {"rod": {"position": "0.93 m"}}}}},
                "cycle": {"inputs": {"joystick": {"shape": "step", "points": points}}},
            },
            of_valves(bridge={"strategy": strategy}),
        )
    )


@pytest.mark.parametrize("strategy", ["inverse_static", "inverse_lag"])
def test_a_rig_oscillates_from_its_critical_delay(strategy: str) -> None:
    """Time domain against theory: the pressure's oscillation decays with 15 % less than the critical delay, and grows
    with 15 % more. (Whole ticks; the spool's lag counts as it is at the crossing's frequency.)
    """
    rig = slowly_lowering(strategy)
    (point,) = (p for p in delay_margins(rig, program()).points if p.inputs["joystick"] == -0.1 and p.stroke == 0.9)
    critical, omega = point.crossings[0]
    more = 1e3 * (critical - bridge_delay(rig, "A", strategy, omega))  # than the 1 ms of the rig file
    assert 5.0 < more < 12.0
    tolerance = 0.15 * 1e3 * critical
    less, later = (slowly_lowering(strategy, round(1.0 + more + sign * tolerance)) for sign in (-1.0, 1.0))
    assert growth(less, (0.5, 1.5)) < 0.0 < growth(later, (0.5, 1.5))


def test_delay_is_the_phase_of_the_real_flow() -> None:
    """The virtual valve moves by a sine; the real flow follows that of the reference simulation with the stated delay.

    But for two parts: the operator's input needs no sensor, and what passes in the coming tick is known at its
    beginning, so that holding the command for this tick makes nothing late.
    A strategy of the ladder's middle leads the circuit's own states; what is left for it is the valve's delay.
    """
    frequency, sensor, tick, delay = 10.0, 1e-3, 1e-3, 1e-3
    points = [[f"{t} s", float(0.3 * np.sin(2.0 * pi * frequency * t))] for t in np.arange(0.0, 0.9, 1e-3)]
    rig = lift({"cycle": {"inputs": {"joystick": {"points": points}}}})
    strategies = ["inverse_static", "inverse_lag", "second_order", "prediction"]
    phase = {}
    for name, cycle in ((v.name, v.cycle) for v in simulate(rig, strategies).variants if v.cycle is not None):
        late = cycle.time > 0.4
        turn = np.exp(-2j * pi * frequency * cycle.time[late])
        phase[name] = np.angle((cycle.reference["flow A"][late] @ turn) / (cycle.actual["flow A"][late] @ turn))
    stated = {name: bridge_delay(rig, "A", name, 2.0 * pi * frequency) for name in strategies}
    expected = {
        "inverse_static": stated["inverse_static"] - sensor - 0.5 * tick,
        "inverse_lag": stated["inverse_lag"] - sensor - 0.5 * tick,
        "second_order": delay,
        "prediction": stated["prediction"],
    }
    lags = {name: float(phase[name] / (2.0 * pi * frequency)) for name in strategies}
    assert lags == pytest.approx(expected, abs=1.5e-4)


@pytest.fixture(scope="module")
def of_lift() -> DelayResult:
    return delay_margins(lift(), program())


def test_a_margin_that_is_small_is_a_warning(of_lift: DelayResult) -> None:
    """The lift rig with the strategy that compensates nothing: with some loads a port's pressure oscillates (below)."""
    static, predicting = of_lift.of("inverse_static"), of_lift.of("prediction")
    assert static is not None
    assert predicting is not None
    assert static.margin < 1.0
    assert predicting.margin > 5.0
    assert list(warnings(of_lift, ["prediction"])) == []
    (text,) = warnings(of_lift, ["inverse_static"])
    assert "with strategy inverse_static the delay of the real flow is" in text
    assert str(static.where) in text


def test_a_rig_with_a_margin_below_one_oscillates(of_lift: DelayResult) -> None:
    """As the theory found on the lift rig: retracting at full speed from its end with a load that pulls half of the
    largest force, the pressures oscillate with the plain inverse; further in they come to rest.
    """
    pulled = {p.stroke: p for p in of_lift.points if p.inputs["joystick"] == -1.0 and p.load == -0.5}
    rig = lift(both(pulling(), of_valves(bridge={"strategy": "inverse_static"})))
    for share, oscillates in ((0.9, True), (0.5, False)):
        critical, omega = pulled[share].crossings[0]
        assert (critical < bridge_delay(rig, "B", "inverse_static", omega)) == oscillates
    with LockstepRun(rig, program=program()) as run:
        rows = run.run_cycle()
    assert amplitude_of(rig, rows, 0.88, 0.92) > 3e5
    assert amplitude_of(rig, rows, 0.48, 0.52) < 0.03e5


@pytest.mark.parametrize("strategy", ["prediction", "feedback", "adaptive"])
def test_prediction_is_stable_there_with_ten_ticks_per_period(strategy: str) -> None:
    """The same way, 140 Hz at its beginning: within the rate rule the pressures rest, and the position is that of the
    reference simulation within 1 mm.
    """
    rig = lift(both(pulling(), of_valves(bridge={"strategy": strategy}), {"rig": {"loop": {"rate": "1.5 kHz"}}}))
    (cycle,) = (v.cycle for v in simulate(rig, [strategy]).variants if v.name == strategy and v.cycle is not None)
    assert np.abs(cycle.actual["position rod"] - cycle.reference["position rod"]).max() < 1e-3
    with LockstepRun(rig, program=program()) as run:
        rows = run.run_cycle()
    assert amplitude_of(rig, rows, 0.88, 0.92) < 0.03e5
    for valve in "AB":
        assert not (rig.layout.values(rows, f"valve.{valve}.saturation") & Saturation.OSCILLATION).any()


def amplitude_of(rig: Rig, rows: Floats, low: float, high: float) -> float:
    """Standard deviation of the pressure in port B from a smooth curve, between two positions, Pa."""
    x, p = (rows[:, rig.layout.column(f"channel.{name}")] for name in ("x", "p_B"))
    part = p[(x > low) & (x < high) & (headers(rows)["time"] > 0.5)]
    return float(np.std(part - np.polyval(np.polyfit(np.arange(len(part)), part, 2), np.arange(len(part)))))


def pulling() -> dict[str, Any]:
    """The lift rig with a load that pulls by half of the largest force, at rest near the end; then it retracts."""
    pull, A_A, A_B = 0.5 * 140e5 * 0.25 * pi * 0.05**2, 0.25 * pi * 0.05**2, 0.25 * pi * (0.05**2 - 0.03**2)
    components = {
        "load": {"gravity": "0 m/s^2"},
        "pull": {"type": "force_source", "ports": {"rod": "rod"}, "force": f"{pull} N"},
    }
    pressures = {"A": {"pressure": "30 bar"}, "B": {"pressure": f"{(30e5 * A_A + pull) / A_B} Pa"}}
    machine = {"components": components, "nodes": {**pressures, "rod": {"position": "0.98 m"}}}
    points = [["0 s", 0], ["0.3 s", 0], ["0.4 s", -1], ["3.4 s", -1]]
    return {
        "devices": {"rig": {"machine": machine}},
        "cycle": {"inputs": {"joystick": {"shape": "step", "points": points}}},
    }


def test_the_rate_rule_sees_a_small_chamber_on_a_stiff_supply(of_lift: DelayResult) -> None:
    """Fastest with port B's chamber at its smallest, and the largest drop at the virtual valve's edge to it."""
    point = of_lift.fastest()
    assert point is not None
    assert (point.inputs["joystick"], point.stroke, point.load) == (-1.0, 0.9, -0.5)
    (text,) = margins(lift(), program()).warnings([])
    assert f"loop.rate: the virtual circuit on the machine ({point}) has {point.fastest:.3g} Hz" in text
