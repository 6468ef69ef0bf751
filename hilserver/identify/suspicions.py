"""Model errors that the recording suggests, and the experiments that would confirm them.

Some of them are only errors of the rig file: the fragment states their values, and once it is merged, the model
describes them (`Evaluation.corrected`). A structure is suspected where its figure is significant, or beyond its usual
tolerance. Effects that the model does not describe at all appear in residuals that follow the command: those of an
exact model are independent of it.
Source: Ljung, System Identification, 2nd ed. 1999, ch. 16.6 (residual analysis).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from hilserver.identify.estimate import Estimate
from hilserver.identify.flows import PERHAPS_OTHER, USUAL, largest_disproportion, settled_curve
from hilserver.identify.identification import Identified
from hilserver.identify.influences import (
    ROD_SPEED,
    common_delay,
    unseen_delay,
    valve_delay,
)
from hilserver.numerics.arrays import Floats
from hilserver.report.document import Grid
from hilserver.rig.valves import corner_frequency
from hilserver.units import shown_value

LONGEST_LAG = 50
"""Ticks after a change of the command within which its residuals are examined."""
FALSE_ALARM_RATE = 1e-3
"""Probability that white residuals exceed the limit at any of these lags."""
BESIDE_CLOCK = (
    "record the command at an input of the card (its lag is then that of the card), or use a spool position sensor"
)

OR_BY_AMPLITUDE = ", or one whose frequency depends on the amplitude: frequency, damping and hysteresis are then wrong"


@dataclass(frozen=True)
class Suspicion:
    """A suspected structure: ``figure`` with its deviation, ``usual`` tolerance, ``experiment`` to confirm it.

    ``key``: of the rig file, by which the model describes it; empty if there is none. ``trial``: a line of the rig file
    with which another identification would show whether it is so; mostly empty.
    """

    structure: str
    figure: str
    usual: str
    experiment: str
    key: str = ""
    trial: str = ""


STRUCTURES = {
    "restriction": (
        "restriction between port {} and piston",
        "second pressure sensor, at the cylinder",
    ),
    "hose": ("hose at port {}, fraction of the dead volume", "closed valve, load changed: pressure over position"),
    "air": ("free air in the oil at port {}", "the same at low pressure"),
    "dead volume": ("dead volume at port {}, fraction that is missing", "the same near both ends of the stroke"),
    "elasticity": ("compliance of the oil at port {}, fraction of the stated one", "the same at high pressure"),
    "edge": (
        "flow over the edge {}, as a fraction more than over that of the valve's port",
        "a flow sensor at each port",
    ),
    "zero": ("zero of sensor {}", "read it at rest, with the line depressurised"),
    "gain": ("gain of sensor {}", "compare it with a reference at high pressure"),
    "delay": (
        "delay of sensor {} in addition to the stated one, relative to the others",
        "the same step on all sensors",
    ),
}
"""By the first word of a parameter: what it is, and the experiment."""
KEYS = {
    "restriction": "restriction_{}",
    "hose": "hose_volume_{}",
    "air": "air_fraction",
    "dead volume": "dead_volume_{}",
    "elasticity": "bulk_modulus",
}
"""By the same word: the key of a cylinder, with the side of the port."""
KEYS_OF_MOTOR = {"air": "air_fraction", "dead volume": "volume_{}", "elasticity": "volume_{}"}
"""The same of a motor, whose bulk modulus is that of the rig file."""
ALWAYS = ("restriction", "hose", "air")
"""Suspected where significant; others only where they are beyond their tolerance, too."""
OF_A_PORT = ("restriction", "hose", "air", "dead volume", "elasticity")
"""Of the other port of a cylinder, its own valve shows them better."""


def suspicions(found: Identified) -> Iterator[Suspicion]:
    """Those of a valve."""
    wanted, own = found.experiment.parameters(found.second_order), {c.port for c in found.experiment.chambers}
    stated = {f"restriction {c.port}" for c in found.experiment.chambers if c.stated_transition is not None}
    for name in found.fit.values:
        p, value = wanted[name], found.estimate(name)
        word = next((word for word in STRUCTURES if name.startswith(f"{word} ")), None)
        if word is None or name in stated or (word in OF_A_PORT and name.removeprefix(f"{word} ") not in own):
            continue
        if word in ALWAYS and value.value < 0.0:  # there are no such parts: the fit makes up for something else
            continue
        if value.shifted(-p.start).is_significant(0.0 if word in ALWAYS else p.prior):
            what, experiment = STRUCTURES[word]
            subject = name.removeprefix(f"{word} ")
            unit, suffix = _unit(found, word, subject)
            figure, usual = (_in_words(each, unit) + suffix for each in (value, Estimate(p.start, p.prior)))
            yield Suspicion(what.format(subject), figure, usual, experiment, _key(found, word, subject))
    yield from _slower(found)
    yield from _not_proportional(found)
    yield from _correlated(found)


def _in_words(estimate: Estimate, unit: str) -> str:
    """``"4.25 bar ± 0.31 bar"``"""
    return f"{shown_value(estimate.value, unit, 3)} ± {shown_value(estimate.deviation, unit, 2)}"


def _unit(found: Identified, word: str, subject: str) -> tuple[str, str]:
    """Unit of a figure, and what else belongs to it."""
    if word == "restriction":
        return "Pa", f" at {ROD_SPEED:g} m/s"
    if word == "zero":
        return found.experiment.rig.settings.channels[subject].unit, ""
    return ("s", "") if word == "delay" else ("", "")


def _key(found: Identified, word: str, subject: str) -> str:
    """The key of the rig file that describes a structure; empty if there is none."""
    if word == "delay":
        return f"channels.{subject}.delay"
    if word not in KEYS:
        return ""
    chamber = next(c for c in found.experiment.chambers if c.port == subject)
    settings, side = found.experiment.rig.settings, "B" if chamber.at_B else "A"
    name = next(name for name, actuator in settings.hydraulic_actuators().items() if actuator is chamber.actuator)
    if name in settings.motors:
        return f"motors.{name}.{KEYS_OF_MOTOR[word].format(side)}"
    return f"cylinders.{name}.{KEYS[word].format(side)}"


def _slower(found: Identified) -> Iterator[Suspicion]:
    """A spool that is later in fast movements than in others, or that is at its highest speed all the time."""
    lag = found.lag_by_speed
    if lag is not None and lag.is_limited:
        more = Estimate(lag.fast - lag.slow, lag.deviation)
        additional = f"additional lag in fast movements: {_in_words(more, 's')}"
        in_all = f"lag in all movements: {shown_value(lag.slow, 's', 2)}"
        varies = lag.is_later_if_fast
        yield Suspicion(
            f"speed-limited spool{OR_BY_AMPLITUDE if varies else ': the other values are then wrong'}",
            additional if varies else in_all,
            f"at most {shown_value(lag.usual if varies else lag.most, 's', 2)}",
            "steps of several sizes; with a limit, enter slew, 10 % less than the maximum speed, and identify again",
        )


def _not_proportional(found: Identified) -> Iterator[Suspicion]:
    """A valve with a progressive characteristic, or with two gains."""
    worst = largest_disproportion(found.experiment, found.fitted)
    if worst is None:
        return
    if worst.is_significant:
        way = "into" if worst.way > 0.0 else "out of"
        yield Suspicion(
            f"{worst.label}: flow not proportional to the opening; flow coefficients and overlap are then wrong",
            f"{100.0 * worst.mean:+.1f} ± {100.0 * worst.deviation:.1g} % of the nominal flow {way} the port, at "
            f"openings of {100.0 * worst.low:g} to {100.0 * worst.high:g} %",
            f"± {100.0 * USUAL:g} %",
            "the flow at constant pressure drop in small steps of the command: enter it as flow_signal",
            f"valves.{found.experiment.valve}.flow_signal",
        )
    elif worst.is_notable and not found.is_always_late:
        yield from _perhaps_not_proportional(found)


def _perhaps_not_proportional(found: Identified) -> Iterator[Suspicion]:
    """A mild bend, for which overlap, leakage and motion of the spool make up: only settled flows show it."""
    settled = settled_curve(found.experiment, found.fitted)
    if settled is not None and settled.differs > PERHAPS_OTHER:
        yield Suspicion(
            "flow perhaps not proportional to the opening: overlap, leakage and motion of the spool may then be wrong",
            f"settled flows deviate from it by {settled.differs:.1%} of that at {settled.opening:.0%} of the stroke",
            f"at most {PERHAPS_OTHER:.0%}",
            "larger openings (--largest), or identify again with the measured curve",
            trial=f"{flow_signal_line(settled.curve)} # to try: from the means of settled flows, instead of overlap",
        )


def flow_signal_line(curve: Sequence[tuple[float, float]]) -> str:
    """A curve as a line of the rig file."""
    points = ", ".join(f'[{signal:.3g}, "{shown_value(flow, "m^3/s", 3)}"]' for signal, flow in curve)
    return f"flow_signal = [{points}]"


def _correlated(found: Identified) -> Iterator[Suspicion]:
    """Residuals that follow the command."""
    change = np.diff(found.experiment.command, prepend=found.experiment.command[0])
    for signal in found.experiment.signals:
        r = found.fit.white[signal.name]
        lag, largest, limit = largest_correlation(r, change[: len(r)])
        if abs(largest) > limit:
            yield Suspicion(
                f"{signal.name}: unmodelled dynamics",
                f"residuals correlate with the command: {largest:.3f}, {lag} ticks after it",
                f"at most {limit:.3f} by chance",
                "step responses of several sizes, with a spool position sensor",
            )


def largest_correlation(r: Floats, cause: Floats) -> tuple[int, float, float]:
    """Lag in ticks and size of the largest correlation of white residuals with a cause, and the limit of chance.

    >>> rng = np.random.default_rng(1)
    >>> cause, noise = rng.normal(size=10_000), rng.normal(size=10_000)
    >>> lag, largest, limit = largest_correlation(noise + 0.1 * np.roll(cause, 7), cause)
    >>> lag, largest > limit
    (7, True)
    >>> lag, largest, limit = largest_correlation(noise, cause)
    >>> abs(largest) < limit
    True
    """
    scale = float(np.sqrt((r @ r) * (cause @ cause))) or 1.0
    found = [float(r[lag:] @ cause[: len(cause) - lag]) / scale for lag in range(LONGEST_LAG)]
    lag = int(np.argmax(np.abs(found)))
    samples = max(int(np.count_nonzero(r)), 1)
    limit = NormalDist().inv_cdf(1.0 - 0.5 * FALSE_ALARM_RATE / LONGEST_LAG) / float(np.sqrt(samples))
    return lag, found[lag], limit


def suspicion_table(suspected: Iterable[Suspicion]) -> Grid:
    """A line for each."""
    rows = tuple((s.structure, s.figure, s.usual, s.experiment) for s in suspected)
    return Grid(("suspected", "figure", "expected", "experiment to confirm it"), rows)


def correction_table(corrected: Iterable[Suspicion]) -> Grid:
    """A line for each, with the key that corrects it."""
    rows = tuple((s.structure, s.figure, s.usual, s.key, s.experiment) for s in corrected)
    return Grid(("corrected by the fragment", "figure", "expected", "key", "experiment to confirm it"), rows)


def about_the_delay(found: Identified) -> str:
    """What of the delay is known, and the main contribution to its standard deviation."""
    if found.experiment.recording.delays_known:
        return "The delays of the sensors are taken as exact: any excess delay is assigned to the valve."
    here = found.experiment
    advice = (
        f"To distinguish them: {BESIDE_CLOCK}. If the delays of the channels are known: --sensor-delays-known. A "
        'tolerance beside a delay in the rig file (delay = "1 ms ± 0.2 ms") replaces the usual one.'
    )
    if found.lateness is None:
        unseen = _in_ms(unseen_delay(found.experiment.dt))
        return (
            f"{unseen} of the delay's standard deviation is the delay that the sensors may have in addition to the "
            f"stated one: the recording cannot distinguish it from that of the valve. {advice}"
        )
    sensors, valve = (_in_ms(usual(here.dt)) for usual in (common_delay, valve_delay))
    return (
        "The recording shows the delays of valve and sensors together. Of the excess over the stated ones, "
        f"{_in_ms(found.lateness.value)} is assigned to all sensors and the rest to the valve, as is most "
        f"probable if sensors are later than stated by up to {sensors}, and valves by {valve} in the mean, unless the "
        f"rig file states their tolerances. {_as_phase(found, found.lateness)}{advice}"
    )


def _as_phase(found: Identified, lateness: Estimate) -> str:
    """What the deviation of the lateness means for the flow."""
    f45 = corner_frequency(found.experiment.settings)
    phase = 360.0 * f45 * lateness.deviation
    return (
        f"Its standard deviation, {_in_ms(lateness.deviation)}, is a phase of {phase:.2g}° at the stated "
        f"-45° frequency of the valve. "
    )


def _in_ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2g} ms"
