"""Amplitude, phase and noise from samples, and the sweeps on which they are measured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lift_bench import lift
from scipy.signal import butter, cont2discrete, lfilter, sosfiltfilt

from hilserver.errors import HilserverError
from hilserver.fidelity.from_log import unfiltered
from hilserver.fidelity.measures import Response, rms_above, sine_at
from hilserver.fidelity.strategies import with_cycle
from hilserver.fidelity.sweeps import after_cycle, alone, default_input, sweep_of
from hilserver.numerics.arrays import Floats
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.cycle import CycleSettings, Sweep
from hilserver.rig.plan import cycle_table
from hilserver.tick.work_cycle import cycle_value

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DT = 1e-3


# --- amplitude and phase ----------------------------------------------------------------------------------------------


def settled(frequency: float, seconds: float = 1.0) -> Floats:
    """Ticks of whole periods (not always whole ticks), some seconds after the begin."""
    return 3.0 + DT * np.arange(1.0, round(np.ceil(seconds * frequency) / frequency / DT) + 1.0)


@pytest.mark.parametrize("frequency", [2.0, 3.0, 7.0, 14.0, 20.0, 33.3])
def test_amplitude_and_phase_are_those_of_the_transfer_function(frequency: float) -> None:
    """A spool of 80 Hz, d 0.7, simulated exactly for inputs straight from tick to tick, against G(j·omega).

    Such an input is smaller than its sine by sinc²(f·dt), less than 0.4 % here; no harmonics, no drift.
    """
    omega, d = 2.0 * np.pi * 80.0, 0.7
    numerator, denominator = [omega**2], [1.0, 2.0 * d * omega, omega**2]
    num, den, _ = cont2discrete((numerator, denominator), DT, method="foh")
    t = DT * np.arange(6000.0)
    u = np.sin(2.0 * np.pi * frequency * t)
    y = lfilter(num.ravel(), den, u)
    counts = np.searchsorted(t, settled(frequency))
    s = 2j * np.pi * frequency
    expected = np.polyval(numerator, s) / np.polyval(denominator, s) * np.sinc(frequency * DT) ** 2
    found = Response.between(t[counts], y[counts], u[counts], frequency)
    assert found.ratio == pytest.approx(abs(expected), rel=1e-4)
    assert found.phase == pytest.approx(np.degrees(np.angle(expected)), abs=0.01)


@pytest.mark.parametrize("delay", [0.0, 0.4e-3, 2e-3, 9e-3])
@pytest.mark.parametrize("frequency", [2.0, 20.0])
def test_a_delay_appears_as_its_phase(frequency: float, delay: float) -> None:
    t = settled(frequency)
    turn = 2.0 * np.pi * frequency
    found = Response.between(t, 0.7 * np.sin(turn * (t - delay)), np.sin(turn * t), frequency)
    assert found.phase == pytest.approx(-360.0 * frequency * delay, abs=1e-6)
    assert found.ratio == pytest.approx(0.7, rel=1e-9)


@pytest.mark.parametrize("frequency", [2.0, 5.0, 17.0])
def test_harmonics_and_drift_of_a_cylinder_change_nothing(frequency: float) -> None:
    """What a sine becomes through a square root, on a cylinder that drifts off."""
    t, turn = settled(frequency), 2.0 * np.pi * frequency
    wave = np.sin(turn * t + 0.3)
    bent = wave + 0.1 * np.sin(2 * turn * t) - 0.2 * np.cos(3 * turn * t) + 0.05 * np.sin(5 * turn * t)
    drifting = bent + 4.0 + 30.0 * t - 2.0 * t**2
    assert sine_at(t, drifting, frequency) == pytest.approx(np.exp(1j * (0.3 - 0.5 * np.pi)), abs=1e-9)


def test_missing_ticks_do_not_matter() -> None:
    t = np.delete(settled(5.0), [3, 4, 5, 200, 201, 700])
    turn = 2.0 * np.pi * 5.0
    assert Response.between(t, np.sin(turn * t - 0.2), np.sin(turn * t), 5.0).phase == pytest.approx(np.degrees(-0.2))


def test_a_signal_without_oscillation_has_no_response() -> None:
    t = settled(5.0)
    still = Response.between(t, np.sin(t), np.full(len(t), 2.0), 5.0)
    drowned = Response.between(t, np.sin(10 * np.pi * t), 0.1 * np.sin(10 * np.pi * t), 5.0, deviation=0.2)
    assert np.isnan([still.ratio, still.phase, drowned.ratio, drowned.phase]).all()


def test_uncertainty_from_a_sensor_s_noise() -> None:
    """White noise of deviation sigma leaves sigma·sqrt(2/N) in the amplitude of N samples: 400 trials."""
    t = settled(5.0)[::5]
    reference, sigma, random = 2.0 * np.sin(10 * np.pi * t), 0.3, np.random.default_rng(1)
    deviation = sigma * np.sqrt(2.0 / len(t))
    stated = Response.between(t, reference, reference, 5.0, deviation)
    trials = [
        Response.between(t, reference + sigma * random.standard_normal(len(t)), reference, 5.0) for _ in range(400)
    ]
    assert np.std([r.ratio for r in trials]) == pytest.approx(stated.ratio_deviation, rel=0.12)
    assert np.std([r.phase for r in trials]) == pytest.approx(stated.phase_deviation, rel=0.12)


@pytest.mark.parametrize(
    ("frequency", "expected"), [(5.0, 0.0), (50.0, 0.0039), (100.0, 0.5), (160.0, 0.977), (300.0, 1.0)]
)
def test_noise_is_what_is_above_the_corner(frequency: float, expected: float) -> None:
    """Gain of the filter, both ways: 1/(1 + (f_c/f)^8), at bilinearly warped frequencies (Butterworth, order 4)."""
    t = DT * np.arange(5000.0)
    warped = np.tan(np.pi * 100.0 * DT) / np.tan(np.pi * frequency * DT)
    assert 1.0 / (1.0 + warped**8) == pytest.approx(expected, abs=0.02)
    got = rms_above(np.sqrt(2.0) * np.sin(2 * np.pi * frequency * t), 100.0, DT)
    assert got == pytest.approx(1.0 / (1.0 + warped**8), abs=2e-3)


def test_noise_of_white_noise() -> None:
    """Above 100 Hz lie 4/5 of what a tick of 1 ms can have."""
    white = np.random.default_rng(2).standard_normal(200_000)
    assert rms_above(white, 100.0, DT) == pytest.approx(np.sqrt(0.8), rel=0.02)
    assert np.isnan(rms_above(white[:50], 100.0, DT))


def test_the_filter_of_a_channel_is_inverted() -> None:
    """The tick's low-pass and its inverse, with missed ticks."""
    settings = ChannelSettings.model_validate({"value": "1 bar", "filter": "7 ms"})
    random = np.random.default_rng(3)
    raw = random.standard_normal(200)
    elapsed: Floats = np.float64(DT) * random.integers(1, 4, 200)
    values = raw.copy()
    for k in range(1, len(raw)):
        values[k] = values[k - 1] + (raw[k] - values[k - 1]) * elapsed[k] / (elapsed[k] + 7e-3)
    assert unfiltered(values, settings, elapsed)[1:] == pytest.approx(raw[1:], abs=1e-12)


# --- sweeps -----------------------------------------------------------------------------------------------------------


def test_a_sweep_is_sines_in_whole_periods() -> None:
    sweep = Sweep.model_validate({"frequencies": ["2 Hz", "7 Hz", "0.5 Hz"], "settle": "0.3 s", "measure": "1 s"})
    sines = sweep.sines(10.0)
    assert [s.frequency for s in sines] == [2.0, 7.0, 0.5]
    assert sines[0].begins == 11.0
    for sine, settles, counts in zip(sines, (1, 3, 1), (3, 7, 3), strict=True):
        assert (sine.counts - sine.begins) * sine.frequency == pytest.approx(settles)
        assert (sine.ends - sine.counts) * sine.frequency == pytest.approx(counts)
    assert sweep.duration() == pytest.approx(sines[-1].ends + 0.2 - 10.0)


def test_the_tick_s_sines_are_sines() -> None:
    cycle = CycleSettings.model_validate(
        {
            "inputs": {
                "u": {
                    "points": [["0 s", 0.0], ["0.5 s", 0.4]],
                    "sweep": {"frequencies": ["2 Hz", "12.5 Hz"], "amplitude": 0.3, "mean": 0.1},
                }
            }
        }
    )
    table = cycle_table(cycle, ["u"])
    entry = cycle.inputs["u"]
    for sine in entry.sines:
        for t in np.linspace(sine.begins, sine.ends - 1e-6, 97):
            expected = 0.1 + 0.3 * np.sin(2 * np.pi * sine.frequency * (t - sine.begins))
            assert cycle_value(table, 0, t, 0.0) == pytest.approx(expected, abs=1e-12)
    assert cycle_value(table, 0, 0.25, 0.0) == pytest.approx(0.2)
    rest = np.linspace(1.0, entry.sines[0].begins - 1e-6, 20)
    assert {cycle_value(table, 0, t, 0.0) for t in rest} == {0.1}
    assert cycle_value(table, 0, cycle.duration + 1.0, 0.0) == 0.1


def test_sweep_of_a_rig() -> None:
    rig = lift()
    assert default_input(rig) == "joystick"
    assert sweep_of(rig, "joystick", (5.0, 2.0), 0.2, -0.1) == {
        "amplitude": 0.2,
        "mean": -0.1,
        "frequencies": ["2.0 Hz", "5.0 Hz"],
    }
    swept = with_cycle(rig, after_cycle(rig, "joystick", sweep_of(rig, "joystick", (5.0,))))
    assert rig.cycle is not None
    assert swept.cycle is not None
    assert swept.cycle.inputs["joystick"].points == rig.cycle.inputs["joystick"].points
    assert swept.cycle.duration == pytest.approx(rig.cycle.duration + 1.0 + 0.4 + 1.0 + 0.2)


def test_a_sweep_beside_an_input_that_the_work_cycle_leads_longer() -> None:
    """The sweep begins when all inputs are done."""
    rig = lift(
        {"rig": {"inputs": {"other": {}}}, "cycle": {"inputs": {"other": {"points": [["0 s", 0.1], ["20 s", 0.2]]}}}}
    )
    swept = with_cycle(rig, after_cycle(rig, "joystick", sweep_of(rig, "joystick", (5.0,))))
    assert swept.cycle is not None
    assert swept.cycle.inputs["joystick"].sweep_begins == 20.0
    assert (swept.cycle.inputs["joystick"].points or ())[-1] == (20.0, 0.0)
    held = with_cycle(rig, alone(rig, "joystick", sweep_of(rig, "joystick", (5.0,))))
    assert held.cycle is not None
    assert held.cycle.inputs["other"].points == ((0.0, 0.0),)


def test_a_sweep_is_foreseen_as_the_work_cycle_is() -> None:
    """What ``foreseen`` of the cycle's file says holds for the sines, too."""
    for foreseen in (True, False):
        rig = lift({"cycle": {"foreseen": foreseen}})
        sweep = sweep_of(rig, "joystick", (5.0,))
        for cycle in (after_cycle(rig, "joystick", sweep), alone(rig, "joystick", sweep)):
            assert with_cycle(rig, cycle).plan.loop[0].cycle_foreseen == foreseen


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("joystik",), "Did you mean joystick"),
        (("joystick", (), 1.5), "sines of amplitude 1.5 about 0 leave the range of input joystick, -1 … 1"),
        (("joystick", (), 0.3, 0.8), "sines of amplitude 0.3 about 0.8 leave the range"),
        (("joystick", (), 0.0), "sines of amplitude 0 about 0"),
        (
            ("joystick", (250.0,)),
            "250 Hz can't be measured at 1000 ticks per second. Allowed: above 0 and up to 100 Hz",
        ),
        (("joystick", (-2.0,)), "-2 Hz can't be measured"),
    ],
)
def test_a_sweep_that_can_t_be_made(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(HilserverError, match=re.escape(said)):
        sweep_of(lift(), *arguments)


@pytest.mark.parametrize("n", [1501, 1600, 4001])
@pytest.mark.parametrize(("corner", "dt"), [(25.0, 1e-3), (100.0, 1e-3), (30.0, 1e-2)])
def test_noise_is_that_of_a_filter_forwards_and_backwards(n: int, corner: float, dt: float) -> None:
    """Against SciPy's filter in time, of a noisy motion that does not end where it began."""
    t = dt * np.arange(n)
    noise = np.random.default_rng(n).normal(size=n)
    values = 0.3 + 0.2 * t + np.sin(2.0 * np.pi * 0.7 * t) + 0.05 * noise
    edge = round(3.0 / (corner * dt))
    high = sosfiltfilt(butter(4, corner, "highpass", fs=1.0 / dt, output="sos"), values)[edge:-edge]
    assert rms_above(values, corner, dt) == pytest.approx(np.sqrt(np.mean(high**2)), rel=1e-3)
