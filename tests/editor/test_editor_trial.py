"""Trial runs of what is drawn, and sub-circuits as parts."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from service_harness import eventually, is_alive

from hilserver.circuit.catalogue import component_types
from hilserver.circuit.library import standard_library
from hilserver.editor.charts import trial_chart
from hilserver.editor.checks import check
from hilserver.editor.document import CircuitDocument
from hilserver.editor.edits import AddComponent, Connect, SetValue
from hilserver.editor.fields import component_fields
from hilserver.editor.parts import Parts, PortEnd
from hilserver.editor.picture import offered_files, palette, picture_of
from hilserver.editor.session import EditorSession
from hilserver.editor.subcircuit_files import subcircuit_files
from hilserver.editor.trial import main, run_trial, thinned
from hilserver.errors import HilserverError
from hilserver.toml import read_plain_toml
from hilserver.web.display import Units

ROOT = Path(__file__).parents[2]
CIRCUIT = """
components.source = { type = "flow_source", ports = { P = "line", T = "tank" }, command = "inflow", flow = "6 l/min" }
components.line = { type = "volume", ports = { P = "line" }, volume = "1 l" }
components.tank = { type = "tank", ports = { T = "tank" } }
"""


def test_the_text_is_run_with_inputs_that_step(tmp_path: Path) -> None:
    """A flow into a closed volume: dp = K/V · Q · t, from the step on."""
    found = asyncio.run(run_trial(CIRCUIT, tmp_path / "not saved.toml", 1.15, {"inflow": 0.5}))
    assert (found.error, found.notes) == ("", ())
    pressure = next(panel for panel in found.panels if panel.unit == "Pa")
    time, value = pressure.lines["line"][-1]
    volume_in = 0.5 * 6e-3 / 60.0 * (time - 0.125)  # the middle of the ramp from 0.1 s to 0.15 s
    assert time == pytest.approx(1.15)
    assert value == pytest.approx(1.5e9 / 1e-3 * volume_in, rel=0.01)
    chart = trial_chart(pressure, Units())
    assert chart["yAxis"]["name"] == "pressure [bar]"
    assert chart["series"][list(pressure.lines).index("line")]["data"][-1][1] == pytest.approx(value / 1e5)


STARTS_A_TRIAL = """
import asyncio, pathlib, sys
from hilserver.editor.trial import run_trial
file = pathlib.Path(sys.argv[1])
asyncio.run(run_trial(file.read_text(), file, 1.0, {}))
"""


def test_a_run_ends_with_the_editor_also_where_that_is_killed(tmp_path: Path) -> None:
    """A run that would take minutes: its own components wait where they are loaded, and say so."""
    file, started = tmp_path / "circuit.toml", tmp_path / "started"
    (tmp_path / "own.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(started)!r}).write_text(str(os.getpid()))\ntime.sleep(600)\n"
    )
    file.write_text('library = ["own.py"]\n' + CIRCUIT)
    editor, run = subprocess.Popen((sys.executable, "-c", STARTS_A_TRIAL, str(file))), 0
    try:
        run = int(eventually(lambda: started.exists() and started.read_text()))
        assert is_alive(run)
        editor.kill()
        editor.wait()
        eventually(lambda: not is_alive(run))
    finally:
        editor.kill()
        editor.wait()
        if run and is_alive(run):
            os.kill(run, signal.SIGKILL)


def test_what_can_not_be_run_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever a user's own components print when they are loaded."""
    file = tmp_path / "circuit.toml"
    assert "more than 0 s" in asyncio.run(run_trial(CIRCUIT, file, 0.0, {})).error
    (tmp_path / "own.py").write_text('print("loaded")\n')
    text = 'library = ["own.py"]\n' + CIRCUIT
    file.write_text(text)
    order = {"text": text, "file": str(file), "seconds": 1.0, "inputs": {}}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(order)))
    main()
    said = capsys.readouterr()
    assert "own.py" in json.loads(said.out)["error"]
    assert said.err == "loaded\n"


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    assert "aborted after 0.05 s" in asyncio.run(run_trial(CIRCUIT, tmp_path / "c.toml", 600.0, {}, 0.05)).error


def test_thinned_curves_keep_their_extremes() -> None:
    time = np.arange(100_000) / 1e3
    values = np.sin(time)
    values[12_345] = 7.0
    points = np.array(thinned(time, values))
    assert len(points) <= 2 * 752
    assert (points[:, 1].max(), points[:, 1].min()) == (7.0, values.min())
    assert np.all(np.diff(points[:, 0]) > 0)


def test_sub_circuits_are_parts_with_the_ports_of_their_file(tmp_path: Path) -> None:
    file = tmp_path / "machine.toml"
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/axis.toml").write_text((ROOT / "config/circuits/parts/axis.toml").read_text())
    (tmp_path / "other.toml").write_text("x = 1\n")
    assert [name for name, _ in subcircuit_files(file)] == ["parts/axis.toml"]
    assert 'data-file="parts/axis.toml"' in offered_files(dict(subcircuit_files(file)), "cylinder")
    session = EditorSession(CircuitDocument(file, "", None, Parts(standard_library(), tmp_path)))
    name = session.add("subcircuit", (300.0, 200.0), file="parts/axis.toml")
    assert name == "axis"
    session.add("tank", None)
    session.add("pressure_source", None)
    session.make(Connect(PortEnd("axis", "T"), PortEnd("tank", "T")))
    session.make(Connect(PortEnd("axis", "P"), PortEnd("pressure_source", "P")))
    with pytest.raises(HilserverError, match=r"axis.rod is a mechanical port, tank.T a hydraulic one"):
        session.make(Connect(PortEnd("axis", "rod"), PortEnd("tank", "T")))
    session.make(Connect(PortEnd("axis", "command"), "joystick"))
    session.make(AddComponent("load_mass", (30, 5), values={"mass": "100 kg"}))
    session.make(Connect(PortEnd("load_mass", "rod"), PortEnd("axis", "rod")))
    assert session.try_value(_set("pressure_source", "pressure", "100 bar"), "pressure_source", "pressure") == ""
    found = check(session.document)
    assert found.circuit is not None, found.findings
    assert found.circuit.inputs() == ["joystick"]
    ports = {"P": "axis_P", "T": "tank", "rod": "load_mass_rod", "command": "joystick"}
    assert session.document.table["components"]["axis"] == {
        "type": "subcircuit",
        "file": "parts/axis.toml",
        "ports": ports,
    }
    assert 'data-component="axis" data-port="command"' in picture_of(session.sketch, "axis", ())


def _set(part: str, key: str, value: object) -> SetValue:
    return SetValue(("components", part, *key.split(".")), value)


def test_a_wrong_value_is_refused_with_its_reason_and_changes_nothing(tmp_path: Path) -> None:
    text = CIRCUIT.replace("6 l/min", "7 l/min")
    session = EditorSession(CircuitDocument(tmp_path / "c.toml", text, text, Parts(standard_library(), tmp_path)))
    reason = session.try_value(_set("line", "volume", "3 bar"), "line", "volume")
    assert "wrong unit" in reason
    assert (session.document.text, session.document.past) == (text, [])


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("overcentre", "counterbalance_valve"),
        ("NRV", "check_valve"),
        ("ram", "cylinder"),
        ("LS pump", "load_sensing_pump"),
        ("4/3-way", "directional_valve_4_3"),
        ("reservoir", "tank"),
    ],
)
def test_the_palette_knows_the_words_of_the_field(words: str, first: str) -> None:
    found = palette(standard_library().types, words)
    assert found.index(f'data-kind="{first}"') == found.index("data-kind=")


def test_prv_and_ls_find_all_that_are_called_so() -> None:
    for words, kinds in {
        "PRV": {"relief_valve", "reducing_valve"},
        "LS": {"load_sensing_pump", "load_sensing_valve"},
    }.items():
        listed = palette(standard_library().types, words).split('data-kind="')[1:]
        assert kinds <= {each.partition('"')[0] for each in listed[:4]}


EXAMPLES = sorted(path for path in (ROOT / "docs/examples").glob("*.toml") if path.stem in standard_library().types)


def test_every_datasheet_can_be_entered_value_by_value() -> None:
    """From a component of the palette to that of its page, one box after the other."""
    types = component_types(standard_library()).types
    for path in EXAMPLES:
        kind = path.stem
        parts = read_plain_toml(path)["components"].values()
        values = dict(next(p for p in parts if p["type"] == kind))
        document = CircuitDocument(path, "", None, Parts(standard_library(), path.parent))
        session = EditorSession(document)
        name = session.add(kind, None)
        first, others = component_fields(types[kind], {"type": kind})
        for key in [field.key for field in (*first, *others)]:
            top, _, inner = key.partition(".")
            value = values.get(top, {}).get(inner) if inner and isinstance(values.get(top), dict) else values.get(key)
            if value is not None and not (inner and not isinstance(values[top], dict)):
                assert session.try_value(_set(name, key, value), name, key) == "", f"{kind}: {key} = {value}"
        written = document.table["components"][name]
        wanted = {key: value for key, value in values.items() if key in types[kind].values}
        assert {key: value for key, value in written.items() if key in types[kind].values} == wanted
        assert {each.key.partition(".")[0] for each in check(document).findings if each.part == name} <= {
            *("ports", ""),
            *types[kind].inputs,
            *types[kind].outputs,
        }
