"""Settings of a rig that are allowed, but probably unintended."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from math import inf

from hilserver.circuit.model import RIG, Circuit
from hilserver.driver import Pace
from hilserver.errors import did_you_mean, shown
from hilserver.rig.actuators import delays_of
from hilserver.rig.plausibility import implausible
from hilserver.rig.rig import Rig
from hilserver.tick.codes import Watched
from hilserver.units import CIRCUIT

ROUNDED = 0.2
"""Remainder of a delay, in ticks, of which an actuator's bridge takes no account without a note."""
MIN_PERIODS = 3.0
"""Periods of a slow device that the age limit of its samples must allow: reading, answer, another clock."""


def notes(rig: Rig) -> Iterator[str]:
    """Settings that are probably unintended, in words."""
    yield from _age_limits(rig)
    if rig.settings.calibration is not None and "calibration" not in rig.sources:
        yield f"calibration: {shown(rig.settings.calibration)} does not exist yet; hilserver calibrate creates it."
    for device in rig.devices:
        if device.is_replayed and not (rig.file.parent / device.config.file).is_file():
            file = shown(device.config.file)
            yield f"devices.{device.name}.file: {file} does not exist yet; give it to hilserver replay with --file."
        if device.outputs and not device.driver.acknowledges(device.config):
            yield (
                f"devices.{device.name}: does not confirm its outputs, so that a command counts as confirmed once it "
                "is sent. If the device answers commands, configure its answer."
            )
        if device.driver.pace is Pace.SLOW and device.outputs and not device.inputs:
            yield (
                f"devices.{device.name}: has outputs in use but no channel, so the loop can't detect its loss. Read "
                "one of its channels, with an age limit."
            )
    yield from _short_watchdogs(rig)
    yield from _rounded_delays(rig)
    yield from _rounded_delays_of_actuators(rig)
    yield from _unused(rig)
    yield from _unmatched_signals(rig)
    yield from implausible(rig)


def _age_limits(rig: Rig) -> Iterator[str]:
    """Channels of slow devices whose samples exceed their age limit before the next ones arrive."""
    periods = {d.name: 1.0 / d.config.rate for d in rig.devices if d.driver.pace is Pace.SLOW}
    names = list(rig.settings.channels)
    for line in rig.plan.limit[rig.plan.limit["watched"] == Watched.AGE]:
        name = names[line.channel]
        period = periods.get(rig.settings.channels[name].device or "")
        if period is not None and line.upper < MIN_PERIODS * period:
            yield (
                f"channels.{name}: its device is read every {period * 1e3:g} ms, but samples older than "
                f"{line.upper * 1e3:g} ms violate a limit: allow {MIN_PERIODS:g} periods (max_age of a "
                "limit, or loop.max_age)."
            )


def _short_watchdogs(rig: Rig) -> Iterator[str]:
    """Devices that set an output to its safe value although the loop runs, or after a single missed tick."""
    tick = 1.0 / rig.settings.loop.rate
    for device in rig.devices:
        shortest = min((device.driver.safe_after(device.config, output) for output in device.outputs), default=inf)
        if shortest < 2.0 * tick:
            yield (
                f"devices.{device.name}.watchdog: {shortest * 1e3:g} ms are less than two ticks of {tick * 1e3:g} ms: "
                "the device would set its safe values while the loop runs. Allow several ticks."
            )


def _rounded_delays(rig: Rig) -> Iterator[str]:
    """Delays of inputs that are not a whole number of ticks."""
    tick = 1.0 / rig.settings.loop.rate
    for (name, settings), line in zip(rig.settings.inputs.items(), rig.plan.input, strict=True):
        rounded = line.delay * tick
        if abs(settings.delay - rounded) > 1e-6 * tick:
            yield (
                f"inputs.{name}.delay: {settings.delay * 1e3:g} ms is applied as {rounded * 1e3:g} ms: the delay of an "
                f"input is a whole number of ticks, of {tick * 1e3:g} ms each."
            )


def _rounded_delays_of_actuators(rig: Rig) -> Iterator[str]:
    """Delays of actuators and their sensors that differ considerably from a whole number of ticks."""
    tick, settings = 1.0 / rig.settings.loop.rate, rig.settings
    for (name, a), line in zip(settings.actuators.items(), rig.plan.actuator, strict=True):
        keys = (f"actuators.{name}.delay", f"channels.{a.position}", f"channels.{a.force}")
        delays = delays_of(a, settings, rig.slow_devices)
        for key, (place, delay) in zip(keys, delays.items(), strict=True):
            counted = int(getattr(line, place)) * tick
            if abs(delay - counted) > ROUNDED * tick:
                what = "the delay" if key.endswith(".delay") else "the delay with that of the filter,"
                yield (
                    f"{key}: {what} {delay * 1e3:.3g} ms counts as {counted * 1e3:.3g} ms, in whole ticks of "
                    f"{tick * 1e3:.3g} ms: the rest makes actuator {name} late or early."
                )


def _unused(rig: Rig) -> Iterator[str]:
    used = set(rig.circuit.inputs())
    for name in rig.settings.inputs:
        if name not in used:
            yield f"inputs.{name}: no component of the circuit reads it."
    yield from unconnected_ports(rig, rig.circuit)


def unconnected_ports(rig: Rig, circuit: Circuit) -> Iterator[str]:
    """The ports and actuators of a rig to which a circuit does not connect, in words."""
    for port in rig.settings.ports:
        if port not in circuit.rig_ports():
            yield f"ports.{port}: no component of the circuit connects to {RIG}{port}: its virtual flow is 0."
    for name in rig.settings.actuators:
        if name not in circuit.rig_actuators():
            node = f"{RIG}{name}"
            yield f"actuators.{name}: no component of the circuit connects to {node}: the actuator stays where it is."


def _unmatched_signals(rig: Rig) -> Iterator[str]:
    """Values to be recorded that the circuit lacks; another circuit may have them."""
    values = [f"{CIRCUIT}{name}" for name in rig.packed.names]
    for pattern in rig.settings.recording.signals:
        if pattern.startswith(CIRCUIT) and not any(fnmatchcase(name, pattern) for name in values):
            hint = did_you_mean(pattern, values)
            yield f"recording.signals: {shown(pattern)} matches no value of the circuit.{hint}"
