"""Lockstep runs, and the bridged rig compared with the reference simulation."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lift_bench import lift

from hilserver.circuit.library import standard_library
from hilserver.compiler import standard_program
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.fidelity.comparison import Comparison
from hilserver.fidelity.measures import Deviation
from hilserver.fidelity.report import write_simulation
from hilserver.fidelity.results import NO_BRIDGE, VARIANTS, Fidelity, SegmentResult
from hilserver.fidelity.segments import trip_in
from hilserver.fidelity.strategies import simulate
from hilserver.fidelity.summary import _closer, sentences
from hilserver.fidelity.sweeps import about_foreseen
from hilserver.fidelity.tables import cycle_grid, frequency_grid, overview
from hilserver.record.reader import LogReader
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.bridge.strategies import STRATEGY_NAMES
from hilserver.tick.codes import CommandKind, Mode, ResultCode
from hilserver.tick.row import header, headers

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "config/rigs/demo.toml"
Tables = dict[str, Any]


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(DEMO)


@pytest.fixture(scope="module")
def demo(rig: Rig) -> Fidelity:
    return simulate(rig)


@pytest.fixture
def tables(rig: Rig) -> Tables:
    """The demo's source tables, to be changed."""
    return copy.deepcopy(dict(rig.sources))


def built(tables: Tables) -> Rig:
    return assemble(tables, DEMO, standard_library())


# --- lockstep ---------------------------------------------------------------------------------------------------------


def test_two_runs_are_the_same_to_the_last_bit(rig: Rig) -> None:
    with LockstepRun(rig) as one, LockstepRun(rig) as other:
        assert one.run_cycle().tobytes() == other.run_cycle().tobytes()


def test_pieces_of_a_run_are_the_same_as_the_whole(rig: Rig) -> None:
    with LockstepRun(rig) as one, LockstepRun(rig) as other:
        one.start()
        other.start()
        whole = one.run(900)
        assert np.concatenate([other.run(n) for n in (1, 399, 0, 500)]).tobytes() == whole.tobytes()


def test_log_holds_every_tick_as_it_was(rig: Rig, tmp_path: Path) -> None:
    with LockstepRun(rig, tmp_path / "run.arrow") as run:
        rows = np.concatenate([run.start(), run.run(2500)])
    table = LogReader(tmp_path / "run.arrow").read_all()
    assert not table.torn
    for i, name in enumerate(rig.layout.names):
        assert table.columns[name].tobytes() == rows[:, i].tobytes(), name
    first = len(rig.layout.names)
    assert np.array_equal(table.circuits[0].values, rows[:, first : first + len(rig.packed.names)])
    assert table.header.configuration["circuit"] == rig.sources["circuit"]


def test_commands_are_taken_one_per_tick_in_order(rig: Rig) -> None:
    with LockstepRun(rig) as run:
        run.run(1)
        assert run.mode == "SAFE"
        run.command(CommandKind.START)  # not armed yet: refused
        run.command(CommandKind.ARM)
        run.command(CommandKind.START)
        run.set_input("joystick", 0.25)
        rows = run.run(6)
    assert headers(rows)["command"].tolist() == [1, 2, 3, 4, 4, 4]
    assert headers(rows)["result"].tolist() == [
        ResultCode.WRONG_MODE,
        ResultCode.DONE,
        ResultCode.DONE,
        ResultCode.DONE,
        ResultCode.DONE,
        ResultCode.DONE,
    ]
    assert headers(rows)["mode"].tolist() == [Mode.SAFE, Mode.ARMED, *[Mode.RUNNING] * 4]
    assert rows[:, rig.layout.column("input.joystick")].tolist() == [0, 0, 0, 0.25, 0.25, 0.25]


def test_circuit_catches_up_on_missed_ticks_while_the_machine_moves_on(rig: Rig) -> None:
    """The plant moves on under its last command: time, circuit and position agree with a run without missed ticks."""
    position = rig.layout.column("channel.x")
    with LockstepRun(rig) as late, LockstepRun(rig) as steady:
        for run in (late, steady):
            run.start()
            run.run(1500)
        late.miss(4)
        late_rows, steady_rows = late.run(1), steady.run(5)
        assert header(late_rows[0]).tick == header(steady_rows[-1]).tick
        assert header(late_rows[0]).missed == 4.0
        moved = steady_rows[-1, position] - late_rows[0, position]
        assert abs(moved) < 0.2 * abs(steady_rows[-1, position] - steady_rows[0, position])


def test_names_that_the_rig_does_not_have_are_refused(rig: Rig) -> None:
    with LockstepRun(rig) as run:
        with pytest.raises(HilserverError, match="Did you mean joystick"):
            run.set_input("joystik", 0.1)
        with pytest.raises(HilserverError, match="Did you mean flow_servo"):
            run.select("flow_serv", "main")
        with pytest.raises(HilserverError, match=r'"B" is not a valve of the rig. Allowed: main'):
            run.select("flow_servo", "B")


def test_a_refused_start_states_the_reason(tables: Tables) -> None:
    tables["rig"]["limits"]["p_A_high"]["max"] = "20 bar"
    with LockstepRun(built(tables)) as run, pytest.raises(HilserverError, match="violated: p_A_high"):
        run.start()


def two_machines(tables: Tables) -> Tables:
    """Two of the demo's machines: valves in another order than devices, channels mixed, a fixed one among them."""
    one = tables["rig"]
    two = copy.deepcopy(one)
    device = one["devices"]["rig"]
    for sensor in device["sensors"].values():
        sensor["noise"] = 0.0
    two["devices"] = {"left": device, "right": copy.deepcopy(device)}
    channels = {"ambient": {"value": "20 bar"}}
    for name in ("x", "p_T", "p_B", "p_A", "Q_A", "p_S"):
        for side in ("right", "left"):
            channels[f"{name}_{side}"] = {**one["channels"][name], "device": side}
    two["channels"] = channels
    two["ports"] = {"A": "p_A_left", "B": "p_B_left", "C": "p_A_right", "D": "p_B_right"}
    valve = one["valves"]["main"]
    two["cylinders"] = {
        side: {**one["cylinders"]["lift"], "port_A": ports[0], "port_B": ports[1], "position": f"x_{side}"}
        for side, ports in (("left", "AB"), ("right", "CD"))
    }
    two["valves"] = {
        side: {
            **valve,
            "port": port,
            "other_port": chr(ord(port) + 1),
            "supply": f"p_S_{side}",
            "tank": f"p_T_{side}",
            "flow": f"Q_A_{side}",
            "device": side,
        }
        for side, port in (("right", "C"), ("left", "A"))
    }
    two["limits"] = {}
    circuit = tables["circuit"]
    components = dict(circuit["components"])
    for name, component in circuit["components"].items():
        ports = {"rig.A": "rig.C", "rig.B": "rig.D"}
        moved = {port: ports.get(node, f"{node}_right") for port, node in component["ports"].items()}
        components[f"{name}_right"] = {**component, "ports": moved}
    nodes = {**circuit["nodes"], "supply_right": circuit["nodes"]["supply"]}
    devices = dict.fromkeys(("left", "right"), tables["devices"]["rig"])
    return {**tables, "rig": two, "circuit": {**circuit, "components": components, "nodes": nodes}, "devices": devices}


def test_several_devices_and_valves_work_in_any_order_as_alone(tables: Tables) -> None:
    both_tables = two_machines(tables)  # takes the noise off the one machine too
    alone, both = built(tables), built(both_tables)
    with LockstepRun(alone) as one, LockstepRun(both) as two:
        rows, pair = one.run_cycle(), two.run_cycle()
    assert both.layout.valves == ("right", "left")
    assert np.ptp(rows[:, alone.layout.column("channel.x")]) > 0.1
    for side in ("left", "right"):
        for name in ("p_A", "p_B", "p_S", "p_T", "Q_A", "x"):
            mine, theirs = alone.layout.column(f"channel.{name}"), both.layout.column(f"channel.{name}_{side}")
            assert np.array_equal(rows[:, mine], pair[:, theirs]), (side, name)
        mine, theirs = alone.layout.column("valve.main.command"), both.layout.column(f"valve.{side}.command")
        assert np.array_equal(rows[:, mine], pair[:, theirs])


@pytest.mark.parametrize(("action", "mode"), [("ramp", "ARMED"), ("trip", "FAULT")])
def test_a_run_that_a_limit_ends_names_it(action: str, mode: str) -> None:
    rig = lift({"rig": {"limits": {"high": {"channel": "p_A", "max": "40 bar", "action": action}}}})
    record, _ = Comparison.of(rig, standard_program()).bridged(rig, "feedback")
    assert str(trip_in(record, rig)).startswith(f"ended in mode {mode} (limit high) at ")


# --- the bridged rig and the reference simulation ---------------------------------------------------------------------


def over_cycle(result: Fidelity) -> dict[str, SegmentResult]:
    return {variant.name: variant.cycle for variant in result.variants if variant.cycle is not None}


def test_best_bridge_beats_no_compensation_clearly(demo: Fidelity) -> None:
    assert demo.gain("position rod", NO_BRIDGE) > 3.0
    assert demo.gain("flow A", NO_BRIDGE) > 5.0
    assert demo.best("flow A") != NO_BRIDGE


def test_each_level_of_the_ladder_follows_the_virtual_flow_more_closely(demo: Fidelity) -> None:
    tracking = {name: cycle.tracking["flow A"].nrmse for name, cycle in over_cycle(demo).items() if cycle.tracking}
    rungs = ("prediction", "second_order", "inverse_lag_leakage", "inverse_lag", "inverse_static")
    values = [tracking[name] for name in rungs]
    assert values == sorted(values)
    assert tracking["prediction"] < 0.1 * tracking["inverse_static"] < 1e-3


def test_reference_simulation_and_rig_start_alike(demo: Fidelity) -> None:
    for strategy, cycle in over_cycle(demo).items():
        for name, series in cycle.actual.items():
            assert abs(series[0] - cycle.reference[name][0]) < 0.02 * np.ptp(cycle.reference[name]), (strategy, name)
            assert series.shape == cycle.reference[name].shape == cycle.time.shape


def test_the_reference_simulation_does_not_depend_on_the_strategy(demo: Fidelity) -> None:
    first, *others = over_cycle(demo).values()
    for cycle in others:
        assert np.abs(cycle.reference["position rod"] - first.reference["position rod"]).max() < 1e-6


def virtual_is_real(tables: Tables) -> Tables:
    """The virtual circuit drives the machine already: reference simulation and rig without compensation are one."""
    drive = tables["devices"]["rig"]["drive"]
    components = copy.deepcopy(drive["components"])
    components["servo_valve"] |= {"command": "joystick", "ports": {"P": "P", "T": "R", "A": "rig.A", "B": "rig.B"}}
    components["supply"]["ports"], components["tank"]["ports"] = {"P": "P"}, {"T": "R"}
    tables["circuit"] = {"solver": {"substeps": 10}, "components": components}
    return tables


def test_a_virtual_circuit_that_is_the_real_one_needs_no_compensation(tables: Tables) -> None:
    result = over_cycle(simulate(built(virtual_is_real(tables)), ["inverse_lag_leakage"]))
    without, bridged = result[NO_BRIDGE], result["inverse_lag_leakage"]
    assert np.ptp(without.reference["position rod"]) > 0.2
    for quantity in ("position rod", "flow A", "flow B", "pressure A"):
        assert without.deviations[quantity].nrmse < 1e-9
    for quantity in ("position rod", "flow A"):
        assert bridged.deviations[quantity].nrmse < 0.01


def test_without_compensation_each_port_s_own_valve_gets_its_sign() -> None:
    """Two valves of the virtual one's size at its supply: the virtual valve's command, opposite at port B, is right."""
    from lift_bench import lift

    size = {"nominal_flow": {"flow": "40 l/min", "drop": "35 bar", "per": "edge"}, "f90": "80 Hz"}
    drive = {"components": {"supply": {"pressure": "140 bar"}, "valve_A": size, "valve_B": size}}
    cycle = over_cycle(simulate(lift({"devices": {"rig": {"drive": drive}}}), ["inverse_static"]))[NO_BRIDGE]
    assert cycle.deviations["position rod"].nrmse < 0.05
    assert np.array_equal(cycle.command["A"], -cycle.command["B"])


def test_a_late_output_is_late_even_without_compensation(tables: Tables) -> None:
    late = copy.deepcopy(virtual_is_real(tables))
    late["rig"]["devices"]["rig"]["actuators"]["valve"]["delay"] = "5 ms"
    cycle = over_cycle(simulate(built(late), ["inverse_static"]))[NO_BRIDGE]
    moving = slice(600, None)  # the machine has come to rest before
    shifted = cycle.actual["flow A"][5:][moving] - cycle.reference["flow A"][:-5][moving]
    assert np.abs(shifted).max() < 0.002 * np.ptp(cycle.reference["flow A"])
    assert cycle.deviations["flow A"].largest > 0.02 * np.ptp(cycle.reference["flow A"])


def test_the_compared_flow_is_the_true_one_not_the_noisy_measurement(tables: Tables) -> None:
    noisy = copy.deepcopy(tables)
    noisy["rig"]["devices"]["rig"]["sensors"]["Q_A"]["noise"] = 0.05
    quiet, loud = (over_cycle(simulate(built(each), ["inverse_static"])) for each in (tables, noisy))
    assert np.array_equal(quiet["inverse_static"].actual["flow A"], loud["inverse_static"].actual["flow A"])


def test_strategies_that_the_rig_can_t_use_are_left_out_with_the_reason(tables: Tables) -> None:
    del tables["rig"]["valves"]["main"]["flow"]
    del tables["rig"]["cylinders"]
    tables["rig"]["valves"]["main"]["bridge"]["strategy"] = "inverse_static"
    tables["rig"]["channels"]["p_S"] = {"value": "140 bar"}
    rig = built(tables)
    result = simulate(rig)
    names = [variant.name for variant in result.variants]
    assert names == [NO_BRIDGE, "inverse_static", "inverse_lag", "inverse_lag_leakage", "second_order"]
    told = "\n".join(sentences(result))
    assert "null_region is no more accurate than second_order: no overlap is known (valve main)" in told
    assert "supply_droop is no more accurate: the supply pressure is a fixed value" in told
    assert "prediction is no more accurate: neither a delay nor a cylinder or motor at port A is known" in told
    with pytest.raises(HilserverError, match=r"flow_servo requires the flow: .* \(valve main\)"):
        simulate(rig, ["flow_servo"])
    with pytest.raises(HilserverError, match="feedback requires the flow"):
        simulate(rig, ["feedback"])
    assert [v.name for v in simulate(rig, ["null_region"]).variants] == [NO_BRIDGE, "null_region"]  # as was asked for


def test_without_an_input_at_the_virtual_valve_there_is_no_run_without_bridge(tables: Tables) -> None:
    tables["circuit"]["components"]["main_valve"]["command"] = 0.1
    result = simulate(built(tables), ["inverse_static"])
    assert [variant.name for variant in result.variants] == ["inverse_static"]
    assert "no compensation: no signal commands a virtual valve at port A" in "\n".join(sentences(result))


def test_every_strategy_is_explained() -> None:
    assert set(VARIANTS) == {NO_BRIDGE, *STRATEGY_NAMES} - {"manual"}


def test_the_report_says_that_the_inputs_were_known_in_advance(demo: Fidelity, rig: Rig) -> None:
    """Where a strategy with look-ahead ran, and the cycle is foreseen."""
    assert rig.cycle is not None
    by_hand = rig.cycle.model_copy(update={"foreseen": False})
    (text,) = about_foreseen([None, rig.cycle], demo.cycle_errors("position rod"))
    assert text in demo.notes
    assert list(about_foreseen([rig.cycle], [NO_BRIDGE, "inverse_static"])) == []
    assert list(about_foreseen([by_hand], ["prediction"])) == []
    assert list(about_foreseen([None, by_hand, rig.cycle], ["prediction"])) == [text]


def test_report_is_written(demo: Fidelity, tmp_path: Path) -> None:
    page, *_, figures = write_simulation(demo, tmp_path / "reports")
    assert "<svg" in page.read_text()
    told = json.loads(figures.read_text())
    assert set(told["variants"]) == {variant.name for variant in demo.variants}
    errors = {name: found["cycle"]["deviations"]["flow A"]["nrmse"] for name, found in told["variants"].items()}
    assert errors[NO_BRIDGE] > errors["inverse_static"]
    assert told["best_is_closer_by"]["flow A"][NO_BRIDGE] == pytest.approx(demo.gain("flow A", NO_BRIDGE))
    text = "\n".join(sentences(demo))
    best = r"flow A: \w+ is best, with a deviation of [\d.]+% of the range"
    assert re.search(best + r", [\d.]+ times more accurate than no compensation", text)
    assert "times more accurate than inverse_static" in text
    assert "not usable" not in text
    assert "Port B is supplied by the other edges of valve main" in text


def test_a_best_strategy_that_is_far_off_is_called_unusable() -> None:
    errors = {"inverse_static": Deviation(0.93, 2.0, 1.0), "prediction": Deviation(0.31, 1.0, 1.0)}
    assert _closer(errors, ("inverse_static",)).startswith(
        "prediction is best, with a deviation of 31% of the range: not usable, 3.00"
    )


def test_a_rig_that_trips_during_the_run_gives_no_result(tables: Tables) -> None:
    tables["rig"]["limits"]["stroke"] |= {"action": "trip", "max": "400 mm"}
    with pytest.raises(HilserverError, match=r"strategy inverse_static .* FAULT \(limit stroke\)"):
        simulate(built(tables), ["inverse_static"])


def test_a_strategy_that_trips_is_a_row_of_the_table(demo: Fidelity) -> None:
    tripped = replace(demo, tripped={"adaptive": "ended in mode FAULT (limit stroke) at 3.21 s"})
    for grid in (cycle_grid(tripped), frequency_grid(tripped), overview(tripped)):
        assert grid.rows[-1][0] == "adaptive: ended in mode FAULT (limit stroke) at 3.21 s"
        assert {len(row) for row in grid.rows} == {len(grid.head)}


def test_impossible_simulations_are_refused(rig: Rig, tables: Tables) -> None:
    with pytest.raises(HilserverError, match="simulate needs a work cycle"):
        simulate(replace(rig, cycle=None))
    with pytest.raises(HilserverError, match="a simulation needs one device with driver simulated"):
        simulate(load_rig(ROOT / "config/rigs/actuator_log.toml"))
    with pytest.raises(HilserverError, match='"invers_static" is not a strategy to compare'):
        simulate(rig, ["invers_static"])
    tables["circuit"]["components"]["line"]["ports"]["P"] = "rod"
    for name in ("pump", "relief", "main_valve"):
        tables["circuit"]["components"][name]["ports"]["P"] = "rod"
    tables["circuit"]["nodes"] = {"rod": {"pressure": "140 bar"}}
    with pytest.raises(ConfigurationError, match=r'"rod": .*has a node of this name too'):
        simulate(built(tables))
