"""The tick with its circuit: diverging, swapped; and that the tick is a pure function of its row."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from component_bench import program
from hypothesis import given
from hypothesis import strategies as st
from rig_bench import BAR, CIRCUIT, L_MIN, Bench, bench_rig, merged
from tick_bench import CYCLE, SUPPLIED, TANK, bench

from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats
from hilserver.tick.bridge.strategies import STRATEGY_NAMES
from hilserver.tick.codes import CommandKind, FaultCode, Mode, ResultCode
from hilserver.tick.program import no_command, work_array
from hilserver.tick.row import COLUMN, INPUTS, command_in, headers

# --- the virtual circuit ---------------------------------------------------------------------------------------------


def test_the_circuit_gets_the_measured_pressure_and_its_flow_reaches_the_valve() -> None:
    """At rest the pump's 10 l/min leave through the throttle: s is 35 bar·(10/20)² above the measured 50 bar."""
    machine = bench(Mode.RUNNING, circuit=SUPPLIED)
    machine.record("mode", 2000)
    assert machine["rig.A.p"] == machine["channel.p_A"] == pytest.approx(50 * BAR)
    assert machine["s.p"] == pytest.approx(58.75 * BAR, rel=1e-6)
    assert machine["valve.main.flow_virtual"] == pytest.approx(10 * L_MIN, rel=1e-6)


def test_a_circuit_that_diverges_trips_and_starts_anew() -> None:
    """A spool of 100 kHz by explicit Euler at 1 ms: each step multiplies its speed by about -1000."""
    stiff = {
        "solver": {"integrator": "euler", "substeps": 1},
        "components": {
            "tank": TANK,
            "s": {"type": "pressure_source", "ports": {"P": "s"}, "pressure": "100 bar", "command": 1},
            "valve": {
                "type": "servo_valve",
                "ports": {"P": "s", "T": "t", "A": "rig.A", "B": "t"},
                "command": "flow",
                "nominal_flow": {"flow": "60 l/min", "drop": "35 bar", "per": "edge"},
                "f90": "100 kHz",
            },
        },
    }
    machine = bench(Mode.RUNNING, circuit=stiff)
    machine.tick(CommandKind.SET_INPUT, 0, 0.4)
    modes = machine.record("mode", 150)
    commands = machine.record("valve.main.command", 50)
    assert modes[-1] == Mode.FAULT
    assert machine["fault"] == FaultCode.DIVERGED
    assert machine["valve.W"] == 0.0  # its initial value; the input is back at 0, so it stays there
    assert commands[-1] == 0.0
    assert np.all(np.isfinite(machine.row[machine.rig.plan.layout[0].circuit :]))
    assert machine.tick(CommandKind.RESET) == ResultCode.DONE


# --- swap ------------------------------------------------------------------------------------------------------------


def test_a_swap_keeps_states_of_the_same_name_and_starts_the_new_ones() -> None:
    machine = bench(Mode.RUNNING, circuit=SUPPLIED)
    machine.raw["p_A"] = 10.0  # 100 bar: the relief valve is open
    machine.record("mode", 500)
    kept = {name: machine[name] for name in ("s.p", "relief.K", "t", "rig.A.p", "rig.A.q")}
    assert kept["relief.K"] > 0.0
    changes = {"pump": {"command": 0.5}, "extra": {"type": "volume", "ports": {"P": "n"}, "volume": "1 l"}}
    machine.swap(merged(SUPPLIED, {"components": changes, "nodes": {"n": {"pressure": "7 bar"}}}))
    assert {name: machine[name] for name in kept} == kept
    assert machine["n.p"] == 7 * BAR
    assert machine["pump.command"] == 0.5  # a constant is the new circuit's
    assert machine.tick(CommandKind.SWAP, 2.0) == ResultCode.DONE
    assert machine["circuit_version"] == 2.0


def test_a_swap_leaves_nothing_of_the_old_circuit_behind() -> None:
    machine = bench(Mode.RUNNING, circuit=SUPPLIED)
    machine.record("mode", 100)
    machine.swap(CIRCUIT)
    first = machine.rig.plan.layout[0].circuit
    assert np.all(machine.row[first + len(machine.packed.values) :] == 0.0)
    machine.tick(CommandKind.SWAP, 2.0)
    assert np.all(machine.row[first + len(machine.packed.names) :] == 0.0)


def test_a_swap_there_and_back_changes_nothing() -> None:
    """The same circuit swapped in: not one bit of the next tick differs but for the version."""
    machine, other = bench(Mode.RUNNING, circuit=SUPPLIED), bench(Mode.RUNNING, circuit=SUPPLIED)
    for each in (machine, other):
        each.record("mode", 50)
    machine.swap(SUPPLIED)
    machine.tick()
    other.tick()
    assert machine.row.tobytes() == other.row.tobytes()


def test_a_swap_keeps_the_command_within_its_slew() -> None:
    """The virtual flow jumps from 10 to 40 l/min; the command moves by 0.05 per tick at most."""
    strong = merged(SUPPLIED, {"components": {"throttle": {"nominal_flow": {"flow": "80 l/min"}}}})
    machine = bench(Mode.RUNNING, circuit=SUPPLIED, valves={"main": {"bridge": {"strategy": "inverse_lag"}}})
    machine.raw["p_A"] = 0.5
    machine.record("mode", 5)
    commands = [machine["valve.main.command"]]
    for _ in range(3):
        machine.swap(strong)
        machine.tick(CommandKind.SWAP, 2.0)
        commands += [machine["valve.main.command"], *machine.record("valve.main.command", 20)]
        machine.swap(SUPPLIED)
        machine.tick(CommandKind.SWAP, 3.0)
        commands += [machine["valve.main.command"], *machine.record("valve.main.command", 20)]
    steps = np.abs(np.diff(commands))
    assert steps.max() == pytest.approx(0.05)
    assert machine.mode == "RUNNING"


def test_a_circuit_too_large_for_the_row_is_refused() -> None:
    rig = bench_rig()
    volumes = {f"v{k}": {"type": "volume", "ports": {"P": f"n{k}"}, "volume": "1 l"} for k in range(300)}
    with pytest.raises(ConfigurationError, match=r"the circuit has \d+ values, the running server has space for 256"):
        rig.pack(rig.read_circuit({"components": volumes}))


def test_a_large_first_circuit_has_room_for_another_like_it() -> None:
    volumes = {f"v{k}": {"type": "volume", "ports": {"P": f"n{k}"}, "volume": "1 l"} for k in range(300)}
    rig = bench_rig(circuit={"components": volumes})
    assert rig.layout.circuit_space == 2 * len(rig.packed.names)
    assert rig.layout.width == len(rig.layout.names) + rig.layout.circuit_space


# --- a pure function of the row --------------------------------------------------------------------------------------


def given_inputs(machine: Bench) -> list[int]:
    """Columns that are set from outside."""
    layout = machine.rig.layout
    return [*map(COLUMN.__getitem__, INPUTS), *layout.section("raw").values(), *layout.section("age").values()]


def log(strategy: str, ticks: int, seed: int) -> tuple[Bench, Floats, list[Floats]]:
    """A run with noisy sensors, missing samples, missed ticks and random commands; its rows and commands."""
    machine = bench(
        Mode.RUNNING,
        circuit=SUPPLIED,
        cycle={**CYCLE, "repeat": True},
        valves={"main": {"dither": {"amplitude": 0.02}, "bridge": {"strategy": strategy}}},
    )
    random = np.random.default_rng(seed)
    rows, commands = [machine.row.copy()], [no_command()]
    for _ in range(ticks):
        machine.raw.update(p_A=random.uniform(3, 8), p_S=nan if random.random() < 0.1 else 8.0, Q_A=random.normal())
        machine.ages["p_A"] = random.uniform(0, 0.01)
        machine.missed = int(random.integers(0, 3))
        kind = int(
            random.choice(
                [
                    CommandKind.NOTHING,
                    CommandKind.NOTHING,
                    CommandKind.SET_INPUT,
                    CommandKind.CYCLE,
                    CommandKind.STRATEGY,
                    CommandKind.STOP,
                    CommandKind.START,
                    CommandKind.JOG,
                ]
            )
        )
        first = float(random.integers(0, 2)) if kind == CommandKind.CYCLE else 0.0
        second = float(random.integers(0, 5)) if kind == CommandKind.STRATEGY else random.uniform(-1, 1)
        before = machine.sequence
        machine.tick(kind, first, second)
        rows.append(machine.row.copy())
        record = no_command()
        if machine.sequence > before:
            order = command_in(record)
            order.kind, order.a, order.b = kind, first, second
            order.sequence = machine.sequence
        commands.append(record)
    return machine, np.array(rows), commands


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_from_any_logged_row_the_tick_gives_the_next_one_bit_for_bit(strategy: str) -> None:
    machine, rows, commands = log(strategy, 300, seed=len(strategy))
    rig, columns = machine.rig, given_inputs(machine)
    for k in range(1, len(rows)):
        row = rows[k - 1].copy()
        row[columns] = rows[k][columns]
        work = np.full_like(work_array(rig.packed, rig.plan), nan)  # what is in it must not matter
        program().tick(rig.plan.block, rig.packed.index, rig.packed.value, row, work, commands[k].copy())
        assert row.tobytes() == rows[k].tobytes(), f"row {k} differs in {np.flatnonzero(row != rows[k])}"
    assert len(set(headers(rows)["mode"])) > 1  # the run went through several modes


@given(raw=st.lists(st.floats(0, 10), min_size=3, max_size=3), second=st.floats(-1, 1))
def test_the_tick_changes_neither_plan_nor_circuit(raw: list[float], second: float) -> None:
    machine = bench(Mode.RUNNING, circuit=SUPPLIED)
    constants = [machine.rig.plan.block, machine.packed.index, machine.packed.value]
    before = [array.tobytes() for array in constants]
    machine.raw.update(zip(machine.raw, raw, strict=True))
    machine.tick(CommandKind.SET_INPUT, 0, second)
    assert [array.tobytes() for array in constants] == before
