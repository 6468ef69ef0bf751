"""Values of a simulated device that drift while it runs.

The judges: the closed form of the pressure in a volume whose oil becomes stiffer; the same circuit run alone; a rig
whose reference simulation would differ if the machine's oil did not change in both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from component_bench import program

from hilserver.circuit.library import standard_library
from hilserver.errors import ConfigurationError
from hilserver.fidelity.cycle_run import run_cycle_on
from hilserver.fidelity.unknowns import UNKNOWNS, varied
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.rig.simulated import build_plant, read_plant
from hilserver.rig.variants import assemble_variant
from hilserver.simulation.packed_run import run_packed
from hilserver.toml import copied
from hilserver_drivers.simulated import SimulatedDrift, SimulatedRigConfig

LIFT = Path(__file__).parents[2] / "config/rigs/lift.toml"
DT, OVER = 1e-3, 0.2
VOLUME, FLOW = 1e-3, 1e-5
FIRST, LAST = 1e9, 2e9
DRIVE: dict[str, Any] = {"components": {}}
MACHINE = {
    "fluid": {"bulk_modulus": f"{FIRST} Pa"},
    "components": {
        "pump": {"type": "flow_source", "ports": {"P": "A", "T": "tank"}, "flow": f"{FLOW} m^3/s"},
        "oil": {"type": "volume", "ports": {"P": "A"}, "volume": f"{VOLUME} m^3"},
        "tank": {"type": "tank", "ports": {"T": "tank"}},
    },
}
STIFFER = {"over": f"{OVER} s", "machine": {"fluid": {"bulk_modulus": f"{LAST} Pa"}}}


def pressures(drift: dict[str, Any] | None, ticks: int) -> tuple[Floats, Floats]:
    """The pressure of the filled volume at the end of each tick: of a simulated device, and of its circuit alone."""
    settings = SimulatedRigConfig.model_validate({
        "machine": "machine.toml",
        "drive": "drive.toml",
        "sensors": {"p": {"of": "A", "value": ["0 bar", "250 bar"]}},
        "drift": drift,
    })  # fmt: skip
    packed = read_plant(MACHINE, DRIVE, standard_library(), drift=settings.drift).packed
    plant, place, found = build_plant(settings, packed, (["p"], []), DT), packed.names.index("A.p"), np.empty(ticks)
    for k in range(ticks):
        program().move(plant, np.zeros(0), DT)
        found[k] = plant.values[place]
    return found, run_packed(program(), packed, DT, [], np.empty((ticks, 0)))[:, place]


def test_oil_that_becomes_stiffer() -> None:
    r"""With :math:`B(t) = B_0 + (B_1 - B_0)\,t/T`, a constant flow gives :math:`p = q/V \int B\,dt`.

    The modulus is that of the start of each tick: half a tick late, which is allowed for.
    """
    ticks = round(2 * OVER / DT)
    found, alone = pressures(STIFFER, ticks)
    t = DT * np.arange(1, ticks + 1)
    drifting = np.minimum(t, OVER)
    exact = FLOW / VOLUME * (FIRST * drifting + (LAST - FIRST) * drifting**2 / (2.0 * OVER) + LAST * (t - drifting))
    half_a_tick = FLOW / VOLUME * (LAST - FIRST) / (2.0 * OVER) * DT * drifting
    np.testing.assert_allclose(found, exact - half_a_tick, rtol=1e-9)
    np.testing.assert_allclose(alone, found, rtol=1e-12)


def test_without_a_drift_nothing_changes() -> None:
    found, alone = pressures(None, 100)
    np.testing.assert_allclose(found, FLOW / VOLUME * FIRST * DT * np.arange(1, 101), rtol=1e-9)
    np.testing.assert_array_equal(alone, found)


@pytest.mark.parametrize(
    ("machine", "key", "text"),
    [
        ({"components": {"pmup": {"flow": "1 l/min"}}}, "drift.machine.components.pmup", "no such component"),
        ({"components": {"oil": {"volume": "-1 l"}}}, "drift.machine.components.oil.volume", "must be > 0 l"),
        ({"components": {"oil": {"colour": 1}}}, "drift.machine.components.oil.colour", "unknown"),
        ({"components": {"pump": {"ports": {"T": "A"}}}}, "drift", "only numbers can drift"),
    ],
)
def test_what_cannot_drift_is_refused_by_its_key(machine: dict[str, Any], key: str, text: str) -> None:
    drift = SimulatedDrift.model_validate({"over": "1 s", "machine": machine})
    with pytest.raises(ConfigurationError) as caught:
        read_plant(MACHINE, DRIVE, standard_library(), drift=drift)
    assert [problem.key for problem in caught.value.problems] == [key]
    assert text in str(caught.value)


# --- a rig ------------------------------------------------------------------------------------------------------------


def with_drift(rig: Rig, **drift: Any) -> dict[str, Any]:
    """The sources of the lift rig with this drift of its simulated device."""
    sources = copied(rig.sources)
    sources["rig"]["devices"]["rig"]["drift"] = drift
    return sources


def test_the_machine_of_the_reference_drifts_too() -> None:
    """The load becomes twice as heavy: unknown to the bridge, but no deviation in itself."""
    rig = load_rig(LIFT)
    sources = with_drift(rig, over="4 s", machine={"components": {"load": {"mass": "780 kg"}}})
    drifting = run_cycle_on(assemble(sources, rig.file, rig.library), "rig", "feedback", program()).result
    constant = run_cycle_on(rig, "rig", "feedback", program()).result
    heavier = np.abs(drifting.reference["pressure A"] - constant.reference["pressure A"])
    assert heavier.max() > 15e5  # of 390 kg on 19.6 cm²: 19.5 bar
    assert drifting.deviations["position rod"].nrmse < 1e-4


def test_a_variant_with_a_drift_is_as_if_it_were_assembled_anew() -> None:
    rig = load_rig(LIFT)
    drifts = [{"fluid": {"air_fraction": 0.02}}, {"fluid": {"air_fraction": 0.01}}]
    for sources in [with_drift(rig, over="60 s", machine=each) for each in drifts]:
        variant, anew = assemble_variant(rig, sources), assemble(sources, rig.file, rig.library)
        plants = [each.first_plants["rig"] for each in (variant, anew)]
        assert [np.asarray(one).tobytes() for one in plants[0]] == [np.asarray(one).tobytes() for one in plants[1]]
        assert (plants[0].last != plants[0].first).any()
        rig = variant


def test_a_wrong_drift_is_named_with_the_rig_file() -> None:
    rig = load_rig(LIFT)
    with pytest.raises(ConfigurationError) as caught:
        assemble(with_drift(rig, over="60 s", drive={"components": {"valve": {"f90": "50 Hz"}}}), rig.file, rig.library)
    problem = caught.value.problems[0]
    assert (problem.key, problem.file) == ("devices.rig.drift.drive.components.valve", str(rig.file))
    assert "Did you mean valve_A" in str(problem)


def test_all_that_is_wrong_with_a_drift_is_named() -> None:
    rig = load_rig(LIFT)
    wrong = {"machine": {"components": {"piston": {}}}, "drive": {"fluid": {"viscocity": "20 mm^2/s"}}}
    with pytest.raises(ConfigurationError) as caught:
        assemble(with_drift(rig, over="60 s", **wrong), rig.file, rig.library)
    keys = [problem.key.removeprefix("devices.rig.drift.") for problem in caught.value.problems]
    assert keys == ["machine.components.piston", "drive.fluid.viscocity"]


def test_oil_that_changes_is_an_unknown() -> None:
    """Viscosity, modulus and air of machine and drive, with the laminar range of the valves' edges."""
    rig = load_rig(LIFT)
    changed = varied(rig, "rig", [u for u in UNKNOWNS if u.name == "changing oil"], seed=1)
    device = assemble(changed, rig.file, rig.library).devices[0].config
    oil = device.drift.machine.fluid
    assert oil == device.drift.drive.fluid
    assert set(oil) == {"viscosity", "bulk_modulus", "air_fraction"}
    assert set(device.drift.drive.components["valve_A"]) == {"transition_pressure"}
    assert 20.0 <= device.drift.over <= 200.0


def test_adaptive_keeps_up_with_a_valve_that_changes() -> None:
    """The flow of both valves falls by a tenth within 6 s: less than half of the deviation of `feedback`."""
    rig = load_rig(LIFT)
    less = {name: {"nominal_flow": {"flow": "54 l/min"}} for name in ("valve_A", "valve_B")}
    changed = assemble(with_drift(rig, over="6 s", drive={"components": less}), rig.file, rig.library)
    fixed, learned = (run_cycle_on(changed, "rig", each, program()).result for each in ("feedback", "adaptive"))
    for quantity, share in (("position rod", 0.5), ("flow A", 0.7), ("flow B", 0.7)):
        assert learned.deviations[quantity].nrmse < share * fixed.deviations[quantity].nrmse
