"""What of a delay is assigned to the sensors: drawn cases, limits, and an identified rig."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from unknown_rigs import changed_rig

from hilserver.identify import lateness
from hilserver.identify.estimate import Estimate
from hilserver.identify.evaluation import Evaluation
from hilserver.identify.excitation import Extent
from hilserver.identify.experiment import Experiment
from hilserver.identify.findings import own_delay
from hilserver.identify.identification import Identified, identify_valve
from hilserver.identify.influences import common_delay, uniform, unseen_delay, valve_delay
from hilserver.identify.lateness import with_lateness
from hilserver.identify.report import fragment
from hilserver.identify.simulated_excitation import recorded_excitation
from hilserver.identify.suspicions import about_the_delay
from hilserver.rig.valves import corner_frequency
from hilserver.toml import parse_with_tolerances
from hilserver.units import to_si

DT, FITTED = 1e-3, 0.2e-3
STATED = 5e-3
"""s: stated delay of each valve and channel, long enough for nothing to end at 0."""


def files(x: str, valve: str) -> dict[str, Any]:
    """The rig file, with these tolerances of the delays of channel x and the valve."""
    text = f"[channels]\nx.delay = '5 ms{x}'\np_A.delay = '5 ms'\n[valves.own]\ndelay = '5 ms{valve}'\n"
    return {"rig": parse_with_tolerances(text.encode(), "rig.toml")}


class Valve:
    """A valve of which a recording showed this delay together with its sensors'; p_A is later by ``own``."""

    def __init__(
        self,
        delay: float,
        stated: bool = True,
        known: bool = False,
        others: bool = False,
        own: float = 0.0,
        of_x: str = "",
        of_valve: str = "",
    ) -> None:
        self.delay, self.lateness = delay, None
        self.estimate = {"delay p_A": Estimate(own, FITTED), "delay x": Estimate(0.0, inf)}.__getitem__
        settings = SimpleNamespace(delay=STATED, model_fields_set={"delay"} if stated else set())
        other = SimpleNamespace(port="B", other_port=None, supply="x", tank="p_T", flow=None, spool=None)
        rig = SimpleNamespace(
            channels={"x": SimpleNamespace(delay=STATED), "p_A": SimpleNamespace(delay=STATED)},
            valves={"other": other} if others else {},
            hydraulic_actuators=dict,
            ports={"B": "p_B"},
        )
        self.is_speed_limited = False
        self.experiment = SimpleNamespace(
            settings=settings,
            recording=SimpleNamespace(delays_known=known),
            dt=DT,
            valve="own",
            chambers=["A"],
            rig=SimpleNamespace(settings=rig, sources=files(of_x, of_valve)),
            measured_channels=lambda: ["x", "p_A"],
            reference_channels=lambda: ["x"],
            sensors_of_unknown_delay=list,
        )


@pytest.fixture(autouse=True)
def stubs(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Replace what the module takes from identified valves, except in the test of a rig."""
    if "slow" in request.keywords:
        return
    total = float(np.hypot(FITTED, unseen_delay(DT)))
    monkeypatch.setattr(lateness, "identified_delay", lambda valve: Estimate(valve.delay, total))
    monkeypatch.setattr(lateness, "replace", lambda valve, **changed: SimpleNamespace(**changed))


def assigned(*valves: Any) -> Estimate | None:
    found = with_lateness(list(valves))[0].lateness
    assert found is None or isinstance(found, Estimate)
    return found


@pytest.mark.parametrize("number", [1, 2, 4])
def test_the_error_is_as_large_as_stated_if_delays_are_as_usual(number: int) -> None:
    """Sensors and valves drawn from their densities: the mean square of error over deviation is 1, within 10 %."""
    random, errors = np.random.default_rng(number), []
    for _ in range(2000):
        x, p_A = random.uniform(0.0, common_delay(DT), 2)
        valves = random.exponential(valve_delay(DT), number) + random.normal(0.0, FITTED, number)
        found = assigned(*(Valve(STATED + x + each, own=p_A - x + random.normal(0.0, FITTED)) for each in valves))
        assert found is not None
        errors.append((found.value - x) / found.deviation)
    assert np.mean(np.square(errors)) == pytest.approx(1.0, rel=0.1)


def test_what_all_valves_are_late_is_more_likely_that_of_the_sensors() -> None:
    one, both, different = (
        assigned(*(Valve(STATED + late) for late in excess)) for excess in ([2e-3], [2e-3, 2e-3], [2e-3, 0.0])
    )
    assert one is not None
    assert both is not None
    assert different is not None
    assert different.value < one.value < both.value < 2e-3
    assert both.deviation < one.deviation < uniform(common_delay(DT))


@pytest.mark.parametrize(("own", "common"), [(-1.9e-3, 1.95e-3), (1.9e-3, 0.05e-3)])
def test_sensors_that_differ_by_the_usual_range_lie_at_its_ends(own: float, common: float) -> None:
    """None is earlier than stated, and none is usually more than two ticks later: nothing is left to be divided."""
    found = assigned(Valve(STATED + 2.5e-3, own=own))
    assert found is not None
    assert found.value == pytest.approx(common, abs=0.1e-3)
    assert found.deviation < 0.2e-3


def test_what_a_spool_of_limited_speed_is_late_is_its_own() -> None:
    limited, other = Valve(STATED + 5e-3), Valve(STATED + 1e-3)
    limited.is_speed_limited = True
    assert assigned(limited) is None
    assert assigned(limited, other) == assigned(other)


def test_no_delay_becomes_negative() -> None:
    """Neither that of a valve, which was found to be 0.2 ms, nor that of a channel."""
    found = assigned(Valve(0.2e-3), Valve(STATED + 9e-3))
    assert found is not None
    assert -STATED <= found.value <= 0.2e-3
    found = assigned(*(Valve(STATED - 30e-3) for _ in range(4)))
    assert found is not None
    assert found.value == -STATED


@pytest.mark.parametrize(("own", "least", "most"), [(-7e-3, 2e-3, 2.1e-3), (-5.5e-3, 0.5e-3, 1e-3)])
def test_no_sensor_is_early(own: float, least: float, most: float) -> None:
    """p_A is earlier than x by more than it is stated to be late: x is late by the rest, whatever is usual."""
    found = assigned(*(Valve(STATED + late, own=own) for late in (0.99e-3, 1.01e-3)))
    assert found is not None
    assert least <= found.value <= most


def test_a_delay_that_the_recording_hardly_shows_is_that_of_the_other_pressures() -> None:
    """Outside judge: only the position was late; the supply's sensor was taken to be as late as it."""
    shown = {"p_A": Estimate(-1.52e-3, 0.02e-3), "p_B": Estimate(-1.48e-3, 0.02e-3), "p_S": Estimate(-0.1e-3, 0.6e-3)}
    valve: Any = Valve(STATED)
    valve.experiment.pressures = lambda: list(shown)
    valve.estimate = lambda name: shown.get(name.removeprefix("delay "), Estimate(0.0, inf))
    of_supply = own_delay([valve], "p_S")
    assert of_supply.value == pytest.approx(-1.5e-3)
    assert of_supply.deviation == 0.6e-3
    assert own_delay([valve], "p_A") == shown["p_A"]
    assert own_delay([valve], "x") == Estimate(0.0, inf)
    shown |= {name: Estimate(0.05e-3, 0.02e-3) for name in ("p_A", "p_B")}  # too little to be corrected
    assert own_delay([valve], "p_S") == Estimate(0.0, 0.6e-3)
    shown["p_S"] = Estimate(-1.2e-3, 0.3e-3)
    assert own_delay([valve], "p_S") == shown["p_S"]


@pytest.mark.parametrize("without", [{"stated": False}, {"known": True}, {"others": True}])
def test_the_sensors_keep_their_delays(without: dict[str, Any]) -> None:
    assert assigned(Valve(STATED + 2e-3, **without)) is None


@pytest.mark.parametrize(
    ("tolerances", "common"),
    [({}, 0.7), ({"of_x": " ± 9 ms"}, 0.7), ({"of_x": " ± 0.1 ms"}, 0.0), ({"of_valve": " ± 0.1 ms"}, 0.95)],
)
def test_a_tolerance_beside_a_delay_replaces_the_usual_one(tolerances: dict[str, Any], common: float) -> None:
    """Two valves are later by 2 ms, and no sensor is later than the other."""
    found = assigned(*(Valve(STATED + 2e-3, **tolerances) for _ in "AB"))
    assert found is not None
    assert found.value == pytest.approx(2e-3 * common, abs=0.1e-3)


@pytest.mark.slow
def test_valve_and_sensors_together_are_as_late_as_before() -> None:
    """A lift rig with all unknowns: in its fragment, their sum is the one that the recording shows."""
    rig = changed_rig("lift", 103)
    recording = recorded_excitation(rig, ["A"], Extent(20.0, 0.6, end_stops=False))
    found = identify_valve(rig, recording, "A")
    assert with_lateness([found]) == [found]  # valve B uses these sensors, too
    settings = rig.settings.model_copy(update={"valves": {"A": rig.settings.valves["A"]}})
    alone = replace(found, experiment=Experiment(replace(rig, settings=settings), recording, "A"))
    (divided,) = with_lateness([alone])
    assert divided.lateness is not None
    phase = 360.0 * corner_frequency(alone.experiment.settings) * divided.lateness.deviation
    assert f"is a phase of {phase:.2g}° at the stated -45° frequency" in about_the_delay(divided)
    before, after = (tomllib.loads(fragment(Evaluation(each, recording))) for each in ([alone], [divided]))
    more = to_si(after["channels"]["x"]["delay"], "s") - rig.settings.channels["x"].delay
    assert more > 0.3e-3
    assert "x" in before["channels"]
    assert "delay" not in before["channels"]["x"]
    late = [to_si(text["valves"]["A"]["delay"], "s") for text in (before, after)]
    assert late[0] - late[1] == pytest.approx(more, abs=0.06e-3)
    assert isinstance(found, Identified)
    for name in ("p_A", "p_B", "p_S", "p_T"):
        others = [to_si(text["channels"][name].get("delay", "1 ms"), "s") for text in (before, after)]
        assert others[1] - others[0] == pytest.approx(more, abs=0.11e-3)
