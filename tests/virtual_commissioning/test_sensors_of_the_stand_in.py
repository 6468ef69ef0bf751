"""The sensors of a stand-in show what the channels of the rig file can show, whatever the kind of scale."""

from __future__ import annotations

import numpy as np
import pytest
from component_bench import program
from rig_bench import merged
from slow_lift import slow_lift
from trial_bench import SUPPLY, chosen, run

from hilserver.rig.plausibility import implausible
from hilserver.tick.plant_records import sensors_on
from hilserver.virtual_commissioning.cases import CaseKind
from hilserver.virtual_commissioning.real_rig import _channels
from hilserver.virtual_commissioning.stand_in import stand_in
from hilserver.virtual_commissioning.subject import Subject

pytestmark = pytest.mark.slow


def test_a_sensor_of_the_stand_in_has_the_range_on_its_label() -> None:
    """With a conversion factor it was clipped at the value of one volt, and nearly without noise."""
    found = {}
    scales = {
        "ends": {"raw": [0, 10], "value": ["0 bar", "250 bar"]},
        "factor": {"raw": [0, 1], "value": ["0 bar", "25 bar"], "range": ["0 bar", "250 bar"]},
        "polynomial": {
            "value": None,
            "raw": None,
            "polynomial": [0.0, 25.0],
            "unit": "bar",
            "range": ["0 bar", "250 bar"],
        },
        "unknown": {"raw": [0, 1], "value": ["0 bar", "25 bar"]},
    }
    for name, scale in scales.items():
        rig = slow_lift(1000.0, "prediction", merged(SUPPLY, {"rig": {"channels": {"p_A": {"scale": scale}}}}))
        substitute = stand_in(rig)
        sensor = sensors_on(substitute.plant.sensor)[substitute.measured.index("p_A")]
        found[name] = (sensor.raw_low, sensor.raw_high)
        noise = rig.settings.channels["p_A"].deviation()
        assert noise == pytest.approx(0.0 if name == "unknown" else 5e-4 * 250e5, rel=1e-9)
        assert not [note for note in implausible(rig) if "p_A" in note]
    assert found["ends"] == pytest.approx((0.0, 250e5))
    assert found["factor"] == found["polynomial"] == found["ends"]
    assert found["unknown"][1] > 1e9


def test_a_tare_shifts_the_range_of_a_sensor() -> None:
    """A sensor of 0 … 250 bar less 15 bar of tare shows -15 … 235 bar: a limit of 240 bar is never violated."""
    ends = {"raw": [0, 10], "value": ["0 bar", "250 bar"]}
    limit = {"p_A_high": {"channel": "p_A", "max": "240 bar", "action": "trip"}}
    changes = {"rig": {"channels": {"p_A": {"scale": ends, "tare": "15 bar"}}, "limits": limit}}
    rig = slow_lift(1000.0, "prediction", merged(SUPPLY, changes))
    substitute = stand_in(rig)
    sensor = sensors_on(substitute.plant.sensor)[substitute.measured.index("p_A")]
    assert (sensor.raw_low, sensor.raw_high) == pytest.approx((-15e5, 235e5))
    assert any("p_A_high.max: 240 bar is outside" in note for note in implausible(rig))


def test_a_sensor_with_a_curved_scale_is_simulated() -> None:
    """It could not be inverted: the strategy was unfit, and before arming nothing was examined, without a word."""
    curved = {"value": None, "raw": None, "polynomial": [0.0, 24.0, 0.1], "unit": "bar", "range": ["0 bar", "250 bar"]}
    verdicts = {}
    for name, scale in {"points": {"raw": [0, 10], "value": ["0 bar", "250 bar"]}, "curved": curved}.items():
        rig = slow_lift(1000.0, "prediction", merged(SUPPLY, {"rig": {"channels": {"p_A": {"scale": scale}}}}))
        (found,) = run(rig, ["prediction"], chosen(rig, CaseKind.STEP)[:1]).values()
        verdicts[name] = found.cases[0].figures.judged
    assert verdicts["curved"]["position"] == pytest.approx(verdicts["points"]["position"], abs=2e-3)
    assert verdicts["curved"]["flow"] == pytest.approx(verdicts["points"]["flow"], abs=2e-3)


def test_a_bent_scale_of_4_to_20_mA_is_read_within_its_raw_range() -> None:
    """At 0 bar it had been read as -0.83 mA, a broken wire: the rig tripped."""
    bent = {"value": None, "raw": None, "polynomial": [-1.0, -0.95, 0.3], "unit": "bar", "range": ["0 bar", "100 bar"]}
    limited = {"scale": bent, "valid_raw": [3.6, 21.0]}
    rig = slow_lift(1000.0, "prediction", merged(SUPPLY, {"rig": {"channels": {"p_A": limited}}}))
    (read,) = (c for c in _channels(rig, stand_in(rig)) if c.place == list(rig.layout.raw).index("p_A"))
    assert read.sensor is not None
    readings = np.zeros(read.sensor + 1)
    read.serve(readings)
    assert read.raw == pytest.approx(4.0)


def test_what_a_position_sensor_and_an_unknown_range_mean_is_stated() -> None:
    short = {"rig": {"channels": {"x": {"scale": {"raw": [0, 10], "value": ["0 mm", "500 mm"]}}}}}
    rig = slow_lift(1000.0, "prediction", merged(SUPPLY, short))
    assert any("less than the stroke of 1000 mm" in note for note in implausible(rig))
    factor = {"rig": {"channels": {"x": {"scale": {"raw": [0, 1], "value": ["0 mm", "100 mm"]}}}}}
    rig = slow_lift(1000.0, "prediction", merged(SUPPLY, factor))
    assert not any("stroke" in note for note in implausible(rig))
    assert any("Channel x has no noise" in note for note in Subject(rig, program()).notes)
