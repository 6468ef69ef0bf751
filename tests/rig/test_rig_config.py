"""Loading a rig: everything that is wrong is reported at once, with file, key, value and what would be right."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rig_bench import BAR, CIRCUIT, L_MIN, RIG, bench_rig, merged

from hilserver.circuit.library import standard_library
from hilserver.errors import ConfigurationError, Problem
from hilserver.rig.build import assemble, load_rig
from hilserver.tick import plan as plan_module
from hilserver.tick.codes import Action, Characteristic, Watched
from hilserver.toml import read_toml
from hilserver.units import ATMOSPHERE

CONFIG = Path(__file__).parents[2] / "config"
SIMULATED = ("circuits/machine.toml", "circuits/drive.toml", "circuits/lift.toml", "cycles/lift.toml", "rigs/demo.toml")


def problems(changes: Mapping[str, Any], **others: Any) -> str:
    """The problems reported for the bench's rig with these changes, one per line."""
    with pytest.raises(ConfigurationError) as caught:
        bench_rig(changes, **others)
    return str(caught.value)


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A copy of the demo's files that a test may spoil; the rig file."""
    for name in SIMULATED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((CONFIG / name).read_bytes())
    return tmp_path / "rigs/demo.toml"


def spoil(file: Path, old: str, new: str) -> None:
    """Replace a text that occurs in the file."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def said_about(rig_file: Path) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load_rig(rig_file)
    return [str(problem) for problem in caught.value.problems]


# --- what is right ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(CONFIG.glob("rigs/*.toml")), ids=lambda file: file.stem)
def test_the_rigs_of_the_project_load(file: Path) -> None:
    rig = load_rig(file)
    assert len(set(rig.layout.names)) == len(rig.layout.names)
    assert len(rig.plan.limit) == len(rig.layout.limits)


def test_plan_of_a_valve_contains_its_datasheet_in_si() -> None:
    """By hand: C_v = 1e-3 m³/s / sqrt(35e5 Pa), tau = 1/(2·pi·70 Hz), gain 0.5 per 60 l/min; leakage as given."""
    leakage = {"flow": "1 l/min", "drop": "70 bar", "per": "edge"}
    v = bench_rig({"valves": {"main": {"leakage": leakage, "null": "2 %", "polarity": -1}}}).plan.valve[0]
    assert v.C_PA == v.C_AT == pytest.approx(1e-3 / 35e5**0.5, rel=1e-12)
    assert v.tau == pytest.approx(1 / (2 * np.pi * 70), rel=1e-12)
    assert v.leak_PA == v.leak_AT == pytest.approx(L_MIN / 70e5**0.5, rel=1e-12)
    assert v.leak_gone == 0.1
    assert v.K_p == pytest.approx(0.5 / (60 * L_MIN), rel=1e-12)
    assert (v.null, v.polarity, v.raw_gain, v.raw_offset) == (0.02, -1.0, 10.0, 0.0)
    assert v.stop_rate == pytest.approx(5.0)


def test_a_stop_is_never_faster_than_the_slew_limit() -> None:
    v = bench_rig({"valves": {"main": {"slew": "2 1/s", "stop_time": "10 ms"}}}).plan.valve[0]
    assert v.stop_rate == v.slew_rate == 2.0


def test_channels_are_linear_and_absolute_ones_become_gauge() -> None:
    """4 … 20 mA is 0 … 400 bar absolute: gain 400e5/16, offset -4·gain - 101325."""
    scale = {"raw": [4, 20], "value": ["0 bar", "400 bar"]}
    channels = {"p_A": {"scale": scale, "absolute": True}, "p_T": {"value": "1.01325 bar", "absolute": True}}
    plan = bench_rig({"channels": channels}).plan
    table = plan.channel
    assert (table[0].characteristic, table[0].first, table[0].last) == (Characteristic.POLYNOMIAL, 0, 1)
    assert plan.curve["x"][:2] == pytest.approx([-100 * BAR - ATMOSPHERE, 25 * BAR], rel=1e-12)
    assert table[3].constant == pytest.approx(0.0, abs=1e-9)


def test_limits_are_in_the_units_of_their_channel() -> None:
    limits = {"a": {"channel": "p_A", "min": "-1 bar", "max": "90 bar", "max_rate": "5000 bar/s", "action": "ramp"}}
    rig = bench_rig({"limits": limits})
    assert rig.layout.limits[:2] == ("a", "a.rate")
    assert rig.plan.limit["channel"][:2].tolist() == [0, 0]
    assert rig.plan.limit["watched"][:2].tolist() == [Watched.VALUE, Watched.RATE]
    assert rig.plan.limit["lower"][:2].tolist() == [-1 * BAR, -5000 * BAR]
    assert rig.plan.limit["upper"][:2].tolist() == [90 * BAR, 5000 * BAR]
    assert rig.plan.limit["action"][:2].tolist() == [Action.RAMP, Action.RAMP]


def test_raw_slots_follow_the_devices_and_each_reading_has_one() -> None:
    """Two channels of one reading share its slot."""
    rig = bench_rig({"channels": {"p_A_fine": {**RIG["channels"]["p_A"], "filter": "1 s"}}})
    assert len(rig.layout.raw) == 3
    slots = dict(zip(rig.settings.channels, rig.plan.channel["slot"], strict=True))
    assert slots["p_A"] == slots["p_A_fine"] == 0
    assert slots["p_T"] == -1


# --- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loop": {"max_mised": 3}}, "bench.toml: loop.max_mised: unknown key. Did you mean max_missed?"),
        ({"chanels": {}}, "bench.toml: chanels: unknown key. Did you mean channels?"),
        ({"valves": {"main": {"bridge": {"gian": 1}}}}, "valves.main.bridge.gian: unknown key. Did you mean gain?"),
        ({"valves": {"main": {"nominal_flow": {"drpo": 1}}}}, "nominal_flow.drpo: unknown key. Did you mean drop?"),
        ({"channels": {"p_A": {"fliter": "1 s"}}}, "channels.p_A.fliter: unknown key. Did you mean filter?"),
        ({"loop": {"rate": "1 bar"}}, 'loop.rate: "1 bar" has the wrong unit: this value is measured in 1/s'),
        ({"loop": {"rate": 1000}}, 'loop.rate: 1000 has no unit; write it like "30 Hz"'),
        ({"loop": {"rate": "1000"}}, 'loop.rate: "1000" has no unit: this value is measured in 1/s'),
        ({"loop": {"rate": "30 kHz"}}, 'loop.rate: "30 kHz" is out of range: must be <= 20 kHz'),
        ({"loop": {"max_age": "0 s"}}, 'loop.max_age: "0 s" is out of range: must be > 0'),
        ({"valves": {"main": {"bridge": {"null_band": 1e-18}}}}, "null_band: 1e-18 is out of range: must be >= 0.0001"),
        ({"loop": {"max_missed": "5"}}, 'loop.max_missed: "5" is not a whole number'),
        ({"loop": {"max_missed": True}}, "loop.max_missed: True is not a whole number"),
        ({"loop": {"max_missed": 2.5}}, "loop.max_missed: 2.5 is not a whole number"),
        ({"loop": {"lock_memory": "yes"}}, 'loop.lock_memory: "yes" is not true or false'),
        ({"loop": {"cpus": [-1]}}, "loop.cpus[0]: -1 is out of range"),
        ({"loop": 3}, "loop: 3 is not a table"),
        ({"name": "a/b"}, 'name: "a/b" must be 1 to 40 letters, digits, - and _.'),
        ({"channels": {"p.A": {"value": "1 bar"}}}, 'channels.p.A: "p.A" must be 1 to 40 letters'),
        ({"valves": {"main": {"null": nan}}}, "valves.main.null: nan is not a finite number"),
        ({"valves": {"main": {"raw": [-inf, 10]}}}, "valves.main.raw[0]: -inf is not a finite number"),
        ({"valves": {"main": {"raw": [10**400, 10]}}}, "is not a finite number"),
        ({"valves": {"main": {"raw": [5, 5]}}}, "valves.main.raw: the outputs at command -1 and +1 must differ"),
        ({"valves": {"main": {"raw": [5]}}}, "valves.main.raw[1]: missing"),
        ({"valves": {"main": {"polarity": 0}}}, "valves.main.polarity: 0 is not one of 1 or -1"),
        ({"valves": {"main": {"range": [0.5, 1]}}}, "range: the first value must be below the second"),
        ({"valves": {"main": {"f45": None}}}, "spool dynamics: give f45 (first order) or f90"),
        ({"valves": {"main": {"bridge": {"strategy": "magic"}}}}, "valves.main.bridge.strategy"),
        ({"valves": {"main": {"flow": None, "bridge": {"strategy": "flow_servo"}}}}, "flow_servo requires the flow"),
        ({"valves": {"main": {"transition_pressure": "40 bar"}}}, "nominal_flow.drop is 35 bar across one edge, below"),
        ({"valves": {"main": {"supply": "p_s"}}}, 'valves.main.supply: "p_s" is not a channel. Did you mean p_S?'),
        ({"valves": {"main": {"supply": "Q_A"}}}, 'has the unit l/min; a channel with the unit bar is required'),
        ({"valves": {"main": {"flow": "p_A"}}}, 'has the unit bar; a channel with the unit l/min is required'),
        ({"valves": {"main": {"port": "B"}}}, 'valves.main.port: "B" is not a port. Allowed: A.'),
        ({"valves": {"main": {"device": "crad"}}}, '"crad" is not a device. Did you mean card?'),
        ({"valves": {"main": {"output": "vlave"}}}, 'device card has no channel "vlave". Did you mean valve?'),
        ({"valves": {"main": {"dither": {"amplitude": 0.1, "frequency": "500 Hz"}}}}, "valves.main.dither.frequency"),
        ({"valves": {"two": RIG["valves"]["main"]}}, 'valves.two.output: valve "main" is driven by this output too'),
        ({"channels": {"p_A": {"device": "crad"}}}, 'channels.p_A.device: "crad" is not a device. Did you mean card?'),
        ({"channels": {"p_A": {"source": "Z"}}}, 'channels.p_A.source: device card has no channel "Z"'),
        ({"channels": {"p_A": {"source": ""}}}, "channels.p_A.source"),
        ({"channels": {"p_A": {"source": None}}}, "channels.p_A: give device, source and scale"),
        ({"channels": {"p_A": {"value": "1 bar"}}}, "channels.p_A: has a fixed value and device"),
        ({"channels": {"Q_A": {"absolute": True}}}, "channels.Q_A: absolute is for pressures only"),
        ({"channels": {"p_A": {"scale": {"raw": [1, 1]}}}}, "scale.raw: the readings must differ"),
        ({"channels": {"p_A": {"scale": {"value": ["0 bar", "1 l/min"]}}}}, "of the same kind of quantity"),
        ({"channels": {"p_A": {"scale": {"value": ["0 bar", "1 furlong^9"]}}}}, "no channel is measured in this unit"),
        ({"ports": {"A": "p_B"}}, 'ports.A: "p_B" is not a channel'),
        ({"ports": {"A": "Q_A"}}, 'ports.A: channel "Q_A" has the unit l/min; a channel with the unit bar is'),
        ({"inputs": {"flow": {"range": [1, -1]}}}, "range: the first value must be below the second"),
        ({"inputs": {"flow": {"initial": 2}}}, "initial 2 is outside the range -1 … 1"),
        ({"devices": {"card": {"driver": "replya"}}}, '"replya" is not an installed driver. Did you mean replay?'),
        ({"devices": {"card": {"driver": None}}}, "devices.card.driver: missing: name the driver."),
        ({"devices": {"card": {"colums": []}}}, "devices.card.colums: unknown key. Did you mean columns?"),
    ],
)  # fmt: skip
def test_error_names_the_wrong_value(changes: dict[str, Any], said: str) -> None:
    assert said in problems(changes)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"channel": "p_a", "max": "1 bar"}, 'limits.x.channel: "p_a" is not a channel. Did you mean p_A?'),
        ({"channel": "p_A", "max": "1 l/min"}, 'limits.x.max: is in l/min, but channel "p_A" is in bar'),
        ({"channel": "p_A", "min": 3}, 'limits.x.min: is in no unit, but channel "p_A" is in bar'),
        ({"channel": "p_A", "max_rate": "1 m/s"}, 'limits.x.max_rate: is in mm, but channel "p_A" is in bar'),
        ({"channel": "p_A", "max_rate": "1 bar"}, 'write it like "250 bar/s"'),
        ({"channel": "p_A", "max_rate": "0 bar/s"}, "max_rate must be above 0"),
        ({"channel": "p_A", "max": "1 bar", "min": "2 bar"}, "min must be below max"),
        ({"channel": "p_A"}, "give at least one of min, max, max_age, max_rate"),
        ({"channel": "p_A", "max": "1 bar", "action": "explode"}, "limits.x.action"),
    ],
)
def test_error_names_the_wrong_limit(limit: dict[str, Any], said: str) -> None:
    assert said in problems({"limits": {"x": {"action": "trip", **limit}}})


def test_a_limit_with_the_name_of_another_channel_is_refused() -> None:
    """Its age limit would be called like the channel's own: p_A.age."""
    limit = {"channel": "p_S", "max_age": "1 s", "action": "warn"}
    assert "has the name of a channel" in problems({"limits": {"p_A": limit}})
    ages = [name for name in bench_rig({"limits": {"p_S": limit}}).layout.limits if name.endswith(".age")]
    assert ages == ["p_S.age", "p_A.age", "Q_A.age"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"points": [["0 s", 2.0]]}, "cycle.toml: inputs.flow.points[0]: 2 is outside the input's range -1 … 1"),
        ({"points": [["1 s", 0.0], ["1 s", 0.5]]}, "points: times must increase"),
        ({"points": [["-1 s", 0.0]]}, "points: times must increase and not be negative"),
        ({"points": [["1 bar", 0.0]]}, '"1 bar" has the wrong unit'),
        ({"points": [["1 s", nan]]}, "nan is not a finite number"),
        ({"points": []}, "inputs.flow.points"),
        ({}, "inputs.flow: give points"),
        (
            {"sweep": {"amplitude": 1.2}},
            "inputs.flow.sweep: goes from -1.2 to 1.2, outside the input's range -1 … 1",
        ),
        ({"sweep": {"frequencies": ["200 Hz"]}}, "200 Hz is too fast for 1000 ticks per second"),
        ({"sweep": {"frequencies": ["0 Hz"]}}, "inputs.flow.sweep.frequencies[0]"),
        ({"sweep": {"frequencies": []}}, "inputs.flow.sweep.frequencies"),
        ({"points": [["0 s", 0.0]], "shape": "round"}, "inputs.flow.shape"),
    ],
)
def test_error_names_the_wrong_entry_of_a_work_cycle(entry: dict[str, Any], said: str) -> None:
    assert said in problems({"cycle": "cycle.toml"}, cycle={"inputs": {"flow": entry}})


def test_a_work_cycle_names_inputs_of_the_rig() -> None:
    cycle = {"inputs": {"flwo": {"points": [["0 s", 0.0]]}}}
    said = problems({"cycle": "cycle.toml"}, cycle=cycle)
    assert 'inputs.flwo: "flwo" is not an input of the rig. Did you mean flow?' in said


def test_all_problems_of_all_files_at_once() -> None:
    """One in each of rig (a value, a reference, a driver's setting), circuit (pack) and cycle: four, none hidden."""
    circuit = merged(CIRCUIT, {"components": {"leak": {"type": "tank", "ports": {"T": "lost"}}}})
    circuit["components"]["throttle"] = {
        "type": "orifice",
        "ports": {"A": "nowhere", "B": "rig.A"},
        "nominal_flow": {"flow": "1 l/min", "drop": "35 bar"},
    }
    said = problems(
        {"cycle": "cycle.toml", "ports": {"A": "p_A", "B": "p_B"}, "devices": {"card": {"sample_rate": "1 bar"}}},
        circuit=circuit,
        cycle={"inputs": {"flow": {"points": [["0 s", 9]]}}},
    ).splitlines()
    assert len(said) == 4
    for part in (
        "devices.card.sample_rate",
        "ports.B",
        'components.throttle.ports.A: node "nowhere" has no volume',
        "cycle.toml: inputs.flow.points[0]",
    ):
        assert sum(part in line for line in said) == 1, part


def test_a_circuit_needs_the_rigs_ports_and_inputs() -> None:
    circuit = merged(CIRCUIT, {"components": {"source": {"ports": {"P": "rig.B"}, "command": "joystick"}}})
    said = problems({}, circuit=circuit)
    assert 'circuit.toml: components.source.ports.P: "rig.B" is not a port of the rig. The rig\'s ports: rig.A.' in said
    signal = 'components.source.command: signal "joystick" is written by no component and is not an input of the rig.'
    assert f"{signal} The rig's inputs: flow." in said


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = ", "is not valid TOML"),
        (b"\xff\xfe", "can't be read"),
        (b"a = " + b"9" * 5000, "is not valid TOML"),
        (b"a = " + b"[" * 50_000, "is not valid TOML"),
        (b"\x00", "is not valid TOML"),
    ],
)
def test_an_invalid_toml_file_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=said):
        read_toml(file)


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    """Editors on other systems write one."""
    file = tmp_path / "x.toml"
    file.write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert read_toml(file) == {"a": 1}


def test_error_names_all_missing_files(demo: Path) -> None:
    for name in ("circuits/lift.toml", "cycles/lift.toml", "circuits/drive.toml"):
        (demo.parent.parent / name).unlink()
    said = said_about(demo)
    assert len(said) == 3
    assert all(text.endswith("no such file.") for text in said)


# --- simulated devices -----------------------------------------------------------------------------------------------


def test_a_simulated_devices_circuits_are_kept_as_sources_and_built_fresh(demo: Path) -> None:
    rig = load_rig(demo)
    folder = demo.parent.parent / "circuits"
    expected = {key: tomllib.loads((folder / f"{key}.toml").read_text()) for key in ("machine", "drive")}
    assert rig.sources["devices"] == {"rig": expected}
    one, other = rig.plants()["rig"], rig.plants()["rig"]
    one.values[:] = 7.0
    assert not np.any(other.values == 7.0)
    assert len(one.line) == len(rig.devices[0].inputs) == 6
    again = assemble(rig.sources, demo, rig.library)  # as from a log, without the files
    assert again.plants()["rig"].values.tobytes() == other.values.tobytes()


LOST = 'P = "lost", T = "T", A'
SAID = {
    ("circuits/drive.toml", "f90 = ", "f91 = "): (
        "circuits/drive.toml: components.servo_valve.f91: unknown key. Did you mean f90?"
    ),
    ("circuits/machine.toml", 'bore = "63 mm"', 'bore = "63 bar"'): "circuits/machine.toml: components.cylinder.bore",
    ("circuits/machine.toml", '"load_mass"', '"lode_mass"'): '"lode_mass" is not a component type. Did you mean load_',
    (
        "circuits/drive.toml",
        "[components.tank]",
        "[components.cylinder]",
    ): "both circuits have a component of this name",
    ("circuits/machine.toml", "[nodes.B]", "[nodes.Bb]"): "circuits/machine.toml: nodes.Bb: no component connects",
    ("circuits/drive.toml", 'P = "S", T = "T", A', LOST): (
        'circuits/drive.toml: components.servo_valve.ports.P: node "lost" has no volume'
    ),
    ("rigs/demo.toml", 'of = "rod.x"', 'of = "rod.y"'): 'rigs/demo.toml: devices.rig.sensors.x.of: "rod.y" is not',
    ("rigs/demo.toml", 'to = "u"', 'to = "uu"'): 'rigs/demo.toml: devices.rig.actuators.valve.to: "uu" is not a',
    ("rigs/demo.toml", 'source = "p_A"', 'source = "p_Z"'): 'device rig has no channel "p_Z". Did you mean p_',
}


def test_wrong_settings_hide_no_other_problem(demo: Path) -> None:
    """Driver's settings, triggers, references and circuits are checked although the settings are not valid."""
    folder = demo.parent.parent
    trigger = '[recording.triggers.peak]\nwhen = "p_C > 200 bar"\n[recording.triggers.level]\nwhen = "p_A > 3 mm"\n'
    spoil(demo, "[loop]", f"{trigger}[loop]")
    spoil(demo, 'rate = "1 kHz"', 'rate = "1 kg"')
    spoil(demo, 'driver = "simulated"', 'driver = "simulated"\nsed = 3')
    spoil(demo, 'A = "p_A"', 'A = "x"')
    spoil(folder / "circuits/machine.toml", 'bore = "63 mm"', 'bore = "63 bar"')
    spoil(folder / "circuits/drive.toml", "f90 = ", "f91 = ")
    spoil(folder / "circuits/lift.toml", "[nodes.supply]", "[nodes.suply]")
    spoil(folder / "cycles/lift.toml", "joystick", "joystik")
    expected = {
        'rigs/demo.toml: loop.rate: "1 kg" has the wrong unit',
        "rigs/demo.toml: devices.rig.sed: unknown key. Did you mean seed?",
        'rigs/demo.toml: ports.A: channel "x" has the unit mm',
        'rigs/demo.toml: recording.triggers.peak.when: "p_C" is not a channel.',
        "rigs/demo.toml: recording.triggers.level.when: p_A is measured in Pa, not in m.",
        'circuits/machine.toml: components.cylinder.bore: "63 bar" has the wrong unit',
        "circuits/drive.toml: components.servo_valve.f91: unknown key. Did you mean f90?",
        "circuits/lift.toml: nodes.suply: no component connects",
        'cycles/lift.toml: inputs.joystik: "joystik" is not an input of the rig. Did you mean joystick?',
    }
    said = [text.removeprefix(f"{folder}/") for text in said_about(demo)]
    assert len(said) == len(expected)
    assert {start for start in expected if any(text.startswith(start) for text in said)} == expected


@pytest.mark.parametrize(("file", "old", "new", "said"), [(*change, said) for change, said in SAID.items()])
def test_errors_in_a_simulated_device_are_reported_when_the_rig_is_loaded(
    demo: Path, file: str, old: str, new: str, said: str
) -> None:
    spoil(demo.parent.parent / file, old, new)
    assert any(said in text for text in said_about(demo))


# --- anything at all -------------------------------------------------------------------------------------------------

DEMO = {
    "rig": read_toml(CONFIG / "rigs/demo.toml"),
    "circuit": read_toml(CONFIG / "circuits/lift.toml"),
    "cycle": read_toml(CONFIG / "cycles/lift.toml"),
    "devices": {"rig": {key: read_toml(CONFIG / f"circuits/{key}.toml") for key in ("machine", "drive")}},
}
NUMBERS = [True, 0, -1, 3.7, nan, inf, -inf, 10**400, 1e308]
TEXTS = ["", "x", "5 bar", "-5 bar", "nan bar", "0 l/min", "1e400 bar", "9**9**9**9", "\0", "é", "x" * 10_000, "t"]
TABLES = [[], [1], [1, 2], ["0 bar", "1 bar"], {}, {"a": 1}, [[["x"]]], {"": {}}]
ODD: list[Any] = [*NUMBERS, *TEXTS, *TABLES, "1e300 bar", "1e-300 s", "rig.A"]


def places(table: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All keys and indices of nested tables and lists."""
    entries = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    return [p for key, value in entries for p in ((*path, key), *places(value, (*path, key)))]


PLACES = [path for path in places(DEMO) if (len(path) > 1 and path[:3] != ("devices", "rig")) or len(path) > 3]


@pytest.mark.slow
@settings(max_examples=300)
@given(path=st.sampled_from(PLACES), value=st.one_of(st.none(), st.sampled_from(ODD)))
def test_a_malformed_configuration_is_accepted_or_refused_with_reasons(path: tuple[Any, ...], value: Any) -> None:
    """Any value replaced by an odd one (None: taken away) gives a rig or problems in words, never another error."""
    spoilt = copy.deepcopy(DEMO)
    table: Any = spoilt
    for key in path[:-1]:
        table = table[key]
    if value is None:
        del table[path[-1]]
    else:
        table[path[-1]] = copy.deepcopy(value)
    found = found_in(spoilt)
    assert all(problem.file and problem.message for problem in found)


def found_in(sources: Mapping[str, Any]) -> tuple[Problem, ...]:
    """The problems of a rig's tables; none where it is taken, with a plan that holds numbers only."""
    try:
        rig = assemble(sources, CONFIG / "rigs/demo.toml", standard_library())
    except ConfigurationError as error:
        return error.problems
    tables = (getattr(rig.plan, name) for name in plan_module.TABLES)
    assert not any(np.isnan(table[name]).any() for table in tables for name in table.dtype.names)
    assert not np.isnan(rig.plan.kalman).any()
    return ()
