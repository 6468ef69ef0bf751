"""The benchmark control problem for real-time hybrid simulation, simulated with a strategy of the bridge.

A frame of three storeys under the El Centro earthquake; a specimen on its first floor is moved by a hydraulic actuator.
Parameters and criteria are those of Silva, Gomez, Maghareh, Dyke & Spencer, Benchmark control problem for real-time
hybrid simulation, Mech. Syst. Signal Process. 135 (2020) 106381, and of its companion program, version 23: the paper
rounds parameters and omits the gain of the transfer system.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import sqrt

import numpy as np

from hilserver.compiler import standard_program
from hilserver.displacement.actuator import SEEN, Actuator
from hilserver.displacement.design import at_rest
from hilserver.displacement.sensors import Sensors, in_ticks
from hilserver.displacement.specimen import Specimen
from hilserver.hybrid.criteria import Criteria, criteria
from hilserver.hybrid.design import design_bridge
from hilserver.hybrid.structure import PortalFrame, Structure, with_modal_damping
from hilserver.numerics.arrays import Floats, Matrix
from hilserver.tick.hybrid.displacement import DelayCompensation, DisplacementBridge, DisplacementStrategy, Law
from hilserver.tick.hybrid.pi_lead import pi_lead
from hilserver.tick.hybrid.step import Trace, TransferSystem, VirtualStructure

DT = 1.0 / 4096.0
"""s, the tick."""
QUANTUM = 2.0**-18
"""m, of the converters. (The companion program rounds metres as if they were volts: 16 times coarser than 18 bit.)"""
SENSORS = Sensors(displacement=sqrt(6.25e-14 / DT), force=sqrt(1.16e-3 / DT))
"""Noise: 16 µm and 2.2 N, RMS."""
CAPACITY = 8900.0
"""N, of the actuator."""
LOST = np.array([1.0, 5.0 * CAPACITY])
"""m and N, beyond which a simulation has become unstable: a real rig would have been switched off long before."""
INTENSITY = 0.4
"""Scale of the earthquake."""
INCH = 0.0254
FRAME = PortalFrame(
    youngs_modulus=200e9,
    column_inertia=2.520 * INCH**4,
    beam_inertia=255_267e-12,
    height=0.635,
    width=0.762,
    storeys=3,
    bays=2,
)
SPECIMEN = Specimen(mass=29.13, damping=2.0 * 0.0097 * sqrt(29.13 * 1.19e6), stiffness=1.19e6)
NOMINAL = Actuator(a1_beta0=2.1283e13, a2=4.2297e6, a3=3.3, beta1=425.0, beta2=9.9976e4, gain=1.0261, specimen=SPECIMEN)
SPREAD = {"stiffness": 5e4, "beta1": 3.3, "beta2": 3.3e3, "a3": 1.3}
"""Standard deviations of the uncertain parameters; all others are exact."""
TRACKED = {name: SPREAD[name] for name in ("stiffness", "beta2", "a3")} | {"damping": SPECIMEN.damping}
"""Those that the bridge tracks. The damping of the specimen is known exactly in the benchmark, but rarely in a test.

A deviation of beta1 by 0.8 % has no measurable effect.
"""
PUBLISHED: dict[str, tuple[float, ...]] = {
    "1": (4.6, 10.4, 11.5, 36.1, 19.0, 32.3, 32.4, 14.8, 14.8),
    "2": (4.6, 9.8, 11.1, 33.1, 17.1, 30.5, 30.5, 15.3, 15.2),
    "3": (4.6, 9.1, 10.2, 49.9, 36.7, 49.8, 49.8, 35.5, 35.6),
    "4": (4.6, 10.5, 11.3, 72.6, 35.2, 68.5, 68.7, 33.4, 33.3),
}
"""Table 3 of the paper: criteria of the PI controller with phase lead, by case."""


@dataclass(frozen=True)
class BenchmarkCase:
    """A case of the benchmark: mass of each floor, kg, and damping ratio of each mode."""

    name: str
    floor_mass: float
    damping: float

    def structure(self) -> Structure:
        """The whole structure, which is the reference."""
        return with_modal_damping([self.floor_mass] * FRAME.storeys, FRAME.stiffness(), self.damping, decimals=2)


CASES = (
    BenchmarkCase("1", 1000.0, 0.05),
    BenchmarkCase("2", 1100.0, 0.04),
    BenchmarkCase("3", 1300.0, 0.03),
    BenchmarkCase("4", 1000.0, 0.03),
)


@dataclass(frozen=True)
class Run:
    """A run: its trace (`Trace`), the reference, and when it became unstable, s (None: it did not)."""

    trace: Matrix
    reference: Floats
    unstable_at: float | None

    @property
    def positions(self) -> Floats:
        """Positions of the virtual structure, m."""
        return self.trace[:, -self.reference.shape[1] :]

    def criteria(self, noise_free: bool = False) -> Criteria:
        """The criteria; ``noise_free``: with the true displacement instead of the measured one."""
        displacement = self.trace[:, Trace.DISPLACEMENT if noise_free else Trace.MEASURED]
        return criteria(displacement, self.positions, self.reference, DT)

    def largest_force(self) -> float:
        """Of the actuator, N."""
        return float(np.max(np.abs(self.trace[:, Trace.FORCE])))


@cache
def el_centro() -> Floats:
    """The ground acceleration of the benchmark in every tick, m/s²: El Centro 1940, between 5 s of rest, scaled.

    The record itself is a file of this package, in g at intervals of 0.02 s; its first line names source and licence.
    """
    text = (files("hilserver.hybrid") / "el_centro.txt").read_text(encoding="utf-8")
    record = np.array([float(word) for line in text.splitlines() if not line.startswith("#") for word in line.split()])
    quiet = np.zeros(250)
    samples = np.concatenate([quiet, 9.81 * record - 0.01067, quiet])
    times = 0.02 * np.arange(len(samples))
    found: Floats = INTENSITY * np.interp(np.arange(int(times[-1] / DT) + 1) * DT, times, samples)
    return found


@cache
def reference(case: BenchmarkCase) -> Floats:
    """Response of the whole structure, m: a line per tick."""
    return case.structure().response(el_centro(), DT)


def plants(count: int, seed: int) -> Iterator[Actuator]:
    """The nominal actuator, then ``count`` whose uncertain parameters are drawn from their normal distributions."""
    yield NOMINAL
    draw = np.random.default_rng(seed)
    for _ in range(count):
        drawn = NOMINAL.shifted({name: size * draw.standard_normal() for name, size in SPREAD.items()})
        yield drawn


def bridge(
    virtual: Structure, strategy: DisplacementStrategy, nominal: Actuator = NOMINAL, sensors: Sensors = SENSORS
) -> DisplacementBridge:
    """The bridge for a virtual structure, which it knows; actuator and specimen are assumed to be nominal.

    A strategy without a filter gets one that nothing asks.
    """
    filtered = strategy if strategy.law is Law.STATE_FEEDBACK else DisplacementStrategy.state_feedback
    return design_bridge(virtual, nominal, TRACKED, sensors, DT, filtered)


def simulate(
    case: BenchmarkCase,
    strategy: DisplacementStrategy,
    actuator: Actuator = NOMINAL,
    seed: int | None = 1,
    nominal: Actuator = NOMINAL,
    sensors: Sensors = SENSORS,
    stated: Sensors = SENSORS,
) -> Run:
    """Run the earthquake with this actuator and these sensors; ``seed`` of their noise, None without noise.

    ``nominal``, ``stated``: the actuator and the sensors for which the bridge is designed.
    """
    ground, right = el_centro(), reference(case)
    virtual = case.structure().without(actuator.specimen)
    known = bridge(virtual, strategy, nominal, stated)
    noise = np.zeros((len(ground), 2))
    if seed is not None:
        noise = np.random.default_rng(seed).standard_normal(noise.shape) * [sensors.displacement, sensors.force]
    tracked = len(known.gain_slopes)
    trace = np.full((len(ground), Trace.PARAMETERS + tracked + right.shape[1]), np.nan)
    standard_program().run_hybrid(
        _virtual(virtual),
        _simulated(actuator, sensors),
        known,
        at_rest(known),
        pi_lead(k_P=2.0, k_I=95.0, gain=50.8, zero=168.6, pole=8570.0, dt=DT),
        int(strategy.law),
        int(strategy.compensation is DelayCompensation.PREDICTED),
        np.append(ground, ground[-1]),
        noise,
        QUANTUM,
        trace,
    )
    lost = np.flatnonzero(np.isnan(trace[:, -1]))
    return Run(trace, right, float(lost[0]) * DT if len(lost) else None)


def _virtual(structure: Structure) -> VirtualStructure:
    step, begin, end = structure.motion().ramped(DT)
    held = structure.motion().held(DT).B[:, 1]
    step, now, later, force = (np.ascontiguousarray(part) for part in (step, begin[:, 0], end[:, 0], held))
    return VirtualStructure(step, now, later, force, np.zeros(len(step)), np.zeros(len(step)))


def _simulated(actuator: Actuator, sensors: Sensors) -> TransferSystem:
    motion = actuator.motion().held(DT)
    return TransferSystem(
        step=np.ascontiguousarray(motion.A),
        input=np.ascontiguousarray(motion.B[:, 0]),
        seen=SEEN,
        state=np.zeros(len(motion.A)),
        spare=np.zeros(len(motion.A)),
        commands=np.zeros(1 + in_ticks(actuator.delay, DT)),
        displacements=np.zeros(1 + in_ticks(sensors.displacement_delay, DT)),
        forces=np.zeros(1 + in_ticks(sensors.force_delay, DT)),
        most=LOST,
    )
