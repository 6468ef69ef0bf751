"""Properties of a rig that the bridge does not know: its simulated machine and drive, drawn from usual ranges.

Only the simulated device changes. Channels, valves and cylinders of the rig file, by which the bridge works, do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from hilserver.fidelity import changes
from hilserver.fidelity.changes import DeviceTables, Table
from hilserver.fidelity.draws import Draw, RandomDraw
from hilserver.rig.rig import Rig
from hilserver.toml import copied


@dataclass(frozen=True)
class Unknown:
    """A property of a rig that is known with an uncertainty only.

    ``range`` and ``reason`` of the range are for the reader; ``change`` draws a value and enters it.
    """

    name: str
    meaning: str
    range: str
    reason: str
    change: Callable[[DeviceTables, Draw], None]


def varied(rig: Rig, device: str, unknowns: Iterable[Unknown], seed: int) -> Table:
    """The sources of the rig with a changed device.

    An unknown has the same value for the same seed, whether it is drawn alone or with others.
    """
    sources = copied(rig.sources)
    simulated = DeviceTables.of(sources, device, float(rig.plan.loop[0].dt))
    for unknown in unknowns:
        unknown.change(simulated, RandomDraw(np.random.default_rng([seed, *unknown.name.encode()])))
    return sources


def applicable(rig: Rig, device: str) -> tuple[Unknown, ...]:
    """The unknowns for which the rig has what they need."""
    return tuple(unknown for unknown in UNKNOWNS if varied(rig, device, [unknown], 0) != rig.sources)


UNKNOWNS = (
    Unknown(
        "load",
        "Mass or inertia of the load; a rod starts in balance with it.",
        "50 … 150 % of the stated one",
        "payloads of a test rig",
        changes.load,
    ),
    Unknown(
        "elastic frame",
        "A damped spring between rod and load.",
        "natural frequency of the load on its spring 15 … 40 Hz, damping ratio 0.02 … 0.05",
        "frames and mounts of test rigs",
        changes.elastic_frame,
    ),
    Unknown(
        "friction",
        "Dry friction of the seals (LuGre) instead of the stated law.",
        "static friction 1 … 8 % of the piston's force at 160 bar",
        "from low-friction to standard seals",
        changes.friction,
    ),
    Unknown(
        "viscosity",
        "Viscosity of the oil, with the drop below which the flow over the valve's edges is laminar.",
        "15 … 120 mm²/s",
        "oil of ISO VG 46 at 70 … 20 °C",
        changes.viscosity,
    ),
    Unknown(
        "piston leakage",
        "Leakage past the piston.",
        "0.001 … 0.02 l/min/bar",
        "from new seals to worn seals and clearance seals",
        changes.piston_leakage,
    ),
    Unknown(
        "motor losses",
        "Efficiencies of a hydraulic motor.",
        "volumetric 88 … 97 %, hydromechanical 85 … 95 %",
        "from worn to new axial piston motors",
        changes.motor_losses,
    ),
    Unknown(
        "bulk modulus",
        "Bulk modulus of the oil without air.",
        "1.1 … 1.8 GPa",
        "mineral oil, hot to cold",
        changes.bulk_modulus,
    ),
    Unknown(
        "air", "Free air in the oil.", "0.2 … 2 % at atmospheric pressure", "systems with an open tank", changes.air
    ),
    Unknown(
        "changing oil",
        "The oil becomes warmer while the rig runs, and its free air changes.",
        "within 20 … 200 s to 30 … 100 % of the viscosity, 85 … 100 % of the bulk modulus, and 0.2 … 2 % of free air",
        "from a cold start towards operating temperature; air is released and carried away",
        changes.changing_oil,
    ),
    Unknown(
        "dead volume",
        "Oil in plumbing and cylinder at the end of the stroke.",
        "±25 % of the stated volume",
        "volumes estimated from drawings",
        changes.dead_volume,
    ),
    Unknown(
        "hose",
        "Part of each dead volume lies in an elastic hose.",
        "20 … 80 % of the dead volume, B_hc 1.5 … 3e5 Pa^0.5",
        "braided hoses between valve and cylinder",
        changes.hose,
    ),
    Unknown(
        "restriction",
        "A restriction between each port, where the pressure is measured, and the chamber.",
        "1 … 8 bar at a rod speed of 0.2 m/s",
        "fittings and drilled ports",
        changes.restriction,
    ),
    Unknown(
        "nominal flow",
        "Nominal flow of the real valve.",
        "±10 % of the stated flow",
        "usual datasheet tolerance of the rated flow (test method: ISO 10770-1)",
        changes.nominal_flow,
    ),
    Unknown(
        "valve frequency",
        "The -90° frequency of the real valve.",
        "±30 % of the stated frequency",
        "it depends on amplitude, supply pressure and temperature",
        changes.frequency,
    ),
    Unknown(
        "valve damping",
        "Damping ratio of the real valve's spool.",
        "±30 % of the stated ratio",
        "as above",
        changes.damping,
    ),
    Unknown(
        "overlap",
        "Additional overlap of the real valve's edges.",
        "0.3 … 3 % of the stroke",
        "manufacturing tolerance of zero lap",
        changes.overlap,
    ),
    Unknown(
        "hysteresis",
        "Hysteresis of the real valve.",
        "0.1 … 0.5 % of full command",
        "datasheets of servo valves, from direct-operated to two-stage",
        changes.hysteresis,
    ),
    Unknown(
        "unequal edges",
        "Flow of each edge of the real valve.",
        "95 … 105 % of the nominal flow",
        "symmetry of the flow in datasheets (test method: ISO 10770-1)",
        changes.unequal_edges,
    ),
    Unknown(
        "null offset",
        "The spool's position at command 0.",
        "±2 % of the stroke",
        "null shift over temperature and pressure in datasheets",
        changes.null_offset,
    ),
    Unknown(
        "worn edges",
        "Leakage of the real valve at null.",
        "1 … 5 % of the nominal flow per edge at 70 bar",
        "from new valves to the end of their service life",
        changes.worn_edges,
    ),
    Unknown(
        "valve delay",
        "Additional delay from the output to the valve.",
        "0 … 2 ticks",
        "fieldbus, valve electronics",
        changes.valve_delay,
    ),
    Unknown(
        "supply droop",
        "A restriction between pump and valve, with oil at the valve.",
        "5 … 20 % of the supply pressure at the valve's nominal flow; 0.2 … 2 l",
        "pressure-compensated pumps, filters, long lines",
        changes.droop,
    ),
    Unknown(
        "supply pulsation",
        "Pulsation of the supply pressure, a sine.",
        "amplitude 0.5 … 2 %, 50 … 300 Hz",
        "piston pumps, with and without an accumulator",
        changes.pulsation,
    ),
    Unknown(
        "sensor delay",
        "Additional delay of every sensor.",
        "0 … 2 ticks",
        "filters in sensors and input cards",
        changes.sensor_delay,
    ),
    Unknown(
        "sensor noise",
        "Additional noise of every sensor.",
        "0.02 … 0.1 % of the range, RMS",
        "industrial sensors and input cards",
        changes.sensor_noise,
    ),
    Unknown(
        "sensor offset",
        "Offset of every sensor.",
        "±0.25 % of the range",
        "sensors of 0.25 % accuracy",
        changes.sensor_offset,
    ),
    Unknown("sensor gain", "Gain error of every sensor.", "±0.25 %", "sensors of 0.25 % accuracy", changes.sensor_gain),
)
