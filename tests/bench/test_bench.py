"""The benchmark measures what it says. How long anything takes is not tested."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_inputs import figures, rig_with, rig_with_modbus
from fake_nidaqmx import FakeNi
from modbus_server import Server as ModbusServer

from hilserver.bench.bench import benchmarks, with_substeps
from hilserver.bench.components import CALLS, REST, component_costs, repeated
from hilserver.bench.drivers import driver_costs
from hilserver.bench.parts import LOOK_AHEAD, PARTS, RecordedInputs, parts_around, tick_parts, timed_tick
from hilserver.circuit import engine as e
from hilserver.cli import main
from hilserver.compiler import compiled_program
from hilserver.errors import DriverError, HilserverError
from hilserver.numerics import shape
from hilserver.realtime.segment_folder import segment_path
from hilserver.realtime.shared import LoopMemory
from hilserver.record.reader import LogReader
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import replay_log
from hilserver.tick import tick
from hilserver.tick.codes import Mode
from hilserver.tick.program import no_command, work_array
from hilserver.tick.row import header

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(ROOT / "config/rigs/demo.toml")


@pytest.mark.slow
def test_every_case_is_timed_for_every_circuit(rig: Rig) -> None:
    results = benchmarks(rig, ticks=50, repeats=3, substeps=(1, 4))
    assert [result.circuit for result in results] == ["rk4 × 1"] * 4 + ["rk4 × 4"] * 4
    names = ["tick alone", "tick and devices", "tick, devices and full-rate log", "replay of that log"]
    assert [result.name for result in results] == names * 2
    for result in results:
        assert 0.0 < result.fastest <= result.median <= result.slowest
        assert result.speed == pytest.approx(1000.0 / result.median)


def test_substeps_change_the_virtual_circuit_only(rig: Rig) -> None:
    chosen = with_substeps(rig, 3)
    assert chosen.circuit.solver.substeps == 3
    assert chosen.circuit.solver.integrator == rig.circuit.solver.integrator
    assert rig.circuit.solver.substeps == 10
    with LockstepRun(rig) as fine, LockstepRun(chosen) as coarse:
        a, b = fine.run_cycle(), coarse.run_cycle()
    virtual = rig.layout.column("valve.main.flow_virtual")
    assert a[1000, virtual] != b[1000, virtual]
    assert a[1000, virtual] == pytest.approx(b[1000, virtual], rel=1e-2)


def test_the_log_of_a_changed_circuit_replays(rig: Rig, tmp_path: Path) -> None:
    """The circuit in the log's sources is the one that was packed and ran."""
    with LockstepRun(with_substeps(rig, 3), tmp_path / "run.arrow") as run:
        run.start()
        run.run(300)
    assert replay_log(tmp_path / "run.arrow").ok
    assert LogReader(tmp_path / "run.arrow").header.configuration["circuit"]["solver"]["substeps"] == 3


# --- parts of the tick ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def record(rig: Rig) -> RecordedInputs:
    return RecordedInputs.of(rig, 400)


def test_every_function_that_the_tick_calls_is_timed(record: RecordedInputs) -> None:
    """Those in its source, in their order; and each is known by a name for people."""
    (found,) = ast.parse(inspect.getsource(tick.tick)).body
    calls = [node for node in ast.walk(found) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    calls.sort(key=lambda node: node.lineno)
    called = [node.func.id for node in calls if isinstance(node.func, ast.Name)]
    names = timed_tick(record.program).names
    assert list(names) == [name for name in called if name in names]
    assert set(names) == set(PARTS)
    views = {"plan_on", "header"}
    assert set(called) - set(names) - views <= set(vars(shape)), "what is left is the tick's own arithmetic"


def test_the_timed_tick_is_the_tick(record: RecordedInputs) -> None:
    """It computes the same, bit for bit, and the cycles of its parts are all within those of the whole run."""
    row, cycles, microseconds = timed_tick(record.program).run(record)
    np.testing.assert_array_equal(row, record.last)
    assert header(record.last).mode == Mode.RUNNING
    assert (cycles > 0.0).all()
    begin = time.perf_counter()
    _, cycles, microseconds = timed_tick(record.program).run(record)
    assert cycles.sum() * microseconds < (time.perf_counter() - begin) * 1e6


def test_the_overhead_of_timing_is_subtracted(record: RecordedInputs) -> None:
    """The overhead is some cycles per part: a read of the counter, not a call from Python."""
    tick = timed_tick(record.program)
    assert 0.0 < tick.overhead < 10_000.0
    _, cycles, _ = tick.run(record)
    assert cycles.sum() > len(tick.names) * len(record.given) * tick.overhead / 2.0


def test_the_tick_neither_takes_memory_nor_keeps_arrays(record: RecordedInputs) -> None:
    """The program knows no function that takes memory; calls leave the counts of references as they were."""
    table = subprocess.run(
        ["nm", "-D", "--undefined-only", record.program.library._name],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    needed = {line.split()[-1].partition("@")[0] for line in table.splitlines()}
    assert "exp" in needed
    assert needed <= {
        "acos",
        "asin",
        "atan2",
        "cos",
        "exp",
        "exp2",
        "pow",
        "sin",
        "sincos",
        "tan",
        "tanh",
        "memset",
        "memmove",
        "memcpy",
    }
    rig, row, work = record.rig, record.row.copy(), work_array(record.rig.packed, record.rig.plan)
    arrays = (row, work, rig.packed.index, rig.packed.value, rig.plan.valve, rig.plan.cylinder)
    before = [sys.getrefcount(array) for array in arrays]
    for _ in range(100):
        record.program.tick(rig.plan.block, rig.packed.index, rig.packed.value, row, work, no_command())
    assert [sys.getrefcount(array) for array in arrays] == before


def test_each_part_is_charged_with_its_own_work(rig: Rig, record: RecordedInputs) -> None:
    """A hundred times the integration steps cost the circuit, and only it."""
    few, many = (
        {
            part.name: part.median
            for part in tick_parts(RecordedInputs.of(with_substeps(rig, steps), 100, record.program), 3)
        }
        for steps in (1, 200)
    )
    assert list(few) == list(many) == [*dict.fromkeys(PARTS.values()), LOOK_AHEAD]
    assert many["circuit"] > 5.0 * few["circuit"]
    assert max(many, key=lambda name: many[name]) in ("circuit", LOOK_AHEAD)


@pytest.mark.slow
def test_cost_of_the_look_ahead_is_measured_by_omitting_it(record: RecordedInputs, rig: Rig) -> None:
    plain = record.without_look_ahead()
    assert plain is not None
    assert plain.without_look_ahead() is None
    row, _, _ = timed_tick(plain.program).run(plain)
    virtual = rig.layout.column("valve.main.flow_virtual")
    assert row[virtual] == pytest.approx(record.last[virtual], rel=0.05)  # the same circuit, fed as before


def test_parts_around_the_tick_leave_nothing_behind(rig: Rig) -> None:
    before = left()
    found = parts_around(rig, 2)
    assert [(part.name, part.where) for part in found] == [
        ("call from Python", "loop"),
        ("publish", "loop"),
        ("recorder", "recorder"),
    ]
    assert all(part.median > 0.0 for part in found)
    assert left() == before


def left() -> set[str]:
    return {path.name for path in segment_path("").glob("bench*")}


# --- components -------------------------------------------------------------------------------------------------------


def test_only_calls_of_the_timed_type_are_repeated(rig: Rig) -> None:
    """The repeated table adds to the nodes what those calls add once, so many times; and no other type's."""
    program, packed = compiled_program(rig.library), rig.packed
    lines = packed.index[int(packed.index[e.CALLS]) :][: 4 * int(packed.index[e.N_CALLS])].reshape(-1, 4)
    kinds = {contract.kind: contract.component.type_name for contract in rig.library.contracts}
    calls = [line for line in lines if kinds[int(line[0])] == "relief_valve"]
    assert len(calls) == 1
    index = repeated(packed.index, calls, False)
    assert index[e.N_CALLS] == CALLS
    np.testing.assert_array_equal(index[e.HEADER : len(packed.index)], packed.index[e.HEADER :])
    assert sums(program, packed, index) == pytest.approx(
        CALLS * sums(program, packed, repeated_once(packed.index, calls))
    )


def repeated_once(index: Any, calls: Sequence[Any]) -> Any:
    new = np.concatenate([index, *calls])
    new[e.CALLS], new[e.N_CALLS] = len(index), len(calls)
    return new


def sums(program: Any, packed: Any, index: Any) -> Any:
    """What the kernels add to the nodes, with the supply above the relief valve's opening pressure."""
    z, y, work = np.zeros(len(packed.values)), np.zeros(len(packed.recorded)), np.zeros(packed.work_size)
    program.load(index, packed.value, z)
    z[packed.values.index("supply.p")], z[packed.values.index("relief.K")] = 200e5, 1e-7
    program.evaluate(index, packed.value, z, y, work)
    n = int(index[e.N_STATES])
    assert work[n : n + int(index[e.N_SUMS])].any()
    return work[n : n + int(index[e.N_SUMS])]


@pytest.mark.parametrize("integrator", ["rk4", "euler", "rosenbrock"])
def test_every_component_type_of_the_circuit_is_timed(integrator: str, rig: Rig) -> None:
    source = {**rig.circuit.source, "solver": {"integrator": integrator, "substeps": 2}}
    circuit = rig.read_circuit(source)
    costs = component_costs(with_circuit(rig, circuit), 2)
    types = {placed.component.type_name for placed in circuit.placed}
    assert {cost.type for cost in costs} <= types | {REST}  # a tank has no kernel to call at each step, others have two
    assert {"relief_valve", "proportional_valve_4_3", "pressure_compensated_pump"} <= {cost.type for cost in costs}
    assert costs[-1].type == REST
    shown = costs[:-1]
    assert all(cost.calls >= 1 and cost.per_call > 0.0 for cost in shown)
    assert [cost.per_tick for cost in shown] == sorted((cost.per_tick for cost in shown), reverse=True)
    if integrator != "rosenbrock":
        evaluations = 2 * {"rk4": 4, "euler": 1}[integrator]
        for cost in shown:
            assert cost.per_tick == pytest.approx(1e-3 * cost.per_call * cost.calls * evaluations)


def with_circuit(rig: Rig, circuit: Any) -> Rig:
    return replace(rig, circuit=circuit, packed=rig.pack(circuit))


# --- devices ----------------------------------------------------------------------------------------------------------


def test_a_simulated_device_costs_the_loop_shared_memory(rig: Rig) -> None:
    before = left()
    (cost,) = driver_costs(rig, turns=50, repeats=2)
    assert (cost.device, cost.driver, cost.where) == ("rig", "simulated", "loop")
    assert cost.read > 0.0
    assert cost.write > 0.0
    assert left() == before


def test_a_fast_device_is_opened_only_on_request_and_gets_its_safe_values(fake_ni: FakeNi) -> None:
    """It is read and written in the loop: only the device itself can say what that takes."""
    source = {
        "driver": "ni",
        "device": "Dev1",
        "inputs": {name: {"channel": f"ai{number}"} for number, name in enumerate("ASQ")},
        "outputs": {"valve": {"channel": "ao1", "safe": 2.5}},
    }
    rig = rig_with(source, raw=[-5, 10])
    assert driver_costs(rig, turns=5, repeats=2) == []
    (cost,) = driver_costs(rig, opened=True, turns=20, repeats=2)
    assert (cost.device, cost.driver, cost.where) == ("card", "ni", "loop")
    assert cost.read > 0.0
    assert cost.write > 0.0
    assert set(fake_ni.written()) == {("Dev1/ao1", 2.5)}, "safe values only"


@pytest.fixture(scope="module")
def modbus() -> Iterator[ModbusServer]:
    server = ModbusServer("tcp", "0")
    yield server
    server.close()


def test_a_slow_device_is_timed_in_the_loop_and_on_request_alone(modbus: ModbusServer) -> None:
    rig = rig_with_modbus(modbus.port)
    assert [(cost.driver, cost.where) for cost in driver_costs(rig, turns=20, repeats=2)] == [("modbus", "loop")]
    assert modbus.written() == []
    there, itself = driver_costs(rig, opened=True, turns=20, repeats=2)
    assert (there.where, itself.where) == ("loop", "I/O process")
    assert itself.read > there.read  # over a socket, and beside a server; not over memory
    assert {tuple(values) for _, _, address, values in modbus.written() if address == 40} == {(300,)}, (
        "safe values only"
    )


def test_a_missing_device_is_named() -> None:
    with pytest.raises(DriverError, match="card"):
        driver_costs(rig_with_modbus(1), opened=True, turns=5, repeats=1)
    assert left() == set()


def test_devices_are_not_opened_beside_a_running_server(modbus: ModbusServer) -> None:
    rig = rig_with_modbus(modbus.port)
    memory = LoopMemory.create(segment_path(rig.settings.name), row_width=rig.layout.width, ring_rows=10)
    with contextlib.closing(memory):
        memory.loop_heartbeat.beat()
        with pytest.raises(HilserverError, match="is running: stop it"):
            driver_costs(rig, opened=True)


# --- the command ------------------------------------------------------------------------------------------------------


def bench(*arguments: str | Path, monkeypatch: pytest.MonkeyPatch) -> int:
    quick = ("--ticks", "50", "--repeats", "1", "--substeps", "2", "--no-rates")
    monkeypatch.setattr("sys.argv", ["hilserver", "bench", *map(str, arguments), *quick])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.slow
def test_a_report_is_compared_and_what_is_slower_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo, old = ROOT / "config/rigs/demo.toml", figures(1e-6)
    old["components"][0]["per_tick"] = 1e6
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert bench(demo, "--compare", tmp_path / "old.json", "--tolerance", "100", monkeypatch=monkeypatch) == 1
    said = capsys.readouterr()
    for text in ("part: circuit", "component: relief_valve"):
        assert text in said.out
    (line,) = said.err.splitlines()
    assert line.startswith("part: circuit: ")
    assert line.endswith(" times slower than before.")


def test_on_a_rig_with_hardware_only_the_circuit_is_timed(
    modbus: ModbusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rig, written = rig_with_modbus(modbus.port), len(modbus.written())
    monkeypatch.setattr("hilserver.rig.build.load_rig", lambda _: rig)
    assert bench("lab.toml", monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().out
    note = "Note: The tick was not timed: that requires simulated devices, and these are real: card."
    assert note in " ".join(said.split())
    assert "flow_source" in said
    assert len(modbus.written()) == written
