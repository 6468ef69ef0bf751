"""Excitation: the manual commands by which valves are identified, in steps, bounded in size, travel and time.

The valves of a cylinder or motor move it together, port A against port B, once the piston is in the middle of its
stroke; a motor is not driven faster than the limits and the range of its speed sensor allow. A round has a staircase
through the null region, from null to both sides and back (overlap, leakage, null, hysteresis), a staircase to the
largest command (flow gain), and steps of random size and length (delay and dynamics of the spool). The first round uses
only a part of the largest command, the following ones more, but not as much as would bring a pressure near its limit,
as far as the earlier rounds show. As soon as a pressure approaches its limit, commands are reduced and no longer
increased, and a moving load is slowed down in steps. No step is made that could leave the middle range of the stroke.
After the rounds, what is least certain can be excited further (:mod:`hilserver.identify.design`). At the end, the
piston can be moved to both ends of its stroke, slowly near them, and held there: this shows the zero errors of the
pressure sensors (:mod:`hilserver.identify.zeros`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import Protocol

import numpy as np

from hilserver.errors import HilserverError
from hilserver.identify.design import LEAST, RoundPart, still_needed
from hilserver.identify.recorded import Recording
from hilserver.rig.build import assemble
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.motor_settings import MotorSettings
from hilserver.rig.rig import Rig

MIN_DROP = 1e5
"""Pa: minimum pressure for which the speed of the piston is calculated."""
MARGIN = 0.15
"""Fraction of the stroke, or of the range between the position's limits, that is kept free at either end."""
NEAR_LIMIT, KEPT_FREE = 0.4, 0.08
"""Fraction of the range between supply pressure and a pressure's limit, above which commands are reduced; but at least
this fraction of the limit is kept free."""
SPEED_KEPT, ONE_WAY = 0.8, 0.05
"""Fraction of the largest speed of a motor up to which it is driven; share of that in the other direction, below which
it counts as none."""
REDUCTION, CAREFUL = 0.7, 0.9
"""Factor by which commands are reduced; share of this pressure from which a moving load is slowed down in steps."""
ROUNDS = (0.3, 0.55, 0.8, 1.0)
"""Shares of the largest command, round by round."""
PART_ENDS = {RoundPart.NULL: 0.4, RoundPart.STAIRS: 0.6, RoundPart.STEPS: 1.0}
"""When the parts of a round end at the latest, as shares of it. Mostly, the staircases end earlier."""
SHORTEST, LONGEST = 0.02, 0.15
"""Duration of a random step, s."""
NULL_REGION, NULL_TIME = 0.12, 0.08
NULL_STAIRS = (0.0, *np.linspace(-0.1, -1.0, 7), *np.linspace(-1.0, 1.0, 16), *np.linspace(1.0, 0.1, 7), 0.0)
"""Levels of the staircase through the null region, as shares of the largest one, and the duration of each, s."""
STAIRS, STAIR_TIME = tuple(sign * share for share in (0.25, 0.5, 0.75, 1.0) for sign in (1.0, -1.0)), 0.08
"""The same of the staircase to the largest command."""
SLOWING_DOWN, SLOW_STEP = (0.6, 0.35, 0.2, 0.1), 0.04
"""Shares of the last command with which the piston is slowed down, and the duration of each, s."""
SMALLEST = 0.05
"""Smallest limit of the commands with which an excitation is worthwhile."""
NEAR_MIDDLE = 0.2
"""Fraction of half the range within which the piston is centred."""
FIRST_COMMAND, COMMAND_GROWTH = 0.2, 1.1
"""Fraction of the largest command with which the piston is centred at first; factor where it hardly moves."""
STALL_TIME = 10.0
"""s without progress after which centring fails."""
GATHERING, BRAKING = 1.2, 1.5
"""Growth of the command towards an end, from step to step; share of the largest one by the share of the stroke that is
left."""
NEAR_END, LANDING = 0.03, 0.8
"""Fraction of the stroke before its end within which the piston is taken to be there; s for which it is then moved on
with a small command."""
END_OPENINGS, END_TIME = (0.4, 0.55, 0.75, 1.0), 0.4
"""Shares of the largest command that are held at the ends of the stroke, each for this number of s."""
AT_ENDS = 0.4
"""The largest command there, where nothing moves, if pressures while moving allow less."""
RENEWED = 0.5
"""Share of the time for which a jog holds after which it is renewed."""


@dataclass(frozen=True)
class Extent:
    """How long, how strongly and how far valves are excited.

    ``seconds``: duration in all; ``largest``: upper limit of all commands. ``longest``: duration in all up to which the
    excitation goes on with what is least certain. ``end_stops``: then also to the ends of the stroke, where the limits
    allow it.
    """

    seconds: float
    largest: float
    longest: float = 0.0
    end_stops: bool = True


class RunEnded(HilserverError):
    """The rig has left RUNNING while its valves were moved, mostly because of a limit.

    ``smaller``: largest command with which it is likely not to; 0: not known.
    """

    def __init__(self, message: str, smaller: float = 0.0) -> None:
        super().__init__(message)
        self.smaller = smaller


class Bench(Protocol):
    """A rig in mode RUNNING whose valves take manual commands."""

    reaction: float
    """Maximum time until a measured value is available, s."""

    def hold(self, commands: Mapping[str, float], seconds: float) -> None:
        """Hold these commands, by valve. Raises RunEnded if the rig no longer runs."""

    def now(self, channel: str) -> float:
        """The latest value of a channel, SI."""

    def highest(self, channel: str) -> float:
        """The highest value of a channel since the last call, SI."""

    def recording(self) -> Recording:
        """Commands and measured values so far."""


@dataclass(frozen=True)
class Group:
    """Valves that are moved together: +1 where a positive command extends the cylinder, turns the motor forwards, or
    without either; otherwise -1."""

    valves: Mapping[str, float]
    actuator: CylinderSettings | MotorSettings | None

    @property
    def cylinder(self) -> CylinderSettings | None:
        """The actuator, if it has ends."""
        return self.actuator if isinstance(self.actuator, CylinderSettings) else None

    @property
    def motor(self) -> MotorSettings | None:
        """The actuator, if it has none."""
        return self.actuator if isinstance(self.actuator, MotorSettings) else None


def groups_of(rig: Rig, valves: list[str]) -> list[Group]:
    """The selected valves, with those that must move with them."""
    found: list[Group] = []
    for name in valves:
        if any(name in group.valves for group in found):
            continue
        port = rig.settings.valves[name].port
        actuator = next((s for s in rig.settings.hydraulic_actuators().values() if port in (s.port_A, s.port_B)), None)
        if actuator is None:
            found.append(Group({name: 1.0}, None))
            continue
        sides = ((actuator.port_A, 1.0), (actuator.port_B, -1.0))
        others = rig.settings.valves.items()
        found.append(Group({n: sign for n, v in others for port, sign in sides if v.port == port}, actuator))
    return found


def limits_before_the_ends(rig: Rig, cylinder: CylinderSettings) -> list[str]:
    """Names of the limits that act before the piston reaches the ends of its stroke."""
    return [
        name
        for name, limit in rig.settings.limits.items()
        if limit.channel == cylinder.position
        and limit.action != "warn"
        and (
            (limit.min is not None and limit.min.value >= 0.0)
            or (limit.max is not None and limit.max.value <= cylinder.stroke)
        )
    ]


class Excitation:
    """The commands of a group on a bench. ``largest``: upper limit of all commands."""

    def __init__(self, rig: Rig, bench: Bench, group: Group, largest: float) -> None:
        self.rig, self.bench, self.group, self.largest = rig, bench, group, largest
        self.random = np.random.default_rng(1)
        self.reach, self.bound, self.spent, self.last_round = 0.0, inf, 0.0, 0.0
        self.level = 0.0
        """The last command."""
        self.most = 0.0
        """The largest one so far."""
        self.highest: list[tuple[float, dict[str, float]]] = []
        """The reach of each round, with the highest pressures in it, Pa."""
        if group.cylinder is not None:
            if group.cylinder.position is None:
                raise HilserverError(
                    f"{rig.file}: the position of the cylinder at {', '.join(group.valves)} is not measured "
                    "(cylinders.….position), so its end stops can't be avoided."
                )
            self.low, self.high = self._window(group.cylinder)
            self.largest = min(largest, 0.25 * (self.high - self.low) / (self._speed() * (LONGEST + bench.reaction)))
        if group.motor is not None:
            self.largest = min(largest, self._fastest(group.motor) / self._speed())
        self.creep = FIRST_COMMAND * self.largest

    def run(self, seconds: float) -> None:
        """Run the rounds for this number of seconds in total, once the piston is in the middle; ends at rest."""
        for number, share in enumerate(ROUNDS):
            self.reach = min(share * self.largest, self.bound, self._foreseen())
            self.highest.append((self.reach, {}))
            if number == 0:
                self._centre()
                self.spent = 0.0
            begin = self.spent
            self._round(seconds * (number + 1) / len(ROUNDS))
        self._hold(0.0, LONGEST)
        self.last_round = self.spent - begin

    def repeat(self, parts: Mapping[RoundPart, float]) -> None:
        """Repeat parts of the last round, each for this number of seconds; ends at rest."""
        for part, seconds in parts.items():
            until = self.spent + seconds
            while self.spent < until:
                self._part(part, until)
        self._hold(0.0, LONGEST)

    def to_the_ends(self) -> None:
        """Hold the piston at either end of its stroke with the valves open, then bring it back to the middle.

        Ports then have the pressures of the lines (:mod:`hilserver.identify.zeros`), however far the valves may open
        while the piston moves. An end that is not reached is left out.
        """
        assert self.group.cylinder is not None
        self.reach, stroke = min(self.largest, self.bound), self.group.cylinder.stroke
        for end, sign in ((0.0, -1.0), (stroke, 1.0)):
            if self._moves_to(end, NEAR_END * stroke):
                self._press(sign * self.creep, LANDING)
                for share in END_OPENINGS:
                    self._press(sign * share * min(self.largest, max(self.reach, AT_ENDS)), END_TIME)
        self._moves_to(0.5 * stroke, NEAR_MIDDLE * stroke)
        self._hold(0.0, LONGEST)

    def _moves_to(self, target: float, near: float) -> bool:
        """Move the piston, m: slowly at the end. Returns whether it comes that near, or stops before."""
        assert self.group.cylinder is not None
        begin, before, level = self.spent, self._x(), self.creep
        while abs(left := target - self._x()) > near:
            if self.spent - begin > 0.5 * STALL_TIME:
                if abs(self._x() - before) < near:
                    return False
                begin, before = self.spent, self._x()
            braking = max(BRAKING * abs(left) / self.group.cylinder.stroke * self.reach, self.creep)
            level = min(GATHERING * level, braking, self.reach)
            seconds = float(np.clip(0.25 * abs(left) / (level * self._speed()), SHORTEST, LONGEST))
            self._hold(float(np.copysign(level, left)), seconds)
        return True

    def _round(self, until: float) -> None:
        begin, length = self.spent, until - self.spent
        for part in RoundPart:
            self._part(part, begin + PART_ENDS[part] * length)

    def _part(self, part: RoundPart, until: float) -> None:
        if part is RoundPart.STEPS:
            while self.spent < until:
                self._random_step()
            return
        if self.spent >= until:
            return
        self._centre()
        if part is RoundPart.NULL:
            left = max(until - self.spent, NULL_TIME)
            stride = max(ceil(len(NULL_STAIRS) * NULL_TIME / left), 1)
            self._stairs(NULL_STAIRS[::stride], NULL_TIME, min(NULL_REGION, self.reach), until)
        else:
            self._stairs(STAIRS, STAIR_TIME, self.reach, until)

    def _stairs(self, shares: Iterable[float], seconds: float, largest: float, until: float) -> None:
        """Levels as shares of the largest one, or of the reach as soon as this is less."""
        for share in shares:
            if self.spent >= until:
                return
            level = share * min(largest, self.reach)
            if self._leaves(level, seconds):
                self._centre()
            self._hold(level, seconds)

    def _random_step(self) -> None:
        """Size uniform in 0.2 … 1 of the reach, duration log-uniform; more often towards the middle."""
        level = self.reach * self.random.uniform(0.2, 1.0)
        seconds = float(np.exp(self.random.uniform(np.log(SHORTEST), np.log(LONGEST))))
        back = 0.0 if self.group.cylinder is None else 2.0 * (self._x() - self.low) / (self.high - self.low) - 1.0
        if self.random.uniform(-1.0, 1.0) < back:
            level = -level
        if self._leaves(level, seconds):
            level = -level
        self._hold(level, seconds)

    def _hold(self, level: float, seconds: float) -> None:
        self._command(level, seconds)
        self.level = level
        if self._near_limit():
            self.bound = self.reach = REDUCTION * self.reach
            self._slow_down()

    def _press(self, level: float, seconds: float) -> None:
        """Hold the piston at an end, where the pressure of the supply is no reason to reduce the commands."""
        self._command(level, seconds)
        self._near_limit()

    def _command(self, level: float, seconds: float) -> None:
        self.most = max(self.most, abs(level))
        self.bench.hold({name: sign * level for name, sign in self.group.valves.items()}, seconds)
        self.spent += seconds

    def _slow_down(self) -> None:
        """Close the valves in steps: the sudden stop of a load raises the pressure most."""
        if self.level == 0.0 or not self._is_careful():
            return
        for share in SLOWING_DOWN:
            self._command(share * self.level, SLOW_STEP)
        self.level = 0.0

    # --- avoiding the end stops --------------------------------------------------------------------------------------

    def _window(self, cylinder: CylinderSettings) -> tuple[float, float]:
        low, high = 0.0, cylinder.stroke
        for limit in self.rig.settings.limits.values():
            if limit.channel == cylinder.position:
                low = max(low, limit.min.value) if limit.min is not None else low
                high = min(high, limit.max.value) if limit.max is not None else high
        margin = MARGIN * (high - low)
        return low + margin, high - margin

    def _fastest(self, motor: MotorSettings) -> float:
        """1/s that a motor may turn in both directions: by the limits and the range of its speed sensor."""
        if motor.speed is None:
            return inf
        low, high = self.rig.settings.channels[motor.speed].value_limits()
        for limit in self.rig.settings.limits.values():
            if limit.channel == motor.speed:
                low = max(low, limit.min.value) if limit.min is not None else low
                high = min(high, limit.max.value) if limit.max is not None else high
        slowest, fastest = sorted((max(-low, 0.0), max(high, 0.0)))
        if slowest < ONE_WAY * fastest < inf:
            raise HilserverError(
                f"{self.rig.file}: the motor at {', '.join(self.group.valves)} turns in one direction only, by the "
                f"limits or the range of {motor.speed}; the sequence of commands turns it in both."
            )
        return SPEED_KEPT * slowest

    def _speed(self) -> float:
        """m/s of the piston, or 1/s of the motor, at full command, at most."""
        assert self.group.actuator is not None
        speeds = []
        for name in self.group.valves:
            v = self.rig.settings.valves[name]
            drop = max(self.bench.now(v.supply), MIN_DROP)
            speeds.append(v.nominal_flow.coefficient() * sqrt(drop) / min(self.group.actuator.areas()))
        return max(speeds)

    def _x(self) -> float:
        assert self.group.cylinder is not None
        assert self.group.cylinder.position is not None
        return self.bench.now(self.group.cylinder.position)

    def _leaves(self, level: float, seconds: float) -> bool:
        """Whether the piston could leave the range, with its possible travel since the last measured position."""
        if self.group.cylinder is None:
            return False
        travel = self._speed() * (abs(level) * seconds + self.reach * self.bench.reaction)
        return self._x() + travel > self.high if level > 0.0 else self._x() - travel < self.low

    def _centre(self) -> None:
        """Bring the piston near the middle, by half the distance each time; with larger commands if it hardly moves."""
        if self.group.cylinder is None:
            return
        middle, half = 0.5 * (self.low + self.high), 0.5 * (self.high - self.low)
        self._slow_down()
        level, begin = min(self.creep, self.reach), self.spent
        while abs(off := middle - self._x()) > NEAR_MIDDLE * half:
            if self.spent - begin > STALL_TIME:
                raise HilserverError(
                    f"{self.rig.file}: the piston does not reach the middle of its stroke with a command of "
                    f"{level:.2g}. Is it blocked, is the load too heavy for the supply, is the polarity of the valve "
                    "wrong, is the supply off, or is the overlap larger than this command?"
                )
            seconds = float(np.clip(0.5 * abs(off) / (level * self._speed()), SHORTEST, LONGEST))
            for share in (0.25, 0.5, 0.75, 1.0):
                self._hold(share * level if off > 0.0 else -share * level, seconds if share == 1.0 else SHORTEST)
            self._hold(0.0, self.bench.reaction)
            if abs(middle - self._x()) > abs(off) - 0.1 * level * self._speed() * seconds:
                level = min(COMMAND_GROWTH * level, self.largest)
            else:
                begin = self.spent  # slow, but it moves
            self.creep = level

    # --- keeping within the limits of pressure -----------------------------------------------------------------------

    def _near_limit(self) -> bool:
        """Whether a pressure has come near its limit since the last call."""
        near, highest = False, self.highest[-1][1]
        for channel, allowed in self._allowed().items():
            now = self.bench.highest(channel)
            highest[channel] = max(highest.get(channel, now), now)
            near |= now > allowed
        return near

    def _allowed(self) -> dict[str, float]:
        """The pressure of each channel above which it is near its limit, Pa."""
        supply = max(self.bench.now(self.rig.settings.valves[name].supply) for name in self.group.valves)
        return {
            limit.channel: limit.max.value
            - max((1.0 - NEAR_LIMIT) * (limit.max.value - supply), KEPT_FREE * limit.max.value)
            for limit in self.rig.settings.limits.values()
            if limit.max is not None and limit.max.unit == "Pa" and limit.max.value > 0.0
        }

    def _is_careful(self) -> bool:
        """Whether a pressure has come so high in this round that a load must not be stopped suddenly."""
        highest = self.highest[-1][1]
        return any(highest.get(channel, 0.0) > CAREFUL * allowed for channel, allowed in self._allowed().items())

    def _foreseen(self) -> float:
        """The reach at which a pressure would come near its limit, extrapolated from the first round and a later one.

        The lowest of all: random steps do not show the highest pressure in each round.
        """
        found, (first, before) = inf, self.highest[0] if self.highest else (0.0, {})
        for reach, after in self.highest[1:]:
            for channel, allowed in self._allowed().items():
                now = after.get(channel, 0.0)
                rise = now - before.get(channel, 0.0)
                if rise > 0.0 and reach > first:
                    found = min(found, reach + max(allowed - now, 0.0) * (reach - first) / rise)
        return found


def by_hand(rig: Rig, largest: float) -> Rig:
    """The rig with all valves under manual commands up to ``largest``."""
    table = dict(rig.sources["rig"])
    valves = {name: dict(valve) for name, valve in table["valves"].items()}
    for valve in valves.values():
        valve["bridge"] = {**valve.get("bridge", {}), "strategy": "manual", "jog_limit": largest}
    return assemble({**rig.sources, "rig": {**table, "valves": valves}}, rig.file, rig.library)


def jog_renewal(rig: Rig) -> float:
    """Time after which the jogs of all valves are renewed, s: before the first of them expires."""
    return RENEWED * min(valve.bridge.jog_time for valve in rig.settings.valves.values())


def excite(rig: Rig, bench: Bench, valves: list[str], extent: Extent) -> str:
    """Move the groups of these valves on a bench, one after the other.

    Returns what has ended the excitation after the last group was moved for its time: what was recorded until then
    suffices. Otherwise empty. Raises RunEnded if the rig leaves RUNNING before.
    """
    groups = groups_of(rig, valves)
    for group in groups:
        excitation = Excitation(rig, bench, group, extent.largest)
        is_enough = False
        try:
            excitation.run(extent.seconds / len(groups))
            is_enough = group is groups[-1]
            if (most := extent.longest / len(groups) - excitation.spent) >= LEAST:
                last_round = bench.recording().last(excitation.last_round)
                excitation.repeat(still_needed(rig, last_round, [n for n in valves if n in group.valves], most))
            if extent.end_stops and group.cylinder is not None and not limits_before_the_ends(rig, group.cylinder):
                excitation.to_the_ends()
        except RunEnded as error:
            if is_enough:
                return f"{error} What was recorded until then is evaluated."
            smaller, so_far = f"{REDUCTION * excitation.most:.1g}", f"so far they were up to {excitation.most:.2g}"
            more = f"Use smaller commands: --largest {smaller} ({so_far})."
            if float(smaller) < SMALLEST:
                more = (
                    f"Smaller commands will not help ({so_far}): compare the limit with the load and the initial state."
                )
            raise RunEnded(f"{error} {more}", float(smaller)) from error
    return ""
