"""A test sequence on a running server, over MQTT: the real rig, or a simulated one in real time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from hilserver.client import RequestFailed, Session, TelemetryRecorder
from hilserver.client.samples import Samples, circuit_units
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.protocol import commands, published
from hilserver.record.row_events import ROW_EVENTS
from hilserver.sequences.capacity import missing_capacity
from hilserver.sequences.check import FAILED, RecordedChannels, SequenceResult, Verdict
from hilserver.sequences.model import Action, Fault, InputValue, Sequence, Step
from hilserver.sequences.play import Play, check_inputs

RENEWALS = 4
"""How often the value of a hold-to-run input is renewed within its time."""
LAST_SAMPLES = 5.0
"""Seconds allowed for the last telemetry to arrive."""


async def run_live(sequence: Sequence, session: Session) -> SequenceResult:
    """Run a sequence on the server of this session, which must be in SAFE, with telemetry.

    In every case the rig is disarmed at the end and its circuit and strategies are restored; if that fails, the
    sequence has failed. Raises HilserverError if the sequence can't be run there, RequestFailed if the server is lost.
    """
    began = time.perf_counter()
    _check(sequence, session)
    assert session.state is not None
    circuit, strategies = session.circuit, _strategies(session.state)
    log = session.state.recording.file if session.state.recording else None
    recorder = TelemetryRecorder((), {})
    session.listeners.append(recorder.take)
    play = Play(sequence)
    run = _Run(session, play, recorder)
    session.on_event.append(run.hear)
    holding = asyncio.create_task(run.hold())
    try:
        await run.carry_out(sequence.actions)
    finally:
        holding.cancel()
        await asyncio.wait([holding])
        kept = await _leave_as_found(session, circuit if run.changed else None, strategies, run.selected)
        session.listeners.remove(recorder.take)
        session.on_event.remove(run.hear)
    recorded, source = run.recorded(), circuit.source if circuit is not None else {}
    play.verdicts += [Verdict("the rig is restored to its previous state", FAILED, reason) for reason in kept]
    return play.result(f"rig {session.rig}, live", recorded, source, log=log or "", took=time.perf_counter() - began)


class _Run:
    """One run: the first action relates ticks to times, which are those of the rig; ``tick`` is that of time 0.

    ``speed``: seconds of the rig per second of the clock; ``period``: of a tick, s of the rig; ``start``: time 0 on the
    clock.
    ``changed``: whether the virtual circuit may have changed; ``selected``: valves and actuators whose
    strategy may have changed, each as "valve" or "actuator" and its name;
    ``held``: the present values of hold-to-run inputs.
    """

    def __init__(self, session: Session, play: Play, recorder: TelemetryRecorder) -> None:
        assert session.state is not None
        self.session, self.play, self.recorder = session, play, recorder
        loop = session.state.loop
        self.speed = loop.speed if loop is not None else math.nan
        self.period = loop.period * loop.speed if loop is not None else math.nan
        self.tick: float | None = None
        self.changed = False
        self.selected: set[tuple[str, str]] = set()
        self.held: dict[str, float] = {}
        self.start = time.monotonic()
        self._heard: list[published.Event] = []

    def _now(self) -> float:
        return (time.monotonic() - self.start) * self.speed

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(at - self._now(), 0.0) / self.speed)

    def hear(self, event: published.Event) -> None:
        """Take an event of the server: those of reactions and playouts count, and the end of RUNNING."""
        if event.details.keys() & {*ROW_EVENTS, "ended"}:
            self._heard.append(event)

    def _note_events(self) -> None:
        while self._heard and self.tick is not None:
            event = self._heard.pop(0)
            at, about = (event.tick - self.tick) * self.period, event.details
            if at < 0.0:
                continue
            if "ended" in about:
                self.play.endings.append((at, f"{about['mode']}: {about['ended']}"))
            for kind in about.keys() & set(ROW_EVENTS):
                self.play.note_event({**about, "kind": kind, "name": about[kind]}, at)

    async def carry_out(self, todo: tuple[Action, ...]) -> None:
        """Carry out all actions at their times, and wait for the last samples."""
        for number, action in enumerate(todo):
            await self._until(action.at)
            self._note_events()
            if self.play.skips(action):
                continue
            if isinstance(action, InputValue) and self._is_past(action, todo[number + 1 :]):
                continue
            assert not isinstance(action, Fault)
            self.changed = self.changed or isinstance(
                action.command, commands.CircuitCommand
            )  # even if the answer is lost
            self.selected |= {_driven(action.command)} if isinstance(action.command, commands.SelectStrategy) else set()
            if isinstance(action.command, commands.SetInput):
                self.held[action.command.input] = action.command.value
            answer = await self.session.request(action.command)
            at = self._effect(action, answer)
            refusal = "" if answer.ok else answer.reason or "no reason given"
            if isinstance(action, Step):
                self.play.note(action, at, refusal)
            elif refusal:
                self.play.rest(action, at, refusal)
            if self.play.ended:
                return
        if self.tick is None:
            self.tick = await self._newest_tick()
            self.start = time.monotonic()
        await self._until(self.play.sequence.length)
        last = self.tick + self.play.sequence.length / self.period
        with suppress(TimeoutError):  # missing samples then fail with their expectation
            await self.session.until(lambda: self.recorder.newest("tick") >= last, LAST_SAMPLES)
        self._note_events()

    async def hold(self) -> None:
        """Renew the values of hold-to-run inputs, until cancelled: the sequence holds them."""
        inputs = self.session.description.inputs if self.session.description is not None else {}
        times = {name: info.hold_to_run for name, info in inputs.items() if info.hold_to_run is not None}
        while times:
            await asyncio.sleep(min(times.values()) / RENEWALS)
            for name in self.held.keys() & times.keys():
                with suppress(RequestFailed):
                    answer = await self.session.request(commands.SetInput(input=name, value=self.held[name]))
                    if not answer.ok:  # no longer RUNNING: the input is at rest
                        self.held.pop(name, None)

    def _is_past(self, action: InputValue, later: tuple[Action, ...]) -> bool:
        """Whether an input is no longer set, or its next value is already due."""
        if action.command.input in self.play.resting:
            return True
        return self._now() > action.until and any(
            isinstance(other, InputValue) and other.command.input == action.command.input for other in later
        )

    def _effect(self, action: Action, answer: published.Answer) -> float:
        """When a command took effect, s; the first one that did so sets the clock."""
        if answer.tick is None:  # refused before reaching the loop
            return self._now()
        if self.tick is None:
            self.tick = answer.tick - action.at / self.period
            self.start = time.monotonic() - action.at / self.speed
        return (answer.tick - self.tick) * self.period

    async def _newest_tick(self) -> float:
        try:
            await self.session.until(lambda: not math.isnan(self.recorder.newest("tick")), LAST_SAMPLES)
        except TimeoutError:
            raise RequestFailed(f"the server of rig {self.session.rig} sends no telemetry.") from None
        return self.recorder.newest("tick")

    def recorded(self) -> RecordedChannels:
        """The telemetry since time 0."""
        samples: Samples = self.recorder.samples()
        if "tick" not in samples.channels or self.tick is None:
            return RecordedChannels(np.empty(0), {})
        time = (samples["tick"] - self.tick) * self.period
        kept = time >= -0.5 * self.period
        channels = {name: values[kept] for name, values in samples.channels.items() if name != "tick"}
        known = self.session.description.channels if self.session.description is not None else {}
        units = {name: known[name].unit for name in channels if name in known} | circuit_units(channels)
        return RecordedChannels(time[kept], channels, units)


def _check(sequence: Sequence, session: Session) -> None:
    if sequence.settings.fault:
        raise HilserverError(
            f"{sequence.file}: faults can be injected in a simulation only: run it with --rig RIG.toml."
        )
    if not session.online or session.state is None:
        raise RequestFailed(session.trouble or f"the server of rig {session.rig} is {session.availability}.")
    if session.state.mode != "SAFE":
        raise HilserverError(f"rig {session.rig} is in mode {session.state.mode}: a test sequence starts in SAFE.")
    if session.description is not None:
        ranges = {name: (info.minimum, info.maximum) for name, info in session.description.inputs.items()}
        problems = check_inputs(sequence, ranges)
        problems += missing_capacity(sequence, session.description.reactions, session.description.playouts)
        if problems:
            raise ConfigurationError(problems)
    if session.state.loop is None:
        raise HilserverError(
            f"rig {session.rig} does not report its loop rate: not started yet, or its version is too old."
        )


async def _leave_as_found(
    session: Session,
    circuit: published.CircuitStatus | None,
    strategies: Mapping[tuple[str, str], str],
    selected: set[tuple[str, str]],
) -> list[str]:
    """Disarm the rig and restore what was changed; returns what could not be restored. A FAULT is kept for inspection.

    ``circuit``: to restore, None: unchanged; ``strategies``: by valve or actuator; those ``selected`` are restored.
    Operator inputs, work cycle and jog end automatically when RUNNING ends.
    """
    await session.request(commands.Disarm())  # refused in SAFE and FAULT, where it is not needed
    wanted: list[tuple[str, commands.Command]] = []
    if circuit is not None:
        wanted.append(("its circuit", commands.SwitchCircuit(circuit=dict(circuit.written or circuit.source))))
    for kind, name in sorted(selected & strategies.keys()):
        valve, actuator = (name, None) if kind == "valve" else (None, name)
        selection = commands.SelectStrategy(valve=valve, actuator=actuator, strategy=strategies[kind, name])
        wanted.append((f"the strategy {selection.strategy} of {name}", selection))
    answers = [(what, await session.request(command)) for what, command in wanted]
    return [f"{what} could not be restored: {answer.reason}" for what, answer in answers if not answer.ok]


def _strategies(state: published.ServerState) -> dict[tuple[str, str], str]:
    """The present strategies, by "valve" or "actuator" and its name."""
    found = {("valve", name): strategy for name, strategy in state.strategies.items()}
    return found | {("actuator", name): status.strategy for name, status in state.actuators.items()}


def _driven(command: commands.SelectStrategy) -> tuple[str, str]:
    """What the command is for: "valve" or "actuator", and its name."""
    return ("valve", command.valve) if command.valve is not None else ("actuator", command.actuator or "")
