"""Mechanisms at their limits: change points of loops, a body on a ball joint, inertia that no body has."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_bench import BALL

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.fidelity.strategies import simulate
from hilserver.mechanics.model import read_mechanism
from hilserver.rig.build import assemble, load_rig
from hilserver.simulation.circuit_report import write_animations, write_run
from hilserver.simulation.circuit_run import DEFAULT_SETTINGS, CircuitRun, RunSettings, run_circuit


def point(x: float, y: float) -> list[str]:
    return [f"{x} m", f"{y} m"]


def linkage(method: str, coupler: float, speed: str) -> dict[str, Any]:
    """Two cranks of 0.3 m on a base of 0.5 m; with a coupler as long as that, a parallelogram. No gravity."""
    bar = {"mass": "1 kg", "inertia": "0.01 kg*m^2"}
    rise = (0.09 - (coupler - 0.5) ** 2) ** 0.5
    return {
        "method": method,
        "gravity": ["0 m/s^2", "0 m/s^2"],
        "bodies": {
            "left": {**bar, "centre": point(0.0, 0.15)},
            "coupler": {**bar, "centre": point(0.25, 0.3)},
            "right": {**bar, "centre": point(0.5, 0.15)},
        },
        "joints": {
            "base_left": {"type": "revolute", "between": ["ground", "left"], "point": point(0, 0),
                          "start_speed": speed},
            "top_left": {"type": "revolute", "between": ["left", "coupler"], "point": point(0, 0.3)},
            "top_right": {"type": "revolute", "between": ["coupler", "right"], "point": point(coupler, rise)},
            "base_right": {"type": "revolute", "between": ["right", "ground"], "point": point(0.5, 0)},
        },
    }  # fmt: skip


def run(definition: dict[str, Any], seconds: float, settings: RunSettings = DEFAULT_SETTINGS) -> CircuitRun:
    library = standard_library()
    circuit = read_circuit({"mechanisms": {"m": {"definition": definition}}}, library)
    return run_circuit(circuit, library, None, seconds, settings=settings)


def random_linkage(method: str, seed: int, offset: float) -> tuple[dict[str, Any], RunSettings]:
    """A parallelogram of random bars that turns at least half in 0.3 s, and a random tick.

    ``offset``: coupler longer than the base, as a fraction of the crank; 0 makes it a parallelogram.
    """
    rng = np.random.default_rng(seed)
    crank, base = float(rng.uniform(0.1, 0.6)), float(rng.uniform(0.3, 1.2))
    rpm = float(rng.choice([-1.0, 1.0]) * rng.uniform(100.0, 300.0))
    coupler = base + offset * crank
    rise = (crank**2 - (coupler - base) ** 2) ** 0.5
    ends = {"left": (0.0, 0.0, 0.0, crank), "coupler": (0.0, crank, coupler, rise), "right": (base, 0.0, coupler, rise)}
    bodies = {}
    for name, (x, y, x_end, y_end) in ends.items():
        mass, length = float(rng.uniform(0.2, 5.0)), ((x_end - x) ** 2 + (y_end - y) ** 2) ** 0.5
        centre = point(0.5 * (x + x_end), 0.5 * (y + y_end))
        bodies[name] = {"mass": f"{mass} kg", "inertia": f"{mass * length**2 / 12} kg*m^2", "centre": centre}
    table = linkage(method, 0.5, f"{rpm} rpm") | {"bodies": bodies}
    places = {"base_left": (0, 0), "top_left": (0, crank), "top_right": (coupler, rise), "base_right": (base, 0)}
    for name, place in places.items():
        table["joints"][name]["point"] = point(*place)
    return table, RunSettings(tick=float(rng.choice([1e-3, 5e-4, 2e-3])), tolerance=1.0)


@pytest.mark.parametrize("method", ["absolute", "recursive"])
@pytest.mark.parametrize(("speed", "at"), [("60 rpm", "0.25"), ("58.7 rpm", "0.25"), ("73.1 rpm", "0.20")])
def test_a_parallelogram_passing_its_dead_centre_is_reported(method: str, speed: str, at: str) -> None:
    """From upright, the bars are in one line after a quarter of a turn: said in the run's notes, or why it diverged."""
    try:
        text = " ".join(run(linkage(method, 0.5, speed), 0.4).notes)
    except HilserverError as error:
        text = str(error)
    assert f"mechanism m reaches a change point at {at}" in text
    assert "shorter step does not help" in text


@pytest.mark.slow
def test_many_parallelograms_say_that_they_pass_their_dead_centre() -> None:
    """Whatever bars, masses, speeds and steps: some go wrong, and each of them is reported.

    Which ones go wrong depends on the last bits, which the linear algebra library computes differently on each kind of
    processor.
    """
    wrong = 0
    for method, seed in itertools.product(("absolute", "recursive"), range(20, 45)):
        try:
            found = run(*_with_time(random_linkage(method, seed, 0.0)))
            said = " ".join(found.notes)
            wrong += found.balance.energy.relative_error > 1e-3
        except HilserverError as error:
            said = str(error)
            wrong += 1
        assert "reaches a change point" in said, (method, seed)
    assert wrong > 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["absolute", "recursive"])
@pytest.mark.parametrize("offset", [-0.3, 0.3])
def test_linkages_that_can_go_only_one_way_are_not_reported(method: str, offset: float) -> None:
    """Two cranks whose coupler differs from the base: no change point, and they keep their energy."""
    for seed in range(8):
        found = run(*_with_time(random_linkage(method, seed, offset)))
        assert found.notes == (), seed
        assert found.balance.energy.relative_error < 1e-3


def _with_time(made: tuple[dict[str, Any], RunSettings]) -> tuple[dict[str, Any], float, RunSettings]:
    return made[0], 0.3, made[1]


@pytest.mark.slow
def test_a_change_point_of_the_simulated_machine_is_reported() -> None:
    """A linkage that turns beside the demo's machine, and in its virtual circuit: where it is, and when."""
    rig = load_rig(Path(__file__).parents[2] / "config/rigs/demo.toml")
    tables = copy.deepcopy(dict(rig.sources))
    tables["devices"]["rig"]["machine"]["mechanisms"] = {"turning": {"definition": linkage("absolute", 0.5, "30 rpm")}}
    points = tables["cycle"]["inputs"]["joystick"]["points"]
    tables["cycle"]["inputs"]["joystick"]["points"] = points[:3]
    notes = simulate(assemble(tables, rig.file, standard_library()), ["inverse_static"]).notes
    said = [note for note in notes if "mechanism turning reaches a change point" in note]
    assert {note.partition(":")[0] for note in said} == {"The simulated machine", "The reference simulation"}


@pytest.mark.parametrize("method", ["absolute", "recursive"])
def test_regular_motions_have_no_change_point(method: str) -> None:
    """A parallelogram that stays clear of its dead centre, and a linkage that has none, turned once."""
    assert run(linkage(method, 0.5, "60 rpm"), 0.2).notes == ()
    assert run(linkage(method, 0.42, "-60 rpm"), 0.3).notes == ()


def test_one_body_on_a_ball_joint_is_simulated_plotted_and_animated(tmp_path: Path) -> None:
    found = run(BALL, 0.2)
    files = [*write_run(found, tmp_path), *write_animations(found, tmp_path)]
    assert {path.suffix for path in files} >= {".html", ".csv", ".gif"}
    assert found.error is not None
    assert found.error.deviations
    assert not found.error.too_long


@pytest.mark.parametrize(
    ("moments", "text"),
    [
        (["0.02", "0.03", "0.08"], "no body has one that exceeds the sum of the other two"),
        (["0.02", "0.03", "0.04", "0.03", "0", "0"], "all must be > 0"),
    ],
)
def test_impossible_inertia_is_refused(moments: list[str], text: str) -> None:
    top = {**BALL["bodies"]["top"], "inertia": [f"{J} kg*m^2" for J in moments]}
    with pytest.raises(ConfigurationError, match=text):
        read_mechanism({**BALL, "bodies": {"top": top}})
    thin = {**BALL["bodies"]["top"], "inertia": ["1 kg*m^2", "1 kg*m^2", "2.005 kg*m^2"]}  # a plate, rounded
    read_mechanism({**BALL, "bodies": {"top": thin}})
