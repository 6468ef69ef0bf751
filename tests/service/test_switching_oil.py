"""A live switch keeps the oil: what an accumulator holds is carried over to the last bit, or the switch is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hilserver.circuit.engine import VOID_CAPACITANCE
from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats
from hilserver.protocol.commands import CircuitCommand, Switch, SwitchCircuit
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.service.switching import PreparedSwitch, prepare_switch
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.program import work_array
from hilserver.toml import read_toml
from hilserver.units import BAR

CONFIG = Path(__file__).parents[2] / "config"
ACCUMULATOR = """
[components.accumulator]
type = "accumulator"
ports = { P = "supply" }
gas_volume = "2 l"
precharge = "40 bar"
nominal_flow = { flow = "100 l/min", drop = "3 bar" }
start_pressure = "140 bar"
"""
FULL = 0.9
"""Share of the gas volume that oil can fill."""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """The demo rig with an accumulator at the pump of its circuit."""
    folder = tmp_path_factory.mktemp("rig")
    shutil.copytree(CONFIG, folder / "config")
    with (folder / "config" / "circuits" / "lift.toml").open("a") as circuit:
        circuit.write(ACCUMULATOR)
    return load_rig(folder / "config" / "rigs" / "demo.toml")


@pytest.fixture(scope="module")
def run(rig: Rig) -> LockstepRun:
    with LockstepRun(rig) as run:
        run.run(100)
        return run


def content(run: LockstepRun, packed_names: tuple[str, ...], row: Floats) -> float:
    return float(row[len(run.rig.layout.names) + packed_names.index("accumulator.V")])


def prepared(run: LockstepRun, command: CircuitCommand) -> PreparedSwitch:
    rig = run.rig
    return prepare_switch(rig, compiled_program(rig.library), rig.circuit, run.packed, run.row, command)


def swap(rig: Rig, row: Floats, new: PreparedSwitch) -> None:
    packed = new.packed
    work = work_array(packed, rig.plan)
    compiled_program(rig.library).swap(rig.plan.block, row, packed.index, packed.value, new.carried, work)


def test_an_accumulator_too_small_for_its_oil_is_refused(run: LockstepRun) -> None:
    """Of 1.3 l in an accumulator of 2 l, 0.4 l vanished when it was replaced by one of 1 l."""
    inside = content(run, run.packed.names, run.row)
    assert 1.2e-3 < inside < 1.5e-3
    source = dict(read_toml(run.rig.file.parent.parent / "circuits" / "lift.toml", "lift.toml"))
    source["components"]["accumulator"]["gas_volume"] = "1 l"
    same_type = {
        key: value for key, value in source["components"]["accumulator"].items() if key not in ("type", "ports")
    }
    commands: list[CircuitCommand] = [
        Switch(component="accumulator", set={"gas_volume": "1 l"}),
        Switch(component="accumulator", type="accumulator", values=same_type),
        SwitchCircuit(circuit=source),
    ]
    expected = rf"components\.accumulator: it contains {1e3 * inside:.4g} l of oil, but the new one holds only 0\.9 l"
    for command in commands:
        with pytest.raises(ConfigurationError, match=expected):
            prepared(run, command)


def test_the_oil_is_carried_over_to_the_last_bit(rig: Rig) -> None:
    """In accumulators of any size that holds it; smaller ones are refused."""
    sizes = [0.9, 1.2, 1.4, 1.5, 1.6, 3.0, 20.0]
    refused = []
    for litres in sizes:
        with LockstepRun(rig) as run:
            run.run(100)
            inside = content(run, run.packed.names, run.row)
            try:
                new = prepared(run, Switch(component="accumulator", set={"gas_volume": f"{litres} l"}))
            except ConfigurationError:
                refused.append(litres)
                assert FULL * 1e-3 * litres < inside
                continue
            row = run.row.copy()
            swap(rig, row, new)
            assert content(run, new.packed.names, row) == inside
    assert 0 < len(refused) < len(sizes)


@pytest.mark.parametrize("vapour_pressure", [-0.99, -0.3])
@pytest.mark.parametrize("void", [5e-6, 0.0])
def test_a_void_is_carried_over_to_oil_of_another_vapour_pressure(
    run: LockstepRun, vapour_pressure: float, void: float
) -> None:
    """Of 5 ml, 0.7 ml were lost with a vapour pressure 0.7 bar higher; and without a void there is none afterwards."""
    rig = run.rig
    source = dict(read_toml(rig.file.parent.parent / "circuits" / "lift.toml", "lift.toml"))
    source["fluid"] = {**source.get("fluid", {}), "vapour_pressure": f"{vapour_pressure} bar"}
    new = prepared(run, SwitchCircuit(circuit=source))
    row, names, first = run.row.copy(), run.packed.names, len(rig.layout.names)
    state, pressure = first + names.index("supply.content"), first + names.index("supply.p")
    row[state] = -1.0 * BAR - void / VOID_CAPACITANCE if void else -0.995 * BAR
    row[pressure] = max(row[state], -1.0 * BAR)
    swap(rig, row, new)
    found = VOID_CAPACITANCE * (vapour_pressure * BAR - row[first + new.packed.names.index("supply.content")])
    assert max(found, 0.0) == pytest.approx(void, rel=1e-12, abs=1e-20)
