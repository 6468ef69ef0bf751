"""The balances of a circuit that ran in a rig, from its log."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Command

from hilserver.fidelity.strategies import simulate
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.audit import audit_log
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import replay_log

DEMO = Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"
TICKS = 1500


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(DEMO)


@pytest.fixture(scope="module")
def held(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a run whose bridge does not look ahead: pressures are held in each tick."""
    log = tmp_path_factory.mktemp("audit") / "held.arrow"
    with LockstepRun(rig, log) as run:
        for valve in rig.settings.valves:
            run.select("inverse_static", valve)
        run.start()
        run.run(TICKS)
    return log


def test_a_logged_circuit_keeps_its_oil(held: Path) -> None:
    """Replayed bit for bit; what the pump gave left through the ports and the tank, to rounding."""
    assert replay_log(held).ok
    (audit,) = audit_log(held)
    assert audit.first == 0
    assert audit.ticks > TICKS
    assert audit.difference == 0.0
    assert audit.balance.oil.inflow > 1e-5
    assert audit.balance.oil.relative_error < 1e-12
    assert audit.balance.energy.inflow > 100.0
    assert audit.balance.energy.relative_error < 1e-6
    stated = audit.sentences()
    assert stated[0].startswith("From row 0, ")
    assert [line.partition(":")[0] for line in stated[1:]] == ["Oil of the circuit", "Energy of the circuit"]


def test_the_command_states_them(held: Path, hilserver: Command, tmp_path: Path) -> None:
    done = hilserver("replay", str(held), "--balances", "--report", str(tmp_path))
    assert done.code == 0, done.err
    assert "Oil of the circuit: in " in done.out
    assert "Energy of the circuit: in " in (tmp_path / f"{held.stem}-replay.md").read_text()
    figures = json.loads(hilserver("replay", str(held), "--balances", "--json").out)
    assert figures["balances"][0]["oil"]["relative_error"] < 1e-12
    assert "balances" not in json.loads(hilserver("replay", str(held), "--json").out)


@pytest.mark.parametrize("integrator", ["rk4", "rosenbrock"])
def test_a_look_ahead_loses_no_oil(rig: Rig, tmp_path: Path, integrator: str) -> None:
    """The demo's own bridge looks ahead, so pressures change within the tick; live switch and missed ticks included."""
    log = tmp_path / "ahead.arrow"
    solver = {**rig.circuit.source.get("solver", {}), "integrator": integrator}
    other = rig.read_circuit({**rig.circuit.source, "solver": solver})
    with LockstepRun(rig, log) as run:
        run.start()
        run.run(500)
        run.miss(3)
        run.run(500)
        run.swap(other)
        run.run(TICKS - 1000)
    audits = audit_log(log)
    assert len(audits) == 2
    assert [audit.difference for audit in audits] == [0.0] * len(audits)
    for audit in audits:
        assert audit.balance.oil.relative_error < 1e-12
        assert audit.balance.energy.relative_error < 1e-5


def test_accounts_change_no_result_and_agree_with_the_bridge(rig: Rig) -> None:
    """The same rows, bit for bit; what the account of a port has taken is what the bridge has to pass."""
    rows = []
    for each in (rig, assemble(rig.sources, rig.file, rig.library, accounts=True)):
        run = LockstepRun(each)
        run.start()
        rows.append(run.run(TICKS))
    fixed = len(rig.layout.names)
    assert np.array_equal(rows[0][:, :fixed], rows[1][:, :fixed], equal_nan=True)
    account = fixed + each.packed.names.index("rig.A.passed_volume")
    taken = rows[1][:, account] - rows[1][0, account]
    passed = rig.layout.values(rows[1], "valve.main.volume_virtual")
    assert np.abs(taken).max() > 1e-5
    assert taken == pytest.approx(passed - passed[0], rel=0.0, abs=1e-16)


def test_a_circuit_that_diverges_begins_anew(rig: Rig, tmp_path: Path) -> None:
    """The reset of its values is no flow: the balance ends before it, and another one begins with the reset values.

    The servo valve's spool of 100 kHz by explicit Euler at 1 ms: each step multiplies its speed by about -1000.
    """
    log = tmp_path / "diverged.arrow"
    components = copy.deepcopy(dict(rig.circuit.source["components"]))
    components["main_valve"] |= {"type": "servo_valve", "f90": "100 kHz"}
    del components["main_valve"]["f45"]
    solver = {"integrator": "euler", "substeps": 1}
    with LockstepRun(rig, log) as run:
        run.start()
        run.run(400)
        run.swap(rig.read_circuit({**rig.circuit.source, "components": components, "solver": solver}))
        run.run(400)
        assert run.mode == "FAULT"
    before, *after = audit_log(log)
    assert before.balance.oil.relative_error < 1e-12
    assert len(after) > 1
    assert after[-1].ticks > 100
    assert after[-1].balance.oil.relative_error < 1e-12


def test_a_log_of_one_row_has_a_balance(rig: Rig, tmp_path: Path) -> None:
    """Its only tick is computed again from the initial values."""
    log = tmp_path / "short.arrow"
    with LockstepRun(rig, log) as run:
        run.run(1)
    (audit,) = audit_log(log)
    assert audit.ticks == 1


@pytest.mark.slow
def test_the_simulation_of_a_rig_states_the_balances_of_all_that_ran(rig: Rig) -> None:
    result = simulate(rig, ["inverse_static", "feedback"])
    names = [name for name, _ in result.balances()]
    assert names[::2] == [
        "Oil of the reference simulation",
        "Oil of the virtual circuit with strategy feedback",
        "Oil of the simulated machine with strategy feedback",
    ]
    found = next(v.cycle for v in result.variants if v.name == "feedback")
    assert found is not None
    for balance in found.balances.values():
        assert balance.oil.inflow > 1e-4
        assert balance.oil.relative_error < 1e-12
        assert balance.energy.relative_error < 1e-5
