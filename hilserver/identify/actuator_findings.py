"""What an identified actuator is like: its values, how well the model predicts the recording, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, pi

import numpy as np

from hilserver.displacement.servo import UNCERTAIN
from hilserver.identify.actuator_fit import IdentifiedActuator, stated_delay
from hilserver.identify.estimate import Estimate
from hilserver.identify.findings import MIN_DELAY, IdentifiedValue
from hilserver.numerics.arrays import Floats
from hilserver.rig.actuator_settings import MAY_VANISH, MOST_UNCERTAIN, spread_of
from hilserver.units import shown_value

LEAST_SHARE = 0.005
"""Smallest uncertainty that is stated: no actuator remains the same more closely."""
LEAST_DELAY = 1e-5
"""s: smallest correction of the command's delay."""
TRACKED = ("specimen_stiffness", "specimen_damping", "f90", "force_decay")
"""Parameters that change while a rig runs, tracked where the rig file does not say which: with load, oil, amplitude."""
KEYS = {
    "velocity_gain": ("velocity gain", "1/s", 1.0),
    "f90": ("-90° frequency of the servo valve", "Hz", 1.0),
    "damping": ("damping of the servo valve", "", 1.0),
    "oil_stiffness": ("stiffness of the oil", "kN/mm", 1e-6),
    "force_decay": ("force decay", "1/s", 1.0),
    "position_gain": ("position gain", "", 1.0),
    "specimen_mass": ("mass of the specimen", "kg", 1.0),
    "specimen_damping": ("damping of the specimen", "N*s/m", 1.0),
    "specimen_stiffness": ("stiffness of the specimen", "kN/mm", 1e-6),
}
"""By parameter: name, unit and factor from SI."""
FASTER = "a sweep of small displacements to above 1.5 times f90"
EXPERIMENTS = {
    "velocity_gain": "steps, or sines around velocity_gain / (2·pi) in Hz",
    "f90": FASTER,
    "damping": FASTER,
    "oil_stiffness": f"{FASTER} and above the resonance of the mass on the oil",
    "force_decay": "a deflection that is held for some seconds: a static force",
    "position_gain": "a slow motion over much of the range, whose ends are held",
    "specimen_mass": "a sweep to frequencies at which the force of inertia is a part of that of the spring",
    "specimen_damping": "sines near the natural frequency of the specimen",
    "specimen_stiffness": "a slow, large deflection",
    "delay": FASTER,
    "force delay": FASTER,
}
"""Which motion shows a parameter."""
WHITE = 0.8
"""Share of the residuals that is white noise, from which they count as white."""
PARTS = 24
"""Of the recording, for the standard deviations of what the residuals follow (jackknife)."""
SEEN, SURE = 0.05, 3.0
"""Share of the residuals that a suspected structure explains at least; standard deviations."""
OFTEN = 0.01
"""Share of the ticks in which the command is limited, from which this is said."""
POOR = 0.95
"""Share of a signal, predicted, below which the model does not describe it."""


@dataclass(frozen=True)
class Quality:
    """How well the model predicts a signal: ``explained``: share of its variance; ``error``: RMS, SI.

    ``white``: share of the errors that is white noise.
    """

    signal: str
    unit: str
    explained: float
    error: float
    white: float
    noise: Estimate | None

    @property
    def is_white(self) -> bool:
        """Whether the errors are nothing but noise."""
        return self.white >= WHITE


def servo_and_specimen(found: IdentifiedActuator) -> list[IdentifiedValue]:
    """The values of actuator and specimen; those of the specimen have keys like ``specimen_mass``."""
    values = []
    for key, (name, unit, factor) in KEYS.items():
        estimate = found.estimate(key)
        if key in found.unknown:
            estimate = replace(estimate, deviation=inf)
        values.append(IdentifiedValue(name, key, estimate, spread_of(found.stated, key), unit, factor))
    return values


def delays(found: IdentifiedActuator) -> dict[str, IdentifiedValue]:
    """The delay of the command, and those of the channels that differ from the rig file, by channel; "": the command.

    A recording shows the sum of the delays of command and displacement, and by how much the force is later. The sensor
    that is earlier has the delay that the rig file states, unless the other one's would be negative.
    """
    record, channels = found.record, found.record.rig.settings.channels
    position, force = record.displacement.channel, record.force.channel
    command, later = found.estimate("delay"), found.estimate("force delay")
    for name in ("delay", "force delay"):
        if name in found.unknown:
            command = replace(command, deviation=inf) if name == "delay" else command
            later = later if name == "delay" else Estimate(0.0, inf)
    command = command.shifted(found.stated.delay - stated_delay(record))
    changed: dict[str, IdentifiedValue] = {}

    def late(channel: str, more: Estimate) -> None:
        stated = channels[channel].delay
        changed[channel] = IdentifiedValue(f"delay of {channel}", "delay", more.shifted(stated), stated, "ms", 1e3)

    if later.is_known and later.is_significant(MIN_DELAY):
        earliest = -channels[force].delay
        if later.value >= earliest:
            late(force, later)
        else:
            late(force, Estimate(earliest, later.deviation))
            late(position, Estimate(earliest - later.value, later.deviation))
            command = command.shifted(later.value - earliest).with_further(later.deviation)
    command = replace(command, value=max(command.value, 0.0))
    if command.is_known and not command.shifted(-found.stated.delay).is_significant(LEAST_DELAY):
        command = replace(command, value=found.stated.delay)
    return {"": IdentifiedValue("delay of the command", "delay", command, found.stated.delay, "ms", 1e3)} | changed


def noises(found: IdentifiedActuator) -> dict[str, IdentifiedValue]:
    """The noise of both sensors, by channel, where the recording shows it."""
    values = {}
    for sensor, unit, factor in ((found.record.displacement, "mm", 1e3), (found.record.force, "N", 1.0)):
        if sensor.noise is not None:
            stated = found.record.rig.settings.channels[sensor.channel].noise
            before = stated.value if stated is not None else None
            name = f"noise of {sensor.channel}"
            values[sensor.channel] = IdentifiedValue(name, "noise", sensor.noise, before, unit, factor)
    return values


def uncertainty(found: IdentifiedActuator) -> dict[str, float]:
    """The uncertainties to be stated, as fractions: those of the rig file's parameters, or of the usual ones.

    A parameter that is not identified keeps what the rig file states of it.
    """
    stated = found.record.rig.settings.actuators[found.record.name].uncertainty
    shares: dict[str, float] = {}
    for name in [each for each in UNCERTAIN if each in (stated or TRACKED)]:
        value = spread_of(found.model, name)
        if value == 0.0:
            continue
        if name in found.unknown:
            shares |= {name: float(stated[name])} if name in stated else {}
            continue
        most = 1.0 if name in MAY_VANISH else MOST_UNCERTAIN
        shares[name] = float(np.clip(found.estimate(name).deviation / value, LEAST_SHARE, most))
    return shares


def qualities(found: IdentifiedActuator) -> tuple[Quality, Quality]:
    """Of displacement and force."""
    record, result = found.record, []
    units = (("displacement", "m", record.displacement), ("force", "N", record.force))
    for k, (name, unit, sensor) in enumerate(units):
        residual = found.residuals[k]
        whitener, used = found.fit.whiteners[name], found.prediction.used[k]
        innovation = found.fit.white[name][used] * whitener.deviation
        white = min(float(np.var(innovation)) / max(float(np.var(residual)), 1e-300), 1.0)
        result.append(Quality(name, unit, found.explained[k], float(np.std(residual)), white, sensor.noise))
    return result[0], result[1]


def excited_to(found: IdentifiedActuator) -> float:
    """The frequency up to which the recorded displacement is more than its noise, Hz."""
    sensor, used = found.record.displacement, found.prediction.used[0]
    predicted = sensor.value[used] - found.residuals[0]
    step = float(np.median(np.diff(sensor.time[used])))
    power = np.abs(np.fft.rfft(np.hanning(len(predicted)) * (predicted - predicted.mean()))) ** 2
    width = max(len(power) // 500, 1)
    mean = power[: len(power) // width * width].reshape(-1, width).mean(axis=1)
    floor = np.sum(np.hanning(len(predicted)) ** 2) * sensor.size**2
    above = np.flatnonzero(mean > floor)
    return float((above[-1] + 1) * width / (len(predicted) * step)) if len(above) else 0.0


def suspicions(found: IdentifiedActuator) -> Iterator[str]:
    """What the model lacks, as far as the residuals show it, in sentences."""
    if found.decay <= 0.0:
        yield (
            "The identified model is not stable: without a command, its motion would grow. The recording does not "
            "determine its damping, or the model does not describe the rig: these values are not to be used."
        )
    of_range, of_slew = found.record.limited
    for share, why in ((of_range, "the end of its range"), (of_slew, "its slew rate")):
        if share > OFTEN:
            yield (
                f"In {share:.0%} of the ticks, the command was limited by {why}. The recorded command is the limited "
                "one, so that this alone is no error, but near an end of the stroke an actuator is not linear."
            )
    for text, figure, experiment in _structures(found):
        yield f"Suspected: {text}: {figure}. To confirm it: {experiment}."
    poor = [q for q in qualities(found) if not q.is_white]
    names = " and ".join(q.signal for q in poor)
    if poor:
        whites = " and ".join(f"{q.white:.0%}" for q in poor)
        yield (
            f"The errors of {names} are not white noise ({whites} of them are): the model lacks something. The "
            "standard deviations include it as far as parts of the recording contradict each other."
        )
    for q in qualities(found):
        if q.explained < POOR:
            yield f"Only {q.explained:.1%} of the {q.signal} are predicted: the model does not describe it."


def _structures(found: IdentifiedActuator) -> Iterator[tuple[str, str, str]]:
    """Suspected structures: what, how much, and the experiment that would confirm it."""
    record = found.record
    time = [s.time[used] for s, used in zip((record.displacement, record.force), found.prediction.used, strict=True)]
    x = record.displacement.value[found.prediction.used[0]] - found.residuals[0]
    v = np.gradient(x, time[0])
    at_force = np.interp(time[1], time[0], x), np.interp(time[1], time[0], v)
    slow = 0.05 * float(np.sqrt(np.mean(v * v)))
    wide = at_force[0] - at_force[0].mean()
    trials = (
        (1, at_force, np.tanh(at_force[1] / slow), "friction of the specimen or piston", "slow motion to and fro"),
        (1, at_force, wide**3, "a stiffness that depends on the deflection", "a slow motion over the range"),
        (0, (x, v), v * np.abs(v), "a valve whose flow is not proportional to its opening", "faster steps"),
    )
    for k, (place, speed), shape, what, experiment in trials:
        size, share = _followed(found.residuals[k], (place, speed), shape)
        if share > SEEN and size.is_significant():
            unit = "mN"[2 * k] if k == 0 else "N"
            most = size.scaled(float(np.percentile(np.abs(shape), 95.0)))
            figure = f"{shown_value(abs(most.value), unit, 2)} in the residuals, {share:.0%} of them"
            yield what, figure, experiment


def _followed(residual: Floats, known: tuple[Floats, Floats], shape: Floats) -> tuple[Estimate, float]:
    """By how much a residual follows a shape beyond place and speed: the factor, and the share that it explains."""
    basis = np.stack([np.ones_like(shape), *known], axis=1)
    length = np.sqrt(np.mean(basis**2, axis=0))
    basis = basis / np.where(length > 0.0, length, 1.0)
    rest = shape - basis @ np.linalg.lstsq(basis, shape, rcond=None)[0]
    top, bottom = (np.array([part.sum() for part in np.array_split(rest * y, PARTS)]) for y in (residual, rest))
    if not bottom.sum() > 0.0:
        return Estimate(0.0, inf), 0.0
    factor = top.sum() / bottom.sum()
    without = (top.sum() - top) / np.maximum(bottom.sum() - bottom, 1e-300)
    deviation = float(np.sqrt((PARTS - 1) / PARTS * np.sum((without - factor) ** 2)))
    share = float(factor**2 * bottom.sum() / max(np.sum((residual - residual.mean()) ** 2), 1e-300))
    return Estimate(float(factor), deviation), share


def not_determined(found: IdentifiedActuator) -> Iterator[str]:
    """Parameters that keep their stated values, and which motion would show them, in sentences."""
    highest = excited_to(found)
    for name in found.unknown:
        if name not in EXPERIMENTS:
            continue
        text = KEYS[name][0] if name in KEYS else name
        yield (
            f"Not identifiable from this recording, and left as in the rig file: {text}. It would show in "
            f"{EXPERIMENTS[name]}."
        )
    if highest < found.model.f90:
        yield (
            f"The displacement is more than noise up to {highest:.3g} Hz only, the servo valve has an f90 of "
            f"{found.model.f90:.3g} Hz."
        )


def resonance(found: IdentifiedActuator) -> float:
    """Natural frequency of the specimen's mass on its own stiffness and the oil, Hz."""
    part = found.model.specimen
    return float(np.sqrt((part.stiffness + found.model.oil_stiffness) / part.mass)) / (2.0 * pi)
