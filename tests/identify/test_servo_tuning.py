"""The flow servo with the settings of ``hilserver identify``, on the simulated demo rig."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rig_bench import merged

from hilserver.identify import evaluation, identification
from hilserver.identify.estimate import Estimate
from hilserver.identify.evaluation import EvaluatedValve, Evaluation
from hilserver.identify.excitation import Extent
from hilserver.identify.identification import Identified, identify_valve
from hilserver.identify.recorded import Recording
from hilserver.identify.report import document, fragment, obsolete
from hilserver.identify.simulated_excitation import recorded_excitation
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import Saturation

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"
WRONG = {"nominal_flow": {"flow": "45 l/min", "drop": "35 bar", "per": "edge"}, "f90": "120 Hz", "damping": 0.6}


def demo(valve: dict[str, Any] | None = None, supply: float = 140.0) -> Rig:
    """The demo rig with changes of its valve, and this supply pressure in bar."""
    rig = load_rig(DEMO)
    drive = {"components": {"supply": {"pressure": f"{supply} bar"}}}
    changes = {"rig": {"valves": {"main": valve or {}}}, "devices": {"rig": {"drive": drive}}}
    return assemble(merged(rig.sources, changes), DEMO, rig.library)


def with_servo(bridge: dict[str, Any], supply: float = 140.0) -> Rig:
    return demo({"bridge": {**bridge, "strategy": "flow_servo"}}, supply)


@pytest.fixture(scope="module")
def identified() -> tuple[Recording, Identified]:
    """The valve of the demo rig, whose rig file is wrong about it."""
    rig = demo(WRONG)
    recording = recorded_excitation(rig, ["main"], Extent(15.0, 0.6, end_stops=False))
    return recording, identify_valve(rig, recording, "main")


def test_what_the_sensors_are_late_stays_in_the_loop(identified: tuple[Recording, Identified]) -> None:
    """Valve and sensor together delay the loop, however their delay is divided."""
    recording, found = identified
    late = (replace(found, lateness=Estimate(-each, 0.7e-3)) for each in (1e-3, 2e-3))  # no delay is negative
    servos = [valve.servo for valve in Evaluation(list(late), recording).valves]
    assert servos[0] is not None
    assert servos[1] is not None
    assert vars(servos[1].pid) == pytest.approx(vars(servos[0].pid), rel=1e-9)


@pytest.fixture(scope="module")
def settings(identified: tuple[Recording, Identified]) -> dict[str, Any]:
    """The settings in the fragment of the rig file, with the nominal flow that they refer to."""
    recording, found = identified
    table: dict[str, Any] = tomllib.loads(fragment(Evaluation([found], recording)))["valves"]["main"]
    flow = float(table["nominal_flow"]["flow"].removesuffix(" l/min"))
    bridge: dict[str, Any] = table["bridge"]
    return {**bridge, "gain": bridge["gain"] * 60.0 / flow}


def run_cycle(rig: Rig) -> tuple[dict[str, NDArray[Any]], LockstepRun]:
    """The work cycle: columns of valve main, and the run."""
    with LockstepRun(rig) as run:
        rows = run.run_cycle()
        names = ("flow_virtual", "flow_measured", "command", "saturation")
        return {name: rig.layout.values(rows, f"valve.main.{name}") for name in names}, run


def nrmse(rig: Rig) -> float:
    """RMS of the flow's error over the range of the virtual flow; the sensor's delay of a tick taken out."""
    valve, _ = run_cycle(rig)
    error = valve["flow_measured"][1:] - valve["flow_virtual"][:-1]
    return float(np.sqrt(np.mean(error**2)) / np.ptp(valve["flow_virtual"]))


def oscillates(rig: Rig) -> bool:
    """Whether the bridge reports it, or the command moves by 1 % and more while the virtual valve is closed."""
    valve, run = run_cycle(rig)
    reported = np.any(valve["saturation"] & int(Saturation.OSCILLATION))
    return bool(reported) or run.mode != "RUNNING" or float(np.ptp(valve["command"][-150:])) > 0.01


def test_the_tuned_servo_has_a_smaller_flow_error(settings: dict[str, Any]) -> None:
    """1.39 % with the settings of the rig file (the default ones), 0.53 % with the tuned ones."""
    assert nrmse(with_servo({})) > 0.013
    assert nrmse(with_servo(settings)) < 0.006


@pytest.mark.parametrize(("mass", "dead_volume"), [("1000 kg", "20 ml"), ("5 kg", "0.5 l"), ("5 kg", "20 ml")])
def test_the_tuned_servo_is_stable_with_other_machines(settings: dict[str, Any], mass: str, dead_volume: str) -> None:
    """The load is no part of the tuning: heavy and light, on much oil and on little, at the highest supply pressure."""
    rig = with_servo(settings, 210.0)
    volumes = {"dead_volume_A": dead_volume, "dead_volume_B": dead_volume}
    machine = {"components": {"load": {"mass": mass}, "cylinder": volumes}}
    changes = {"rig": {"cylinders": {"lift": volumes}}, "devices": {"rig": {"machine": machine}}}
    assert not oscillates(assemble(merged(rig.sources, changes), DEMO, rig.library))


@pytest.mark.parametrize("supply", [50.0, 140.0, 210.0])
def test_the_tuned_servo_is_stable_at_any_supply_pressure(settings: dict[str, Any], supply: float) -> None:
    """From 50 bar, which hardly lifts the load, to 1.5 times the pressure at which the valve was identified."""
    assert not oscillates(with_servo(settings, supply))


def test_the_servo_oscillates_beyond_the_stated_gain_margin(
    identified: tuple[Recording, Identified], settings: dict[str, Any]
) -> None:
    """The margin, 3.2, is that of 140 bar over one edge; at the 100 bar of the work cycle it is 3.2·√1.4 = 3.8."""
    recording, found = identified
    servo = EvaluatedValve(found, recording).servo
    assert servo is not None
    margin = servo.loops[servo.drop].margins().gain
    assert not oscillates(with_servo({**settings, "gain": 0.8 * margin * settings["gain"]}))
    assert oscillates(with_servo({**settings, "gain": 1.4 * margin * settings["gain"]}))


def test_settings_agree_with_those_for_the_true_valve(settings: dict[str, Any]) -> None:
    """Identified from a wrong rig file, or calculated from the true values of the simulated valve: the same, 3 %."""
    from hilserver.margins.flow_servo import in_rig_file, servo_margins

    (true,) = servo_margins(demo(), {})
    wanted = tomllib.loads("\n".join(f"{key} = {value}" for key, value in in_rig_file(true.tuned.pid).items()))
    assert settings["gain"] == pytest.approx(wanted["gain"], rel=0.03)
    for key in ("integral_time", "derivative_time", "derivative_filter"):
        got, right = (float(each[key].removesuffix(" ms")) for each in (settings, wanted))
        assert got == pytest.approx(right, rel=0.03)


def test_the_report_shows_margins_and_a_bode_plot(identified: tuple[Recording, Identified], tmp_path: Path) -> None:
    recording, found = identified
    written = document(Evaluation([found], recording)).write(tmp_path, "valves")
    text = next(path for path in written if path.suffix == ".md").read_text()
    section = text[text.index("Flow servo of valve main") :]
    for name in ("gain margin", "phase margin", "delay margin", "M_S", "bandwidth", "| 35 bar across one edge"):
        assert name in section
    assert any(path.name.endswith("main-servo.png") for path in written)


def test_what_follows_from_the_recording_is_computed_once(
    identified: tuple[Recording, Identified], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For fragment, report and obsolete keys together."""
    recording, found = identified
    calls: Counter[str] = Counter()

    def count(module: ModuleType, name: str) -> None:
        real = getattr(module, name)

        def counted(*given: Any) -> Any:
            calls[name] += 1
            return real(*given)

        monkeypatch.setattr(module, name, counted)

    names = ("findings", "trust_findings", "suspicions", "tuned_servo", "machine_findings")
    for name in names:
        count(evaluation, name)
    count(identification, "lag_by_speed")
    evaluated = Evaluation([replace(found)], recording)  # of which nothing is known yet
    fragment(evaluated)
    document(evaluated)
    obsolete(evaluated)
    assert calls == dict.fromkeys((*names, "lag_by_speed"), 1)
