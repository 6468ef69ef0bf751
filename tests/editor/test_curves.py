"""Characteristic curves are those of the datasheet, and of analytic solutions where there are some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.circuit.library import standard_library
from hilserver.editor.charts import characteristic_chart
from hilserver.editor.curves import CharacteristicCurves, characteristic
from hilserver.editor.parts import Parts
from hilserver.errors import HilserverError

PARTS = Parts(standard_library(), Path("nowhere"))
RELIEF = {"opening_pressure": "150 bar", "override": [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]]}
NOMINAL = {"flow": "40 l/min", "drop": "35 bar", "per": "edge"}


def curve_of(kind: str, **values: Any) -> CharacteristicCurves:
    found = characteristic({"type": kind, **values}, PARTS, {})
    assert found is not None
    assert found.is_settled
    return found


@pytest.mark.parametrize("kind", ["relief_valve", "static_relief_valve"])
def test_a_relief_curve_passes_through_the_points_of_the_datasheet(kind: str) -> None:
    found = curve_of(kind, **RELIEF)
    np.testing.assert_allclose(found.given, ((155.0, 20.0), (165.0, 60.0)))
    for pressure, flow in found.given:
        assert np.interp(pressure, found.x, found.curves["P → T"]) == pytest.approx(flow, rel=0.02)
    assert np.interp(145.0, found.x, found.curves["P → T"]) == pytest.approx(0.0, abs=1e-6)
    chart = characteristic_chart(found)
    assert [series["name"] for series in chart["series"]] == ["P → T", "datasheet"]
    assert chart["xAxis"]["name"] == "pressure [bar]"


def test_the_flow_over_the_spool_is_nominal_at_full_command() -> None:
    found = curve_of("proportional_valve_4_3", nominal_flow=NOMINAL, f45="30 Hz", command="joystick")
    assert found.across == "command, with 35 bar from P to A and B"
    assert found.curves["P → A"][-1] == pytest.approx(40.0, rel=1e-3)
    assert found.curves["P → B"][0] == pytest.approx(40.0, rel=1e-3)
    assert found.curves["P → A"][0] == pytest.approx(0.0, abs=0.05)
    assert np.all(np.diff(found.curves["P → A"]) > -1e-6)


def test_an_orifice_follows_the_square_root() -> None:
    found = curve_of("orifice", nominal_flow={"flow": "20 l/min", "drop": "10 bar"})
    turbulent = found.x > 2.0
    expected = 20.0 * np.sqrt(found.x[turbulent] / 10.0)
    np.testing.assert_allclose(found.curves["A → B"][turbulent], expected, rtol=5e-3)


def test_a_pump_delivers_up_to_its_pressure() -> None:
    found = curve_of("pressure_compensated_pump", max_flow="60 l/min", set_pressure="140 bar")
    flow = found.curves["out of P"]
    assert np.interp(100.0, found.x, flow) == pytest.approx(60.0, rel=0.01)
    assert flow[-1] == pytest.approx(0.0, abs=0.1)


def test_a_switching_valve_has_a_curve_of_each_position_that_is_open() -> None:
    nominal = {"flow": "60 l/min", "drop": "5 bar"}
    found = curve_of("directional_valve_2_2", nominal_flow=nominal, switching={"on": "40 ms", "off": "40 ms"})
    assert list(found.curves) == ["P → A, command 1"]
    assert np.interp(5.0, found.x, found.curves["P → A, command 1"]) == pytest.approx(60.0, rel=0.01)


@pytest.mark.parametrize("kind", ["volume", "cylinder", "joystick", "subcircuit", "no such type"])
def test_what_has_no_curve_has_none(kind: str) -> None:
    assert characteristic({"type": kind}, PARTS, {}) is None


def test_without_all_values_there_is_a_reason() -> None:
    with pytest.raises(HilserverError, match="missing: this value has no default"):
        characteristic({"type": "relief_valve", "opening_pressure": "150 bar"}, PARTS, {})
