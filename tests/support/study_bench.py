"""Circuits whose response is known exactly, for studies and fits: a volume that empties through a restrictor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
from longer_steps import in_longer_steps

from hilserver.numerics.arrays import Floats
from hilserver.report.studies import StudyState, write_state
from hilserver.studies.subject import VariantFailedError

EMPTYING = """
[solver]
substeps = 20

[components.tank]
type = "tank"
ports = { T = "tank" }

[components.vessel]
type = "volume"
ports = { P = "vessel" }
volume = "2 l ± 10 %"

[components.capillary]
type = "laminar_restrictor"
ports = { A = "vessel", B = "tank" }
nominal_flow = { flow = "2 l/min", drop = "100 bar" }

[nodes.vessel]
pressure = "100 bar"
"""
LEAKING = f"""library = ["own.py"]
{EMPTYING}
[components.leak]
type = "leak"
ports = {{ A = "vessel", B = "tank" }}
odd = 1.0
"""
"""The same with a component of the user's, which `leak` writes."""
BULK_MODULUS, VOLUME, CONDUCTANCE, START = 1.5e9, 2e-3, 2.0 / 6e4 / 100e5, 100e5
STUDY = """
circuit = "emptying.toml"
duration = "0.5 s"
plan = "latin_hypercube"
samples = 40

[vary]
"capillary.nominal_flow.flow" = "± 20 %"
"nodes.vessel.pressure" = { from = "90 bar", to = "110 bar" }

[figures]
end = "final(vessel.p)"
mean = "mean(vessel.p)"
"""


def leak(parameters: str, head: str = "") -> str:
    """The file of a component with these lines as its ``parameters()``, and ``head`` before all others."""
    return f"""{head}
from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Number


class Leak(Component):
    type_name = "leak"
    hydraulic = ("A", "B")
    odd: Number = 1.0

    def parameters(self, fluid: Fluid) -> Parameters:
{indent(parameters, " " * 8)}


@kernel(Leak)
def leak(p_A, p_B, G):
    q_B = G * (p_A - p_B)
    q_A = -q_B
    return q_A, q_B
"""


CONFIG = Path(__file__).parents[2] / "config"
SHORT_CYCLE = """
length = "0.6 s"
[inputs.joystick]
shape = "step"
points = [["0 s", 0.0], ["0.05 s", 0.0], ["0.2 s", 0.7], ["0.4 s", 0.7], ["0.55 s", 0.0]]
"""


def lift_files(folder: Path) -> Path:
    """The lift rig with its files, and a short work cycle; returns the rig file."""
    for name in ("rigs/lift", "circuits/lift", "circuits/lift_machine", "circuits/two_valves"):
        file = folder / f"{name}.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text((CONFIG / f"{name}.toml").read_text())
    in_longer_steps(*(folder / "circuits").iterdir())
    (folder / "cycles").mkdir()
    (folder / "cycles/lift.toml").write_text(SHORT_CYCLE)
    return folder / "rigs/lift.toml"


def replace_in(file: Path, *pairs: tuple[str, str]) -> None:
    """Other texts in a file, each of which is there, in their first place."""
    text = file.read_text()
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    file.write_text(text)


def written_study(folder: Path, study: str = STUDY, circuit: str = EMPTYING) -> Path:
    """The files of a study; returns the study file."""
    (folder / "emptying.toml").write_text(circuit)
    file = folder / "tolerances.toml"
    file.write_text(study)
    return file


def written_state(stem: Path, **stated: Any) -> None:
    """What a study with these results states of itself."""
    defaults = {"description": f"About {stem.name}", "failed": 0, "began": 0.0, "written": 1.0}
    write_state(stem, StudyState(**(defaults | stated)))


def pressure(t: float | Floats, volume: Floats | float, conductance: Floats | float, start: Floats | float) -> Floats:
    r"""The exact pressure, Pa: :math:`p = p_0\,e^{-G\,B\,t/V}`."""
    return np.asarray(start * np.exp(-np.asarray(conductance) * BULK_MODULUS * t / volume))


@dataclass(frozen=True)
class FunctionSubject:
    """A function of the values as what a study runs."""

    function: Callable[[Floats], float]

    def prepare(self) -> Callable[[Floats], Floats]:
        """The same as an array of one figure."""
        return lambda values: np.array([self.function(values)])


@dataclass(frozen=True)
class TogetherSubject:
    """A function of the values whose variants are run together, and take this computing time each, s."""

    function: Callable[[Floats], float]
    seconds: float

    def prepare(self) -> TogetherSubject:
        """This."""
        return self

    most_together = 8

    def __call__(self, values: Floats) -> Floats:
        """The figure of one of them."""
        return np.array([self.function(values)])

    def together(self, values: Floats, alive: Callable[[], None]) -> list[Floats | Exception]:
        """The figure of each."""
        found = list[Floats | Exception]()
        for row in values:
            alive()
            end = time.process_time() + self.seconds
            while time.process_time() < end:
                pass
            found.append(self(row))
        return found


@dataclass(frozen=True)
class WatchedSubject:
    """Its figure: every how many s it is looked at while it is prepared; 0: it is not watched."""

    def prepare(self) -> Callable[[Floats], Floats]:
        """In a thread that is not watched, there is no such timer."""
        watched = signal.getitimer(signal.ITIMER_REAL)[1]
        return lambda _values: np.array([watched])


def computing() -> int:
    """The number of processes that this one has started."""
    return len(multiprocessing.active_children())


def ishigami(x: Floats) -> float:
    """sin(x1) + 7 sin²(x2) + 0.1 x3⁴ sin(x1), x in -π … π (Ishigami and Homma, ISUMA 1990)."""
    return float(np.sin(x[0]) + 7.0 * np.sin(x[1]) ** 2 + 0.1 * x[2] ** 4 * np.sin(x[0]))


def deadly(x: Floats) -> float:
    """A variant of 7 ends its process, one of 8.5 hangs, one of 9.5 raises an error, one below 0 fails."""
    if x[0] == 7.0:
        os._exit(9)
    while x[0] == 8.5:
        pass
    if x[0] == 9.5:
        raise KeyError("nine")
    if x[0] < 0.0:
        raise VariantFailedError("is negative")
    return float(x[0] ** 2)


def slow(x: Floats) -> float:
    """A variant that takes a hundredth of a second."""
    time.sleep(0.01)
    return float(x[0] ** 3)


def written_log(folder: Path, seed: int, flow: float = 2.0, noise: float = 0.5e5, seconds: float = 0.6) -> Path:
    """A log of the emptying vessel with white noise, Pa, whose capillary passes ``flow`` l/min at 100 bar."""
    time: Floats = np.linspace(0.0, seconds, round(1e3 * seconds) + 1)
    random = np.random.default_rng(seed)
    start = random.uniform(90e5, 110e5)
    measured = pressure(time, VOLUME, flow / 6e4 / 100e5, start) + random.normal(0.0, noise, len(time))
    return log_of(folder / f"log{seed}.csv", time, measured)


def log_of(file: Path, time: Floats, measured: Floats) -> Path:
    """A log of the vessel with these pressures."""
    lines = (f"{t:.3f},{p:.6e}" for t, p in zip(time, measured, strict=True))
    file.write_text("\n".join(["time,vessel.p", *lines, ""]))
    return file
