"""Directional valves: how the spool follows the command, proportional and on/off."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, pi, sqrt

import numpy as np
import pytest
from component_bench import BAR, L_MIN, Bench, program
from directional_bench import SUPPLY, fed, spool
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from hilserver.circuit.analysis import Analysis
from hilserver.numerics.spool import EMPTY, LINE_SIZE, PLACES, through_delay

Floats = NDArray[np.float64]
C_V = 40 * L_MIN / sqrt(5 * BAR)


def response(bench: Bench, frequency: float, amplitude: float = 0.4) -> complex:
    """Complex gain from command to spool at a frequency, from one period after ten, commands held over 50 µs."""
    h = 5e-5
    n = round(1.0 / frequency / h)
    w = 2 * pi / (n * h)
    total = 0j
    for step in range(5 * n):
        bench["u"] = amplitude * np.sin(w * (step + 0.5) * h)
        bench.run(h, h)
        if step >= 4 * n:
            total += bench["valve.U"] * np.exp(-1j * w * (step + 1) * h)
    return 2j * total / (n * amplitude)


@pytest.mark.parametrize("frequency", [20.0, 50.0, 200.0])
def test_first_order_spool_has_the_frequency_response_of_its_f45(frequency: float) -> None:
    """1/(1 + jf/f45), analytic; -45° at f45 itself."""
    gain = response(spool('f45 = "50 Hz"'), frequency)
    assert gain == pytest.approx(1 / (1 + 1j * frequency / 50), rel=2e-3)


@pytest.mark.parametrize("frequency", [25.0, 50.0, 100.0])
@pytest.mark.parametrize(
    "lines",
    [
        'f90 = "50 Hz"\ndamping = 0.7',
        'bode = [["10 Hz", 0.0, -16.26], ["50 Hz", -2.9226, -90], ["80 Hz", -8.7, -124.87]]',
    ],
    ids=["f90", "bode"],
)
def test_second_order_spool_has_the_frequency_response_of_its_f90(lines: str, frequency: float) -> None:
    """1/(1 - r² + 2jdr), analytic; -90° and 1/(2d) at f90. The Bode points are those of the same f90 and damping."""
    r = frequency / 50
    assert response(spool(lines), frequency) == pytest.approx(1 / (1 - r * r + 1.4j * r), rel=5e-3)


@pytest.mark.parametrize("kind", ["directional_valve_4_3", "directional_valve_4_2", "directional_valve_2_2"])
def test_step_response_of_the_first_order_is_exponential_and_within_the_stroke(kind: str) -> None:
    bench = spool('time_constant = "5 ms"', kind)
    for command, target in ((7.0, 1.0), (-7.0, -1.0 if kind.endswith("4_3") else 0.0)):
        start = bench["valve.U"]
        bench["u"] = command
        bench.run(0.01, 1e-4)
        assert bench["valve.U"] == pytest.approx(target + (start - target) * exp(-2), rel=1e-6, abs=1e-9)
        bench.run(0.2, 1e-3)
        assert bench["valve.U"] == pytest.approx(target, abs=1e-12)


@pytest.mark.parametrize("motion", ['f45 = "200 Hz"', 'f90 = "200 Hz"'])
def test_opening_rate_limits_the_speed_in_both_directions(motion: str) -> None:
    bench = spool(f'{motion}\nopening_rate = "20 1/s"')
    for command in (1.0, -1.0):
        bench["u"] = command
        U = bench.record(("valve.U",), 0.15, 1e-4)["valve.U"]
        assert np.abs(np.diff(U)).max() == pytest.approx(20 * 1e-4, rel=1e-6)
        assert U[-1] == pytest.approx(command, abs=1e-3)


@pytest.mark.parametrize("step", [1e-4, 2.5e-4])
def test_delay_is_exact(step: float) -> None:
    """Steps every 3 ms: for the first order the spool without delay, 5 ms later, to the last digits."""
    late, prompt = spool('f45 = "60 Hz"\ndelay = "5 ms"'), spool('f45 = "60 Hz"')
    commands = np.repeat([0.0, 0.8, -0.3, 0.31, 0.0, 1.0, 1.0, 0.0, 0.0], round(3e-3 / step))
    shifted = np.concatenate([np.zeros(round(5e-3 / step)), commands[: -round(5e-3 / step)]])
    difference = 0.0
    for now, before in zip(commands, shifted, strict=True):
        late["u"], prompt["u"] = now, before
        late.run(step, step)
        prompt.run(step, step)
        difference = max(difference, abs(late["valve.U"] - prompt["valve.U"]))
    assert prompt["valve.U"] > 0.5
    assert difference < 1e-12


def test_delay_of_a_command_that_never_rests_is_sampled_finely_enough() -> None:
    """A sine of 5 Hz through 40 ms: right to within the sampling, a fifteenth of the delay later at most."""
    line, delayed, h = (np.full(LINE_SIZE, EMPTY), 0), 0.0, 1e-4
    worst = 0.0
    for step in range(4000):
        t = step * h
        delayed = through_delay(line, t, np.sin(10 * pi * t), 0.04, 0.04, delayed)
        worst = max(worst, abs(delayed - np.sin(10 * pi * max(t - 0.04, 0.0))))
        assert 0 <= line[0][0] <= PLACES
    assert worst < 1.05 * 10 * pi * 0.04 / 15


@given(changes=st.lists(st.tuples(st.integers(1, 40), st.floats(-1, 1)), max_size=60), delay=st.integers(1, 60))
def test_delay_line_delays_every_command_and_ends_at_the_last_one(changes: list[tuple[int, float]], delay: int) -> None:
    """Whatever the commands: what leaves is what entered, not before its time, and in the end the last of all."""
    line, delayed, t, h = (np.full(LINE_SIZE, EMPTY), 0), 0.0, 0.0, 1e-3
    entered: list[tuple[float, float]] = []
    for steps, u in [(1, 0.0), *changes, (2 * delay + 2, 0.5)]:
        for _ in range(steps):
            entered.append((t, u))
            delayed = through_delay(line, t, u, delay * h, delay * h, delayed)
            assert delayed in {0.0, *(value for when, value in entered if when <= t - delay * h + 1e-6)}
            t += h
    assert delayed == 0.5


def test_a_valve_in_use_from_the_start_does_not_wait_for_its_delay() -> None:
    """The equilibrium of a circuit is that of its command, although nothing moves while the delay lasts."""
    bench = spool('f45 = "30 Hz"\ndelay = "30 ms"')
    values = bench.z.copy()
    program().load(bench.packed.index, bench.packed.value, values)
    values[bench.packed.values.index("u")] = 0.4
    rest = Analysis(program(), bench.packed, values).steady_state()
    assert rest[bench.packed.values.index("valve.U")] == pytest.approx(0.4, abs=1e-6)


def test_hysteresis_is_a_loop_of_its_width_and_full_command_full_stroke() -> None:
    """Slow triangle of the command: at the same spool position the commands up and down are 6 % apart. Analytic."""
    bench = spool('f45 = "200 Hz"\nhysteresis = "6 %"')
    h = 1e-3
    up, down = np.linspace(-1, 1, 801), np.linspace(1, -1, 801)
    travel = []
    for command in (*np.linspace(0, 1, 400), *down, *up, *down):
        bench["u"] = command
        bench.run(0.01, h)
        travel.append(bench["valve.U"])
    rising, falling = np.array(travel[-1602:-801]), np.array(travel[-801:])
    assert rising.max() == pytest.approx(1.0, abs=1e-6)
    assert falling.min() == pytest.approx(-1.0, abs=1e-6)
    for U in (-0.5, 0.0, 0.3, 0.9):
        command_up, command_down = np.interp(U, rising, up), np.interp(-U, -falling, down)
        assert command_up - command_down == pytest.approx(0.06, abs=1e-4)


def test_small_commands_within_the_play_move_nothing() -> None:
    bench = spool('f45 = "100 Hz"\nhysteresis = 0.1')
    for command in (0.05, -0.05, 0.02):
        bench["u"] = command
        bench.run(0.1, 1e-3)
        assert bench["valve.U"] == 0.0


def test_null_offset_moves_the_spool_at_rest() -> None:
    bench = spool('f45 = "100 Hz"\nnull_offset = -0.03')
    bench.run(0.1, 1e-4)
    assert bench["valve.U"] == pytest.approx(-0.03, rel=1e-6)
    bench["u"] = -1.0
    bench.run(0.1, 1e-4)
    assert bench["valve.U"] == pytest.approx(-1.0, abs=1e-9)


SWITCHING = 'switching = { on = "40 ms", off = "30 ms" }'


def time_until(bench: Bench, arrived: Callable[[float], bool]) -> float:
    """Seconds until the spool's position satisfies ``arrived``, in steps of 0.1 ms."""
    for step in range(1, 2000):
        bench.run(1e-4, 1e-4)
        if arrived(bench["valve.U"]):
            return step * 1e-4
    raise AssertionError("the spool did not arrive")


@pytest.mark.parametrize(
    "kind", ["directional_valve_2_2", "directional_valve_3_2", "directional_valve_4_2", "directional_valve_4_3"]
)
def test_switching_times_are_those_of_the_datasheet(kind: str) -> None:
    """Nothing moves in the dead half; 95 % of the way are made at the switching time; then it reaches the end."""
    bench = spool(SWITCHING, kind)
    bench["u"] = 1.0
    bench.run(0.02, 1e-4)
    assert bench["valve.U"] == 0.0
    assert 0.02 + time_until(bench, lambda U: U >= 0.95) == pytest.approx(0.04, abs=2e-4)
    bench.run(0.1, 1e-4)
    assert bench["valve.U"] == pytest.approx(1.0, abs=1e-9)
    bench["u"] = 0.0
    bench.run(0.015, 1e-4)
    assert bench["valve.U"] == pytest.approx(1.0, abs=1e-9)
    assert 0.015 + time_until(bench, lambda U: U <= 0.05) == pytest.approx(0.03, abs=2e-4)
    bench.run(0.1, 1e-4)
    assert bench["valve.U"] == pytest.approx(0.0, abs=1e-9)


def test_an_on_off_spool_moves_at_constant_speed_until_it_lands() -> None:
    """Speed 0.1/tau; tau = (1 - dead)·T/(9 + ln 2): constant over nine tenths, then exponential to 95 %. Analytic."""
    bench = spool('switching = { on = "40 ms", off = "30 ms", dead_share = 0 }')
    bench["u"] = 1.0
    travel = bench.record(("valve.U",), 0.04, 1e-4)["valve.U"]
    tau = 0.04 / (9 + log(2))
    t = np.arange(1, 401) * 1e-4
    assert travel == pytest.approx(np.where(t < 9 * tau, 0.1 * t / tau, 1 - 0.1 * np.exp(9 - t / tau)), abs=1e-6)


def test_on_off_valves_switch_at_half_command() -> None:
    bench = spool(SWITCHING)
    for command, end in ((0.4, 0.0), (0.6, 1.0), (0.9, 1.0), (0.4, 0.0), (-0.6, -1.0), (1.0, 1.0), (-0.4, 0.0)):
        bench["u"] = command
        bench.run(0.25, 1e-3)
        assert bench["valve.U"] == pytest.approx(end, abs=1e-6)


def test_a_pulse_shorter_than_the_dead_time_does_not_move_the_valve() -> None:
    bench = spool('switching = { on = "60 ms", off = "20 ms" }')
    bench["u"] = 1.0
    bench.run(0.01, 1e-4)
    bench["u"] = 0.0
    assert np.all(bench.record(("valve.U",), 0.2, 1e-3)["valve.U"] == 0.0)


def test_a_detent_holds_the_last_position() -> None:
    bench = spool('switching = { on = "40 ms", off = "30 ms", detent = true }', "directional_valve_4_2")
    for command, end in ((0.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.3, 1.0), (-1.0, 0.0), (0.0, 0.0)):
        bench["u"] = command
        bench.run(0.2, 1e-3)
        assert bench["valve.U"] == pytest.approx(end, abs=1e-6)


@pytest.mark.parametrize(("integrator", "step"), [("rk4", 2.5e-5), ("rosenbrock", 2.5e-5)])
def test_a_valve_with_all_dynamics_agrees_with_an_independent_solution(integrator: str, step: float) -> None:
    """Float centre, overlap, a curve, second order: pressures in both lines against DOP853 on equations by hand."""
    lines = """type = "directional_valve_4_3"
        f90 = "40 Hz"
        damping = 0.6
        overlap = 0.1
        centre = "float"
        centre_opening = 0.2
        openings = { PA = [[0.1, 0], [0.5, 0.2], [1, 1]] }
        """
    bench = Bench(fed(lines) + SUPPLY + f'\n[solver]\nintegrator = "{integrator}"')
    C = 0.5e-3 / 1.5e9

    def g(dp: float) -> float:
        r = abs(dp) / BAR
        return float(np.sign(dp)) * (sqrt(abs(dp)) if r > 1 else sqrt(BAR) * r * (3 - r) / 2)

    def tank_edge(U: float) -> float:
        """Opening of B-T; A-T at -U: a float centre of 20 % that closes up to 0.3, then (U - 0.1)/0.9."""
        return max((U - 0.1) / 0.9, 0.2 if U >= 0 else 0.2 * (1 + U / 0.3), 0.0)

    def f(t: float, y: Floats, u: float) -> list[float]:
        p_A, p_B, U, W = y
        PA, PB = C_V * np.interp(U, [0.1, 0.5, 1], [0, 0.2, 1]), C_V * max(-U - 0.1, 0.0) / 0.9
        AT, BT = C_V * tank_edge(-U), C_V * tank_edge(U)
        w = 2 * pi * 40
        return [
            (PA * g(140 * BAR - p_A) - AT * g(p_A)) / C,
            (PB * g(140 * BAR - p_B) - BT * g(p_B)) / C,
            W,
            w * w * (u - U) - 1.2 * w * W,
        ]

    y = np.array([50 * BAR, 50 * BAR, 0.0, 0.0])
    for u, duration in ((0.3, 0.02), (-0.5, 0.02), (0.0, 0.03)):
        bench["u"] = u
        bench.run(duration, step)
        y = solve_ivp(f, (0, duration), y, "DOP853", rtol=1e-9, atol=1e-7, args=(u,), max_step=1e-4).y[:, -1]
        ours = [bench[name] for name in ("A.p", "B.p", "valve.U")]
        assert ours == pytest.approx(y[:3], rel=1e-4, abs=100.0)
        assert bench["valve.U"] == pytest.approx(y[2], abs=1e-5)
