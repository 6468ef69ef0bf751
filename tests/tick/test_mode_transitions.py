"""Every mode under every command and all combinations of conditions: each documented transition, and no other.

Modes remember nothing but the mode itself and the first cause of a fault. The compiled tick is therefore known
completely from single ticks: from each mode, with each command, in each combination of the conditions that can change
a mode. What should follow is stated here as docs/safety.md states it.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from rig_bench import CIRCUIT, DT, Bench, bench_rig

from hilserver.numerics.arrays import Floats
from hilserver.tick.codes import FIRST_LIMIT_FAULT, Action, CommandKind, FaultCode, Mode, ResultCode
from hilserver.tick.row import header, reading_state

PAGE = Path(__file__).parents[2] / "docs" / "safety.md"
COMMANDS = (
    CommandKind.NOTHING,
    CommandKind.ARM,
    CommandKind.START,
    CommandKind.STOP,
    CommandKind.DISARM,
    CommandKind.RESET,
    CommandKind.TRIP,
    CommandKind.SET_INPUT,
)
PRESSURES = dict(zip(Action, (5.0, 6.5, 7.5, 8.5, 9.5), strict=True))
"""Raw values of p_A at which its limits demand nothing, a warning, hold, ramp, trip."""
SLEW, STOP_TIME = 20.0, 0.2
"""Of the valve: 1/s, s."""
MISSING = 1.0
"""s, longer than a supply may be missing; does not count while the supply is present."""


@dataclass(frozen=True)
class Conditions:
    """All that can change a mode without a command; the defaults change nothing."""

    limit: Action = Action.NONE
    confirmed: bool = True
    sampled: bool = True
    enabled: bool = True
    supervised: bool = True
    in_time: bool = True
    devices_work: bool = True
    supplied: bool = True
    circuit_is_finite: bool = True
    bridge_is_finite: bool = True


AT_ONCE = [Conditions(limit, *others) for limit in Action for others in itertools.product((True, False), repeat=6)]
"""All conditions that act before or with the command, in all combinations."""
ONE = [given for given in AT_ONCE if sum(value is False for value in vars(given).values()) <= 1]
"""At most one of them, and a limit."""
MORE: tuple[dict[str, Any], ...] = (
    {"supplied": False},
    {"circuit_is_finite": False},
    {"bridge_is_finite": False},
    {"circuit_is_finite": False, "bridge_is_finite": False},
)
"""What acts on the mode alone, or behind it."""
EVERYTHING = [*AT_ONCE, *(replace(given, **more) for given in ONE for more in MORE)]
CIRCUIT_WITH_STATE = {
    "components": {
        **CIRCUIT["components"],
        "chamber": {"type": "volume", "ports": {"P": "c"}, "volume": "1 l"},
        "leak": {
            "type": "orifice",
            "ports": {"A": "c", "B": "t"},
            "nominal_flow": {"flow": "1 l/min", "drop": "5 bar"},
        },
    }
}
"""The bench's, with a pressure that the valve's flow does not depend on."""


class Machine(Bench):
    """A rig with a limit of each action, a key switch, an output per kind of lamp, and a valve that is confirmed."""

    def __init__(self, enable: str, unconfirmed: str) -> None:
        self.enable, self.unconfirmed = enable, Action[unconfirmed.upper()]
        lamps = ("armed", "running", "healthy", "heartbeat")
        names = ["warn", "hold", "ramp", "trip"]
        super().__init__(
            bench_rig(
                {
                    "devices": {"card": {"columns": ["A", "S", "Q", "key", "more"], "outputs": ["valve", *lamps]}},
                    "channels": {
                        "p_S": {"watch": {"supply_run_up": "0 s"}},
                        "key": {"device": "card", "source": "key", "scale": {"raw": [0, 1], "value": [0, 1]}},
                        "more": {"device": "card", "source": "more", "scale": {"raw": [0, 1], "value": [0, 1]}},
                    },
                    "enable": {"channel": "key", "action": enable},
                    "limits": {
                        name: {"channel": "p_A", "max": f"{60 + 10 * k} bar", "action": name}
                        for k, name in enumerate(names)
                    },
                    "valves": {
                        "main": {
                            "max_age": "10 ms",
                            "unconfirmed": unconfirmed,
                            "slew": f"{SLEW} 1/s",
                            "stop_time": f"{STOP_TIME} s",
                        }
                    },
                    "outputs": {lamp: {"device": "card", "output": lamp, "raw": [0, 1], "on": lamp} for lamp in lamps},
                },
                CIRCUIT_WITH_STATE,
            )
        )
        self.put(Conditions())

    def put(self, given: Conditions) -> None:
        """Let these conditions hold in the next tick."""
        self.raw.update(p_A=PRESSURES[given.limit], p_S=8.0 * given.supplied, key=float(given.enabled), more=0.0)
        reading_state(self.rig.plan, self.row, list(self.rig.settings.channels).index("p_S")).missing = MISSING
        if not given.circuit_is_finite:
            self.row[self.rig.plan.layout[0].circuit + self.packed.names.index("c.content")] = nan
        if not given.bridge_is_finite:
            self.block.end_stop_share = nan
        self.confirmed_ages["valve.main"] = 0.0 if given.confirmed else inf
        self.heartbeat_age = 0.0 if given.supervised else 1.0
        self.missed = 0 if given.in_time else 6
        self.device_error = int(not given.devices_work)
        if not given.sampled:  # never since the start
            self.raw["more"] = nan
            self.row[self.rig.layout.column("stale.more")] = inf

    def severest(self, mode: Mode, given: Conditions) -> Action:
        """What the limits demand in a mode.

        A channel without a sample is beyond its age; a confirmation has its own action; a supply must be there in
        RUNNING.
        """
        found = [given.limit]
        if not given.supplied and mode == Mode.RUNNING:
            found.append(Action.RAMP)
        if not given.sampled:
            found.append(Action.TRIP)
        if not given.confirmed:
            found.append(self.unconfirmed)
        return max(found)


def reached(machine: Machine) -> dict[Mode, Floats]:
    """A row in each mode, reached as on a rig; the valve is open in RUNNING, and not yet closed in ARMED and SAFE."""
    rows: dict[Mode, Floats] = {}

    def keep(mode: Mode) -> None:
        assert machine["mode"] == mode
        rows[mode] = machine.row.copy()

    machine.put(Conditions(sampled=False))
    machine.tick()
    keep(Mode.STARTUP)
    machine.put(Conditions())
    machine.run_to(Mode.RUNNING)
    machine.tick(CommandKind.SET_INPUT, 0.0, 1.0)
    machine.record("mode", 100)
    assert machine.block.command > 0.2
    keep(Mode.RUNNING)
    for command, mode in (
        (CommandKind.STOP, Mode.ARMED),
        (CommandKind.DISARM, Mode.SAFE),
        (CommandKind.TRIP, Mode.FAULT),
    ):
        machine.tick(command)
        keep(mode)
    machine.tick(CommandKind.RESET)
    machine.put(Conditions(confirmed=False))
    machine.tick()
    keep(Mode.SAFE_NOT_CONFIRMED)
    return rows


def carried_out(machine: Machine, mode: Mode, command: CommandKind, given: Conditions) -> tuple[ResultCode, Mode]:
    """Result of a command, and the mode after it: the column "how to leave it" of the page's table."""
    action = machine.severest(mode, given)

    def if_enabled_and_below(ending: Action, wanted: Mode) -> tuple[ResultCode, Mode]:
        if not given.enabled:
            return ResultCode.NOT_ENABLED, mode
        return (ResultCode.LIMIT_ACTIVE, mode) if action >= ending else (ResultCode.DONE, wanted)

    match command, mode:
        case CommandKind.ARM, Mode.SAFE:
            return if_enabled_and_below(Action.TRIP, Mode.ARMED)
        case CommandKind.ARM, Mode.SAFE_NOT_CONFIRMED:
            return ResultCode.NOT_CONFIRMED, mode
        case CommandKind.START, Mode.ARMED:
            result, after = if_enabled_and_below(Action.RAMP, Mode.RUNNING)
            is_missing = result == ResultCode.DONE and not given.supplied
            return (ResultCode.NO_SUPPLY, mode) if is_missing else (result, after)
        case CommandKind.STOP, Mode.RUNNING:
            return ResultCode.DONE, Mode.ARMED
        case CommandKind.DISARM, (Mode.ARMED | Mode.RUNNING):
            return ResultCode.DONE, Mode.SAFE
        case CommandKind.RESET, Mode.FAULT if action == Action.TRIP:
            return ResultCode.LIMIT_ACTIVE, mode
        case CommandKind.RESET, Mode.FAULT:
            gone = given.supervised and given.in_time and given.devices_work
            return (ResultCode.DONE, Mode.STARTUP) if gone else (ResultCode.CAUSE_PERSISTS, mode)
        case CommandKind.TRIP, _:
            return ResultCode.DONE, Mode.FAULT
        case CommandKind.SET_INPUT, Mode.RUNNING:
            return ResultCode.DONE, mode
    return ResultCode.WRONG_MODE, mode


def followed(machine: Machine, before: Mode, mode: Mode, given: Conditions) -> Mode:
    """The mode that the conditions make of it, without a command; ``before`` it was another."""
    after = followed_by_limits(machine, before, mode, given)
    if not given.circuit_is_finite:
        return Mode.FAULT
    drives = after == Mode.RUNNING and machine.severest(before, given) != Action.HOLD
    return Mode.FAULT if drives and not given.bridge_is_finite else after


def followed_by_limits(machine: Machine, before: Mode, mode: Mode, given: Conditions) -> Mode:
    """The same, but for what arises behind the modes, in circuit and bridge."""
    action = machine.severest(before, given)
    if not given.devices_work:
        return Mode.FAULT
    if mode in (Mode.ARMED, Mode.RUNNING):
        if not given.supervised or not given.in_time or action == Action.TRIP:
            return Mode.FAULT
        if not given.enabled and machine.enable == "trip":
            return Mode.FAULT
        if not given.enabled and machine.enable == "ramp":
            mode = Mode.SAFE
        elif action == Action.RAMP and mode == Mode.RUNNING:
            mode = Mode.ARMED
    if mode == Mode.STARTUP and given.confirmed and given.sampled:
        return Mode.SAFE
    if mode in (Mode.SAFE, Mode.SAFE_NOT_CONFIRMED):
        return Mode.SAFE if given.confirmed else Mode.SAFE_NOT_CONFIRMED
    return mode


def causes(machine: Machine, command: CommandKind, given: Conditions) -> set[int]:
    """The faults that these conditions may be reported as."""
    found = {
        FaultCode.OPERATOR: command != CommandKind.TRIP,
        FaultCode.DEVICE: given.devices_work,
        FaultCode.SUPERVISOR: given.supervised,
        FaultCode.MISSED: given.in_time,
        FaultCode.ENABLE: given.enabled or machine.enable != "trip",
        FaultCode.DIVERGED: given.circuit_is_finite,
        FaultCode.BRIDGE: given.bridge_is_finite,
    }
    limits = {
        "trip": given.limit != Action.TRIP,
        "more.age": given.sampled,
        "valve.main.unconfirmed": given.confirmed or machine.unconfirmed != Action.TRIP,
    }
    names = machine.rig.layout.limits
    numbers = {FIRST_LIMIT_FAULT + number for number, name in enumerate(names) if not limits.get(name, True)}
    return {int(fault) for fault, fine in found.items() if not fine} | numbers


def check_tick(machine: Machine, mode: Mode, command: CommandKind, given: Conditions) -> Mode:
    """One tick from this mode: the mode after it, the answer to the command, the fault, and the outputs."""
    machine.put(given)
    before, fault = float(machine.block.command), machine["fault"]
    result = machine.tick(command, 0.0, 1.0)
    now, answer = Mode(int(machine["mode"])), carried_out(machine, mode, command, given)
    assert now == followed(machine, mode, answer[1], given)
    assert command == CommandKind.NOTHING or result == answer[0]
    if answer[1] == mode == Mode.FAULT:
        assert machine["fault"] == fault, "the first cause is kept"
    elif now == Mode.FAULT:
        assert machine["fault"] in causes(machine, command, given)
    else:
        assert machine["fault"] == FaultCode.NONE
    assert header(machine.row).command == machine.sequence or command == CommandKind.NOTHING
    check_outputs(machine, now, before, given)
    return now


def check_outputs(machine: Machine, mode: Mode, before: float, given: Conditions) -> None:
    """What valve and lamps do in the new mode, whatever led to it; the valve's command was ``before``."""
    command = float(machine.block.command)
    if mode != Mode.RUNNING:
        assert 0.0 <= command <= before
        assert command == 0.0 or before - command >= 0.999 * DT / STOP_TIME
    assert abs(command - before) <= 1.001 * SLEW * DT
    assert machine["output.armed"] == (mode in (Mode.ARMED, Mode.RUNNING))
    assert machine["output.running"] == (mode == Mode.RUNNING)
    working = mode in (Mode.SAFE, Mode.ARMED, Mode.RUNNING)
    well = working and given.supervised and given.in_time and given.devices_work
    assert machine["output.healthy"] == well
    assert well or machine["output.heartbeat"] == 0.0


def documented() -> set[tuple[str, str]]:
    """The transitions in the table of modes, and those that the text below it adds."""
    found = set()
    for mode, leaving in re.findall(r"^\| ([A-Z][A-Z ]+) \|[^|]*\|(.*)\|$", PAGE.read_text(), re.M):
        found |= {(mode.replace(" ", "_"), target) for target in re.findall(r"→ ([A-Z]{4,})", leaving)}
    assert {mode for mode, _ in found} == {mode.name for mode in Mode}
    found |= {(mode.name, "FAULT") for mode in Mode if mode != Mode.FAULT}
    return found | {(mode, "SAFE_NOT_CONFIRMED") for mode in ("SAFE", "ARMED", "RUNNING")}


RIGS = [("refuse", "warn"), ("ramp", "warn"), ("ramp", "ramp"), ("trip", "trip")]
"""Actions of the local enable and of a missing confirmation."""


@pytest.mark.slow
def test_mode_transitions_are_exactly_those_of_the_documentation() -> None:
    seen: set[tuple[str, str]] = set()
    for actions in RIGS:
        machine = Machine(*actions)
        rows = reached(machine)
        for mode, command, given in itertools.product(Mode, COMMANDS, EVERYTHING):
            machine.row[:] = rows[mode]
            try:
                after = check_tick(machine, mode, command, given)
            except AssertionError as error:
                error.add_note(f"{actions}: {mode.name}, {command.name}, {given}: {machine.mode}")
                raise
            if after != mode:
                seen.add((mode.name, after.name))
    assert seen == documented()
