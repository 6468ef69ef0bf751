"""Actuators whose position is controlled, in the service: strategies by command, state, telemetry, descriptions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from frame_bench import FRAME, rig_with_both

from hilserver.cli.status import actuator_tables
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.protocol import commands
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.service.actuator_status import actuator_statuses, parameter_columns
from hilserver.service.command_translation import loop_command
from hilserver.service.descriptions import actuator_descriptions, channel_descriptions
from hilserver.service.row_signals import signal_column
from hilserver.service.telemetry_samples import TelemetrySamples, channel_columns
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.codes import CommandKind, Saturation
from hilserver.tick.hybrid.displacement import AVAILABLE_IN_RIGS, DisplacementStrategy
from hilserver.tick.row import actuator_state


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(FRAME)


@pytest.fixture(scope="module")
def shaken(rig: Rig) -> LockstepRun:
    """The frame after the first seconds of the earthquake."""
    run = LockstepRun(rig)
    run.arm_and_start()
    run.command(CommandKind.CYCLE, 1.0)
    run.run(8 * 4096)
    assert run.mode == "RUNNING"
    return run


def test_a_strategy_is_selected_by_the_name_of_the_actuator(rig: Rig) -> None:
    for name in AVAILABLE_IN_RIGS:
        order = loop_command(rig, commands.SelectStrategy(actuator="table", strategy=name))
        assert (order.kind, order.first, order.second) == (CommandKind.STRATEGY, 0, DisplacementStrategy[name])


def test_actuators_are_numbered_behind_the_valves(tmp_path: Path) -> None:
    both = load_rig(rig_with_both(tmp_path))
    run = LockstepRun(both)
    selected = (
        commands.SelectStrategy(valve="main", strategy="inverse_lag"),
        commands.SelectStrategy(actuator="table", strategy="direct"),
    )
    for command in selected:
        order = loop_command(both, command)
        run.command(order.kind, order.first, order.second)
    run.run(3)
    assert both.layout.values(run.row, "valve.main.strategy") == Strategy.inverse_lag
    assert actuator_statuses(both, run.row)["table"].strategy == "direct"


def test_a_run_in_lockstep_selects_for_valves_and_actuators_by_name(tmp_path: Path) -> None:
    both = load_rig(rig_with_both(tmp_path))
    run = LockstepRun(both)
    run.select("inverse_static", "main")
    run.select("adaptive_lead", "table")
    run.run(3)
    assert both.layout.values(run.row, "valve.main.strategy") == Strategy.inverse_static
    assert both.layout.values(run.row, "actuator.table.strategy") == DisplacementStrategy.adaptive_lead
    for strategy, name, said in (
        ("direct", "tabel", '"tabel" is not a valve or actuator of the rig. Did you mean table?'),
        ("flow_servo", "table", '"flow_servo" is not a strategy of the actuators of the rig. Allowed: adaptive, '),
        ("predicton", "table", "Did you mean prediction?"),
        ("direct", "main", '"direct" is not a strategy of the rig.'),
    ):
        with pytest.raises(HilserverError) as refused:
            run.select(strategy, name)
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            commands.SelectStrategy(actuator="table", strategy="pi_lead"),
            'strategy: "pi_lead" is not offered by this actuator. '
            "Allowed: direct, state_feedback, adaptive, adaptive_lead, prediction, manual.",
        ),
        (
            commands.SelectStrategy(actuator="table", strategy="flow_servo"),
            'strategy: "flow_servo" is not offered by this actuator. '
            "Allowed: direct, state_feedback, adaptive, adaptive_lead, prediction, manual.",
        ),
        (
            commands.SelectStrategy(actuator="tabel", strategy="direct"),
            'actuator: the rig has no actuator "tabel". Did you mean table?',
        ),
        (
            commands.SelectStrategy(actuator="main", strategy="direct"),
            'actuator: the rig has no actuator "main", but a valve: write valve instead of actuator.',
        ),
        (
            commands.SelectStrategy(valve="table", strategy="direct"),
            'valve: the rig has no valve "table", but an actuator: write actuator instead of valve.',
        ),
        (
            commands.Jog(valve="table", command=0.1),
            'valve: the rig has no valve "table", but an actuator: write actuator instead of valve.',
        ),
    ],
)
def test_a_wrong_name_or_strategy_is_refused_with_what_is_right(
    command: commands.Command, reason: str, tmp_path: Path
) -> None:
    both = load_rig(rig_with_both(tmp_path))
    with pytest.raises(ConfigurationError) as refused:
        loop_command(both, command)
    assert str(refused.value) == reason


def test_the_state_is_that_of_the_row(rig: Rig, shaken: LockstepRun) -> None:
    row, layout = shaken.row, rig.layout
    status = actuator_statuses(rig, row)["table"]
    for key, column in {
        "position": "position",
        "estimate": "estimate",
        "command": "command",
        "reaction": "force",
    }.items():
        assert getattr(status, key) == row[layout.column(f"actuator.table.{column}")]
    assert (status.measured, status.force) == (row[layout.column("channel.x")], row[layout.column("channel.F")])
    assert status.error is not None
    assert status.estimate is not None
    assert status.measured is not None
    farthest = max(status.estimate - status.position, status.measured - status.position, key=abs)
    assert status.error == pytest.approx(farthest, abs=1e-15)
    assert (status.strategy, status.saturation) == ("prediction", ())


def test_tracked_values_are_in_the_units_of_the_rig_file(rig: Rig, shaken: LockstepRun) -> None:
    settings = rig.settings.actuators["table"]
    learned = actuator_statuses(rig, shaken.row)["table"].learned
    assert list(learned) == list(settings.uncertainty)
    assert [value.unit for value in learned.values()] == ["N/m", "N*s/m", "1/s", "Hz", "1/s"]
    spread = settings.spread()
    for (name, value), column in zip(learned.items(), parameter_columns(rig).values(), strict=True):
        deviations = shaken.row[rig.layout.column(column)]
        assert value.value - value.configured == pytest.approx(deviations * spread[name])
        assert value.maximum - value.configured == pytest.approx(4 * spread[name])
    stiffness = learned["specimen_stiffness"]
    assert (stiffness.configured, stiffness.known, stiffness.state) == (1.19e6, True, "tracked")


def test_why_nothing_is_tracked(rig: Rig) -> None:
    run = LockstepRun(rig)
    assert {value.state for value in actuator_statuses(rig, run.row)["table"].learned.values()} == {
        "held: no samples yet"
    }
    run.run(2)
    run.command(CommandKind.STRATEGY, 0.0, float(DisplacementStrategy.state_feedback))
    run.run(2)
    learned = actuator_statuses(rig, run.row)["table"].learned
    assert {value.state for value in learned.values()} == {"off: strategy state_feedback"}
    assert all(value.value == value.configured for value in learned.values())


def test_a_limit_is_told_in_words(rig: Rig, shaken: LockstepRun) -> None:
    row = shaken.row.copy()
    actuator_state(rig.plan, row, 0).saturation = Saturation.RANGE | Saturation.SLEW
    status = actuator_statuses(rig, row)["table"]
    assert status.saturation == ("command limited to its range", "command limited by its slew limit")


def test_every_channel_of_the_telemetry_is_described(rig: Rig, shaken: LockstepRun) -> None:
    """And is a signal, with its unit, for conditions of triggers and reactions."""
    described, columns = channel_descriptions(rig), channel_columns(rig)
    of_it = [name for name in columns if name.startswith("actuator.table.")]
    assert {"position", "measured", "error", "force", "specimen_stiffness"} <= {name.split(".")[2] for name in of_it}
    for name in of_it:
        assert described[name].kind == "bridge"
        assert signal_column(rig, columns, name, rig.packed) == (rig.layout.column(columns[name]), described[name].unit)
    samples = TelemetrySamples(rig).batch(np.vstack([shaken.row] * 2)[:1])
    if samples is not None:  # the tick is one of those that are published
        assert set(of_it) <= samples.channels.keys()


def test_the_description_offers_what_a_rig_can_have(rig: Rig) -> None:
    assert actuator_descriptions(rig)["table"].strategies == AVAILABLE_IN_RIGS
    assert "pi_lead" not in AVAILABLE_IN_RIGS


def test_delays_that_are_tracked_are_in_state_and_status(rig: Rig, shaken: LockstepRun) -> None:
    row = shaken.row.copy()
    b = actuator_state(rig.plan, row, 0)
    b.late_command, b.late_force = 0.00204, -1e-9
    found = actuator_statuses(rig, row)
    assert (found["table"].late_command, found["table"].late_force) == (0.00204, -1e-9)
    (table, *_) = actuator_tables(found)
    (column,) = [each for each in table.columns if each.header == "later than stated"]
    assert list(column.cells) == ["command 2.0 ms, force 0.0 ms"]
