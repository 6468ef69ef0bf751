"""Values that follow from the answers to ``hilserver new``: the pressure of the load, and usual defaults."""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING

from hilserver.components.shared.edges import NominalFlow
from hilserver.components.shared.piston import GRAVITY
from hilserver.errors import ConfigurationError, Problem
from hilserver.units import BAR, shown_unit

if TYPE_CHECKING:
    from hilserver.commissioning.questions import Answers

HIGHEST_F3 = sqrt(1.0 + sqrt(2.0))
"""Ratio of the -3 dB and -90° frequencies of a second-order spool without damping."""
RANGES = (60.0, 100.0, 160.0, 250.0, 400.0, 600.0, 1000.0)
"""Usual ranges of pressure sensors, bar."""
AT_B = 10.0 * BAR
"""Pressure at port B of the resting load, Pa gauge."""
LIFTED = 0.8
"""Share of the supply pressure that the load may take at port A: the rest moves it."""
SHARES = {"rod": 0.57, "range": 1.5, "limit": 0.96, "load": 0.3, "virtual": 2.0 / 3.0}
"""Defaults as shares: rod of bore, sensor range of supply pressure, limit of range, load of supply, virtual of real
flow."""
USUAL_DROP = 35.0 * BAR
"""Pressure drop over an edge at which flows of servo valves are compared, Pa."""


def piston_areas(answers: Answers) -> tuple[float, float]:
    """Areas at A and B, m²."""
    bore, rod = answers.value("bore"), answers.value("rod_diameter")
    return 0.25 * pi * bore**2, 0.25 * pi * (bore**2 - rod**2)


def load_pressure(answers: Answers) -> float:
    """Pressure at A at which the load rests, Pa gauge, with `AT_B` at B."""
    area_A, area_B = piston_areas(answers)
    return float((GRAVITY * answers.value("mass") + AT_B * area_B) / area_A)


def usual_flow(answers: Answers) -> float:
    """Flow of an edge of the real valve at 35 bar, m³/s."""
    point = NominalFlow(flow=answers["flow"], drop=answers["drop"], per=answers["per"])
    return point.coefficient() * sqrt(USUAL_DROP)


def usual_mass(answers: Answers) -> str:
    """A load that takes a share of the supply pressure, at most 1000 kg."""
    area_A, area_B = piston_areas(answers)
    room = (SHARES["load"] * answers.value("supply_pressure") * area_A - AT_B * area_B) / GRAVITY
    return f"{float(f'{min(1000.0, max(room, 1.0)):.1g}'):g} kg"


def usual_damping(answers: Answers) -> str:
    """Of a second-order spool with the frequencies f3 and f90: at r = f3/f90, (1 - r²)² + (2·d·r)² = 2."""
    if (f3 := answers.value("f3") if "f3" in answers.texts else None) is None:
        return "0.8"
    ratio = f3 / answers.value("f90")
    return f"{sqrt(2.0 - (1.0 - ratio**2) ** 2) / (2.0 * ratio):.3g}"


def usual_pressure_range(answers: Answers) -> str:
    """The usual range of a sensor that covers the supply, real and virtual, with room above it."""
    least = SHARES["range"] * max(answers.value("supply_pressure"), answers.value("virtual_pressure")) / BAR
    return f"{next((each for each in RANGES if each >= least), float(f'{least:.2g}')):g} bar"


def usual_rod(answers: Answers) -> str:
    """The diameter of a rod for this bore."""
    return rounded(SHARES["rod"] * answers.value("bore"), "m")


def usual_virtual_flow(answers: Answers) -> str:
    """Less than the real valve can pass."""
    return rounded(SHARES["virtual"] * usual_flow(answers), "m^3/s")


def usual_pressure_limit(answers: Answers) -> str:
    """Just below the end of the sensors' range."""
    return rounded(SHARES["limit"] * answers.value("pressure_range"), "Pa", 3)


def rounded(value: float, unit: str, digits: int = 2) -> str:
    """A text of an SI value in the usual unit of ``unit``, to some digits."""
    name, factor = shown_unit(unit)
    return f"{float(f'{factor * value:.{digits}g}'):g} {name}"


def load_problem(answers: Answers) -> None:
    """Raise ConfigurationError if the load can't be lifted."""
    needed = load_pressure(answers)
    for key in ("supply_pressure", "virtual_pressure", "pressure_limit"):
        if needed > LIFTED * answers.value(key):
            text = (
                f"the load of {answers['mass']} takes {rounded(needed, 'Pa', 3)} at port A of this cylinder, more than "
                f"{100 * LIFTED:.0f} % of {key} ({answers[key]}): it could not be moved."
            )
            raise ConfigurationError([Problem(text, "mass")])
