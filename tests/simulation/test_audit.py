"""The balances of a circuit that ran in a rig, from its log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Command

from hilserver.fidelity.strategies import simulate
from hilserver.record.format import RecordError
from hilserver.rig.build import Rig, load_rig
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
    """Computed again bit for bit; what the pump gave left through the ports and the tank, to rounding."""
    assert replay_log(held).ok
    (audit,) = audit_log(held)
    assert audit.first == 0
    assert audit.ticks > TICKS
    assert audit.difference < 1e-12
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


def test_pressures_that_change_within_a_tick_are_said(rig: Rig, tmp_path: Path) -> None:
    """The demo's own bridge looks ahead: the states agree less with the log, and so do the balances."""
    log = tmp_path / "ahead.arrow"
    with LockstepRun(rig, log) as run:
        run.start()
        run.run(TICKS)
    (audit,) = audit_log(log)
    assert 1e-9 < audit.difference < 0.1
    assert "which the errors include" in audit.sentences()[0]
    assert 1e-12 < audit.balance.oil.relative_error < 0.05


def test_a_log_of_one_row_has_no_balance(rig: Rig, tmp_path: Path) -> None:
    log = tmp_path / "short.arrow"
    with LockstepRun(rig, log) as run:
        run.run(1)
    with pytest.raises(RecordError, match="no two consecutive rows"):
        audit_log(log)


@pytest.mark.slow
def test_the_simulation_of_a_rig_states_the_balances_of_its_reference(rig: Rig) -> None:
    result = simulate(rig, ["inverse_static"])
    (oil, _), (energy, _) = result.balances()
    assert (oil, energy) == ("Oil", "Energy")
    found = next(v.cycle.balance for v in result.variants if v.cycle is not None)
    assert found is not None
    assert found.oil.inflow > 1e-4
    assert found.oil.relative_error < 1e-12
    assert found.energy.relative_error < 1e-5
