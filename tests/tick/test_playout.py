"""Playouts in the tick, judged by a linear plant whose gain and phase are known: response, drive and cycles."""

from __future__ import annotations

import cmath
from math import inf, nan, pi
from typing import Any

import numpy as np
import pytest
from rig_bench import DT, Bench
from tick_bench import CYCLE, bench

from hilserver.tick.codes import CommandKind, Mode, PlayoutState, Reacting, ResultCode

BAR = 1e5
N = 50
"""Ticks per cycle: 20 Hz."""


class Plant:
    """A second-order lag of the first input, with gain in Pa, around 50 bar; seen at p_A one tick later.

    ``b / (1 - a1/z + a2/z²)``, of which the frequency response is exact.
    """

    def __init__(self, gain: float = 20 * BAR, a1: float = 1.6, a2: float = 0.68) -> None:
        self.a1, self.a2, self.b = a1, a2, gain * (1.0 - a1 + a2)
        self.y = [0.0, 0.0]
        self.mean = 50 * BAR

    def response(self, ticks: int = N) -> complex:
        """From the input in a tick to the channel in the same tick: the plant sees the input of the tick before."""
        z = cmath.exp(2j * pi / ticks)
        return self.b / z / (1.0 - self.a1 / z + self.a2 / z**2)

    def move(self, u: float) -> float:
        self.y = [self.a1 * self.y[0] - self.a2 * self.y[1] + self.b * u, self.y[0]]
        return self.mean + self.y[0]


class Played(Bench):
    """A bench whose p_A is the plant's response, with a playout."""

    def __init__(self, plant: Plant, **changes: Any) -> None:
        made = bench(Mode.RUNNING, loop={"playouts": 2, "reactions": 1}, **changes)
        self.__dict__.update(made.__dict__)
        self.plant = plant

    def ticks(self, count: int, kind: int = CommandKind.NOTHING, *arguments: float) -> int:
        """Tick with the plant in the loop; the command comes in the first one. Returns its result."""
        result = 0
        for k in range(count):
            self.raw["p_A"] = self.plant.move(self["input.flow"]) / (10 * BAR)
            done = self.tick(kind, *arguments) if k == 0 else self.tick()
            result = done if k == 0 else result
        return result

    def play(
        self, amplitude: float, phase: float = 0.0, cycles: int = 1000, counted: int = 0, drive: float = 0.1,
        limit: float = 1.0, gain: float = 0.5, tolerance: float = 0.05, mean: float = 0.0, block: int = 8,
        centre: float = 0.0, centre_gain: float = 0.0,
    ) -> None:  # fmt: skip
        column = self.rig.layout.column("channel.p_A")
        for kind, *given in (
            (CommandKind.PLAY_TARGET, 0, 0, column, N, amplitude, phase),
            (CommandKind.PLAY_DRIVE, 0, mean, drive, limit, gain, tolerance),
            (CommandKind.PLAY, 0, cycles, counted, block, centre, centre_gain),
        ):
            assert self.ticks(1, kind, *given) == ResultCode.DONE

    def complex_of(self, what: str) -> complex:
        return complex(self[f"playout.0.{what}_sin"], self[f"playout.0.{what}_cos"])

    @property
    def state(self) -> int:
        return int(self["playout.0.state"])


@pytest.mark.parametrize(("gain", "phase"), [(20 * BAR, 0.0), (20 * BAR, -1.2), (-8 * BAR, 2.5)])
def test_amplitude_and_phase_become_those_wanted(gain: float, phase: float) -> None:
    """Whatever the plant's gain and phase are; the drive is then the wanted response divided by the plant's."""
    plant = Plant(gain)
    machine, wanted = Played(plant), cmath.rect(2 * BAR, phase)
    machine.play(2 * BAR, phase)
    machine.ticks(25 * 8 * N)
    assert machine.state == PlayoutState.CONTROLLED
    assert abs(machine.complex_of("measured") - wanted) < 1e-6 * abs(wanted)
    drive = wanted / plant.response()
    assert abs(machine.complex_of("drive") - drive) < 1e-6 * abs(drive)
    rows = [machine["channel.p_A"] for _ in range(N) if machine.ticks(1) is not None]
    assert 0.5 * np.ptp(rows) == pytest.approx(2 * BAR, rel=3e-3)


def test_the_error_shrinks_by_the_gain_in_every_block() -> None:
    """A linear plant that has settled: 1 - R/T is multiplied by 1 - g from block to block, near the end."""
    machine = Played(Plant())
    machine.play(2 * BAR, gain=0.25, block=10)
    errors = []
    for _ in range(25):
        machine.ticks(10 * N)
        errors.append(abs(1.0 - machine.complex_of("measured") / (2 * BAR)))
    ratios = np.array(errors[-8:]) / np.array(errors[-9:-1])
    assert ratios == pytest.approx(0.75, abs=0.02)


def test_the_cycles_are_counted_and_it_ends_after_the_last_one() -> None:
    machine = Played(Plant())
    machine.play(2 * BAR, cycles=1010, counted=1000, mean=0.3)
    first = int(machine["tick"])
    until_start = N - 1 - first % N
    machine.ticks(until_start + 1)
    for done in range(10):
        machine.ticks(N)
        assert machine["playout.0.count"] == 1000 + done + 1
    assert machine.state == PlayoutState.FADING
    machine.ticks(N)
    assert machine.state == PlayoutState.COMPLETED
    assert machine["input.flow"] == pytest.approx(0.3)
    machine.ticks(N)
    assert machine["playout.0.count"] == 1010
    assert machine["input.flow"] == pytest.approx(0.3)
    assert machine.mode == "RUNNING"


def test_a_response_out_of_tolerance_ends_it() -> None:
    """The plant loses a fifth of its gain: with control it comes back in time, without it the playout ends."""
    for gain, state in ((1.0, PlayoutState.CONTROLLED), (0.0, PlayoutState.DEVIATED)):
        plant = Plant()
        machine = Played(plant)
        machine.play(2 * BAR, drive=abs(2 * BAR / plant.response()), gain=gain, tolerance=0.1)
        machine.ticks(20 * 8 * N)
        assert machine.state == PlayoutState.CONTROLLED
        plant.b *= 0.8
        machine.ticks(5 * 8 * N)
        assert machine.state == state
    assert machine["input.flow"] == pytest.approx(0.0, abs=1e-12)


def test_a_drive_at_its_limit_does_not_learn_for_ever() -> None:
    machine = Played(Plant())
    machine.play(60 * BAR, limit=0.4, block=3)
    machine.ticks(63 * 3 * N)
    assert machine.state == PlayoutState.DEVIATED
    machine = Played(Plant())
    machine.play(60 * BAR, limit=0.4, block=3)
    machine.ticks(30 * 3 * N)
    assert abs(machine.complex_of("drive")) == pytest.approx(0.4)


def test_a_dead_sensor_does_not_raise_the_drive() -> None:
    machine = Played(Plant(gain=0.0))
    machine.play(2 * BAR, block=3)
    machine.ticks(20 * 3 * N)
    assert abs(machine.complex_of("drive")) == pytest.approx(0.1)
    machine.ticks(45 * 3 * N)
    assert machine.state == PlayoutState.DEVIATED


def test_the_centre_of_the_response_is_held() -> None:
    """20 bar per 1 of the input: a gain of half of 1/(20 bar) leaves (M - M0)/(1 + 0.5) of the error."""
    machine = Played(Plant())
    machine.play(2 * BAR, centre=53 * BAR, centre_gain=0.5 / (20 * BAR))
    machine.ticks(40 * 8 * N)
    assert machine["playout.0.measured_mean"] == pytest.approx(51 * BAR, rel=1e-4)
    machine.ticks(1, CommandKind.PLAY_END, 0)
    machine.ticks(N)
    assert machine["input.flow"] == 0.0  # what held the centre would move the machine away, now that nobody looks


def test_a_drift_does_not_count_as_a_response() -> None:
    """An eighth of the amplitude per cycle would otherwise be an error of 4 %: 1/(8π)."""
    plant = Plant()
    plant.mean = 35 * BAR
    machine = Played(plant)
    machine.play(2 * BAR)
    for _ in range(20 * 8 * N):
        plant.mean += 0.005 * BAR
        machine.ticks(1)
    assert machine.state == PlayoutState.CONTROLLED
    assert abs(machine.complex_of("drive") - 2 * BAR / plant.response()) < 1e-5 * abs(machine.complex_of("drive"))


def test_missed_ticks_do_not_spoil_the_control() -> None:
    machine = Played(Plant())
    machine.play(2 * BAR)
    machine.ticks(20 * 8 * N)
    before = machine.complex_of("measured"), machine.complex_of("drive")
    cycles = machine["playout.0.count"]
    for _ in range(40):
        machine.missed = 3
        machine.ticks(1)
        machine.missed = 0
        machine.ticks(N // 2 - 4)
    assert (machine.complex_of("measured"), machine.complex_of("drive")) == before
    assert machine["playout.0.count"] == cycles + 20


def test_a_block_whose_last_cycle_has_missed_ticks_is_evaluated_one_cycle_later() -> None:
    machine = Played(Plant())
    machine.play(2 * BAR, block=3)
    machine.ticks(N - 1 - int(machine["tick"]) % N + 1 + 2 * N + 10)
    machine.missed = 3
    machine.ticks(1)
    machine.missed = 0
    before = machine.complex_of("drive")
    machine.ticks(N)
    assert machine.complex_of("drive") == before
    machine.ticks(N)
    assert machine.complex_of("drive") != before


@pytest.mark.parametrize("command", [(CommandKind.SET_INPUT, 0, 0.2), (CommandKind.STOP,), (CommandKind.TRIP,)])
def test_a_person_goes_first(command: tuple[float, ...]) -> None:
    machine = Played(Plant())
    machine.play(2 * BAR)
    machine.ticks(8 * N)
    machine.ticks(1, int(command[0]), *command[1:])
    assert machine.state == PlayoutState.ABORTED
    assert machine["input.flow"] == (0.2 if command[0] == CommandKind.SET_INPUT else 0.0)
    machine.ticks(2 * N)
    assert machine.state == PlayoutState.ABORTED


def test_a_reaction_that_sets_the_input_ends_it() -> None:
    machine = Played(Plant())
    machine.play(2 * BAR)
    machine.ticks(8 * N)
    column = machine.rig.layout.column("channel.p_A")
    machine.ticks(1, CommandKind.REACT_WHEN, 0, column, 1.0, 50.5 * BAR, 0.0, 0.0)
    machine.ticks(1, CommandKind.REACT_THEN, 0, Reacting.SET, 0, -0.4)
    machine.ticks(N)
    assert (machine.state, machine["input.flow"]) == (PlayoutState.ABORTED, -0.4)


@pytest.mark.parametrize("cycles", [0, 3, 8])
def test_the_end_by_a_command_is_smooth(cycles: int) -> None:
    """In the middle of a cycle: in the first one, in one of a constant drive, and after a correction."""
    machine = Played(Plant())
    machine.play(2 * BAR, mean=0.3, drive=0.2, gain=0.2)
    before = N - 1 - int(machine["tick"]) % N + cycles * N + N // 4
    machine.ticks(before)
    values = [machine["input.flow"]]
    for k in range(2 * N):
        machine.ticks(1, CommandKind.PLAY_END if k == 0 else CommandKind.NOTHING, 0)
        values.append(machine["input.flow"])
    assert machine.state == PlayoutState.ENDED
    assert values[-1] == pytest.approx(0.3)
    steepest = 2 * pi / N * 0.2 + 0.5 / N  # of the sine, and of mean and amplitude on their way
    assert np.abs(np.diff(values)).max() < steepest


def test_playouts_of_the_same_frequency_have_the_same_phase_reference() -> None:
    """That of the tick's number, whenever they have begun."""
    machine = Played(Plant())
    machine.ticks(17)
    machine.play(2 * BAR, gain=0.0, tolerance=1e9)
    machine.ticks(3 * N)
    machine.ticks(N - 1 - int(machine["tick"]) % N + 1)
    assert int(machine["tick"]) % N == 0
    machine.ticks(N // 4)
    assert machine["input.flow"] == pytest.approx(0.1 * np.sin(2 * pi * (N // 4) / N))


def test_a_work_cycle_that_starts_takes_over_its_inputs() -> None:
    """As any other command for an input does: at the end of a playout, the input would jump to the cycle."""
    machine = Played(Plant(), cycle=CYCLE)
    machine.play(2 * BAR)
    machine.ticks(2 * N)
    machine.ticks(1, CommandKind.CYCLE, 1.0)
    machine.ticks(20)
    assert machine.state == PlayoutState.ABORTED
    assert machine["input.flow"] == pytest.approx(1.0)


def test_a_playout_ends_the_ramp_of_a_reaction() -> None:
    machine = Played(Plant())
    column = machine.rig.layout.column("channel.p_A")
    machine.ticks(1, CommandKind.REACT_WHEN, 0, column, 1.0, 10 * BAR, 0.0, 0.0)
    machine.ticks(1, CommandKind.REACT_THEN, 0, Reacting.SET, 0, -0.4, 10.0)
    machine.play(2 * BAR, cycles=2)
    machine.ticks(6 * N)
    assert (machine.state, machine["input.flow"]) == (PlayoutState.COMPLETED, 0.0)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (CommandKind.PLAY_TARGET, (2, 0, 0, 50, 1, 0)),
        (CommandKind.PLAY_TARGET, (0, 1, 0, 50, 1, 0)),
        (CommandKind.PLAY_TARGET, (0, 0, -1, 50, 1, 0)),
        (CommandKind.PLAY_TARGET, (0, 0, 1e9, 50, 1, 0)),
        (CommandKind.PLAY_TARGET, (0, 0, 0, 19, 1, 0)),
        (CommandKind.PLAY_TARGET, (0, 0, 0, 50, 0, 0)),
        (CommandKind.PLAY_TARGET, (0, 0, 0, 50, 1, nan)),
        (CommandKind.PLAY_DRIVE, (0, 0, 2, 1, 0.5, 0.1)),
        (CommandKind.PLAY_DRIVE, (0, 0, 1, 1, 2.0, 0.1)),
        (CommandKind.PLAY_DRIVE, (0, nan, 1, 1, 0.5, 0.1)),
        (CommandKind.PLAY, (0, 10, 10, 3, 0, 0)),
        (CommandKind.PLAY, (0, 10, 0, 1, 0, 0)),
        (CommandKind.PLAY, (0, 10, 0, 3, 0, inf)),
        (CommandKind.PLAY, (0, 10, 0, 3, 0, 0)),  # without the other two
    ],
)
def test_values_that_make_no_sense_are_refused(kind: int, given: tuple[float, ...]) -> None:
    machine = Played(Plant())
    assert machine.tick(kind, *given) == ResultCode.BAD_VALUE


def test_only_a_running_rig_plays() -> None:
    machine = bench(Mode.ARMED, loop={"playouts": 1})
    assert machine.tick(CommandKind.PLAY_TARGET, 0, 0, 0, N, 1, 0) == ResultCode.WRONG_MODE
    assert bench(Mode.RUNNING).tick(CommandKind.PLAY_TARGET, 0, 0, 0, N, 1, 0) == ResultCode.BAD_VALUE
    assert DT == 1e-3
