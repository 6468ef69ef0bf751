"""Parameters and sub-circuits of circuit files: what they become, what is wrong with them, and how they are changed."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuit_text import IN_SERIES

from hilserver.circuit.change import with_component, with_values
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import pack
from hilserver.errors import ConfigurationError
from hilserver.simulation.circuit_run import read_circuit_file, run_circuit

ROOT = Path(__file__).parents[2]
LIBRARY = standard_library()
LEG = """
description = "An orifice into a chamber, and out of it"
ports = ["P", "T"]

[parameters]
flow = "10 l/min"
volume = "0.2 l"
start = "5 bar"

[components.inlet]
type = "orifice"
ports = { A = "P", B = "chamber" }
nominal_flow = { flow = "=flow", drop = "10 bar" }

[components.chamber]
type = "volume"
ports = { P = "chamber" }
volume = "=volume"

[components.outlet]
type = "orifice"
ports = { A = "chamber", B = "T" }
nominal_flow = { flow = "=2*flow", drop = "10 bar" }

[nodes]
chamber = { pressure = "=start" }
"""
TOP: dict[str, Any] = {
    "parameters": {"p_S": "100 bar", "size": "0.1 l"},
    "components": {
        "supply": {"type": "pressure_source", "ports": {"P": "supply"}, "pressure": "=p_S"},
        "tank": {"type": "tank", "ports": {"T": "tank"}},
        "left": {"type": "subcircuit", "file": "leg.toml", "ports": {"P": "supply", "T": "tank"}},
        "right": {
            "type": "subcircuit",
            "file": "leg.toml",
            "ports": {"P": "supply", "T": "tank"},
            "parameters": {"flow": "20 l/min", "volume": "=3*size"},
        },
    },
}


def leg(name: str, flow: str, twice: str, volume: str) -> dict[str, Any]:
    """A leg as one would write it without a sub-circuit."""
    node = f"{name}.chamber"
    return {
        f"{name}.inlet": {
            "type": "orifice",
            "ports": {"A": "supply", "B": node},
            "nominal_flow": {"flow": flow, "drop": "10 bar"},
        },
        f"{name}.chamber": {"type": "volume", "ports": {"P": node}, "volume": volume},
        f"{name}.outlet": {
            "type": "orifice",
            "ports": {"A": node, "B": "tank"},
            "nominal_flow": {"flow": twice, "drop": "10 bar"},
        },
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "leg.toml").write_text(LEG)
    return tmp_path


def read(folder: Path, table: dict[str, Any]) -> Circuit:
    return read_circuit(table, LIBRARY, str(folder / "top.toml"))


def changed(*path: str, to: object) -> dict[str, Any]:
    """The circuit with one value replaced."""
    table: Any = copy.deepcopy(TOP)
    target = table
    for key in path[:-1]:
        target = target.setdefault(key, {})
    target[path[-1]] = to
    return dict(table)


def refused(folder: Path, table: dict[str, Any]) -> str:
    with pytest.raises(ConfigurationError) as error:
        read(folder, table)
    return str(error.value)


def test_sub_circuits_expand_to_the_equivalent_flat_circuit(folder: Path) -> None:
    """Same table, same arrays, same names."""
    flat = {
        "components": {
            "supply": {**TOP["components"]["supply"], "pressure": "100 bar"},
            "tank": TOP["components"]["tank"],
            **leg("left", "10 l/min", "0.000333333333333333 m^3/s", "0.2 l"),
            **leg("right", "20 l/min", "0.000666666666666667 m^3/s", "0.0003 m^3"),
        },
        "nodes": {f"{name}.chamber": {"pressure": "5 bar"} for name in ("left", "right")},
    }
    circuit = read(folder, TOP)
    assert dict(circuit.source) == flat
    one, other = pack(circuit, LIBRARY), pack(read(folder, flat), LIBRARY)
    assert one.names == other.names
    assert np.array_equal(one.index, other.index)
    assert np.array_equal(one.value, other.value)


def test_each_branch_rests_at_its_analytic_pressure(folder: Path) -> None:
    """The outlet is twice the inlet: Q = K sqrt(100 bar - p) = 2 K sqrt(p), so p = 20 bar, whatever the size."""
    run = run_circuit(read(folder, TOP), LIBRARY, duration=2.0)
    for name in ("left", "right"):
        assert run.series[f"{name}.chamber.p"][-1] == pytest.approx(20e5, rel=1e-6)


def test_a_circuit_from_a_log_needs_no_other_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    circuit, elsewhere = read(folder, TOP), tmp_path_factory.mktemp("elsewhere")
    for table in (circuit.source, circuit.written):
        again = read(elsewhere, dict(table))
        assert np.array_equal(pack(again, LIBRARY).value, pack(circuit, LIBRARY).value)
        assert again.source == circuit.source
    assert read(elsewhere, dict(circuit.written)).written == circuit.written


def test_a_sub_circuit_within_a_sub_circuit(folder: Path) -> None:
    """Names lead through both; a parameter of the outer one is given on to the inner one."""
    (folder / "inner").mkdir()
    (folder / "leg.toml").rename(folder / "inner" / "leg.toml")
    (folder / "pair.toml").write_text("""
ports = ["P", "T"]
parameters = { flow = "1 l/min" }
[components.first]
type = "subcircuit"
file = "inner/leg.toml"
ports = { P = "P", T = "middle" }
parameters = { flow = "=flow" }
[components.second]
type = "subcircuit"
file = "inner/leg.toml"
ports = { P = "middle", T = "T" }
[components.line]
type = "volume"
ports = { P = "middle" }
volume = "1 l"
""")
    table = changed("components", "left", "file", to="pair.toml")
    del table["components"]["right"]
    table["components"]["left"]["parameters"] = {"flow": "7 l/min"}
    components = read(folder, table).source["components"]
    assert components["left.first.inlet"]["nominal_flow"]["flow"] == "7 l/min"
    assert components["left.second.inlet"]["nominal_flow"]["flow"] == "10 l/min"
    assert components["left.second.inlet"]["ports"] == {"A": "left.middle", "B": "left.second.chamber"}


def test_signals_are_ports_too(folder: Path) -> None:
    """A signal of a sub-circuit comes from outside only through a port, from a signal or as a number."""
    (folder / "leg.toml").write_text("""
ports = ["P", "T", "demand"]
[components.source]
type = "flow_source"
ports = { P = "P", T = "T" }
flow = "1 l/min"
command = "demand"
[components.other]
type = "flow_source"
ports = { P = "P", T = "rig.T" }
flow = "1 l/min"
command = "own"
""")
    table = copy.deepcopy(TOP)
    table["components"]["right"].pop("parameters")
    table["components"]["left"]["ports"]["demand"] = "joystick"
    table["components"]["right"]["ports"]["demand"] = 0.5
    circuit = read(folder, table)
    assert circuit.inputs() == ["joystick", "left.own", "right.own"]
    assert circuit.source["components"]["right.source"]["command"] == 0.5
    assert circuit.rig_ports() == ["T"]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("components", "supply", "pressure"), "=p_s", 'top.toml: components.supply.pressure: "=p_s": there is no'),
        (("components", "supply", "pressure"), "=p_S + size", "a value in Pa can't be added to one in m^3"),
        (("components", "supply", "pressure"), "=size", 'the wrong unit: this value is measured in Pa; write it like'),
        (("components", "supply", "pressure"), "=size", 'It follows from "=size".'),
        (("components", "supply", "pressure"), "=10**400*p_S", "its value is too large"),
        (("parameters", "p_S"), "=size2", 'top.toml: parameters.p_S: "=size2": there is no parameter "size2".'),
        (("parameters", "p_S"), float("nan"), "parameters.p_S: nan: nan is not a finite number"),
        (("parameters", "p_S"), "=p_S", "the parameters p_S -> p_S depend on each other"),
        (("parameters", "pi"), 3, "parameters.pi: pi is reserved in expressions"),
        (("parameters", "a-b"), 3, "parameters.a-b: the name of a parameter consists of letters"),
        (("parameters",), 3, "top.toml: parameters: 3 is not a table"),
        (("components", "left", "file"), "../leg.toml", "top.toml: components.left: file: \"../leg.toml\" must be"),
        (("components", "left", "file"), "/leg.toml", "must be a TOML file in the folder of the circuit file"),
        (("components", "left", "file"), "no.toml", "no.toml: no such file."),
        (("components", "left", "files"), 1, "components.left.files: unknown key. Did you mean file?"),
        (("components", "left", "ports"), {"P": "a"}, "components.left.ports.T: port is not connected"),
        (("components", "left", "ports", "Q"), "a", "components.left.ports.Q: the sub-circuit has no such port."),
        (("components", "left", "ports", "P"), 1, "leg.toml:12: components.inlet.ports.A: 1 is not the name of a node"),
        (("components", "left", "ports", "P"), [], "components.left.ports.P: [] is neither"),
        (("components", "left", "parameters"), {"flo": 1}, "components.left.parameters.flo: there is no such"),
        (("components", "left", "parameters"), 1, "components.left.parameters: 1 is not a table"),
        (
            ("components", "left", "parameters"),
            {"volume": "1 bar"},
            'leg.toml:18: components.chamber.volume: "1 bar" has the wrong unit',
        ),
        (("components", "left", "parameters"), {"flow": "-1 l/min"}, "leg.toml:13: components.inlet.nominal_flow.flow"),
        (("components", "left", "parameters"), {"flow": "-1 l/min"}, "(In sub-circuit left of "),
        (("components", "left", "definition"), {}, "components.left: give file, such as"),
        (("components", "left.inlet"), {"type": "tank", "ports": {"T": "t"}}, 'two components called "left.inlet"'),
        (("nodes", "left.chamber"), {"pressure": "1 bar"}, 'two nodes called "left.chamber"'),
        (("ports",), ["P"], "ports: this is a sub-circuit"),
    ],
)  # fmt: skip
def test_an_error_in_a_sub_circuit_is_located(
    folder: Path, path: tuple[str, ...], value: object, expected: str
) -> None:
    assert expected in refused(folder, changed(*path, to=value))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("solver = { substeps = 3 }\n", "leg.toml:1: solver: belongs to the circuit"),
        ("port = 3\n", "leg.toml:1: port: unknown key. Did you mean ports?"),
        ("nodes = { P = { pressure = '1 bar' } }\n", "leg.toml:1: nodes.P: is a port"),
        ("components = 3\n", "leg.toml:1: components: 3 is not a table"),
    ],
)
def test_an_error_in_a_sub_circuit_file_is_located(folder: Path, text: str, expected: str) -> None:
    beginning = LEG.partition("[components.inlet]")[0].replace("[parameters]", "[parameters.x]")
    (folder / "leg.toml").write_text(text + beginning)
    table = copy.deepcopy(TOP)
    table["components"]["right"].pop("parameters")
    assert expected in refused(folder, table)


def test_a_node_without_volume_is_reported_where_it_is_written(folder: Path) -> None:
    """One inside of a sub-circuit in its file; one that a sub-circuit's port connects to, where that is connected."""
    (folder / "leg.toml").write_text(LEG.partition("[components.chamber]")[0] + IN_SERIES)
    table = changed("components", "left", "ports", "P", to="nowhere")
    file = folder / "top.toml"
    circuit = read_circuit(table, LIBRARY, str(file))
    with pytest.raises(ConfigurationError) as error:
        pack(circuit, LIBRARY, file=str(file))
    found = {(Path(p.file).name, p.key): p.message for p in error.value.problems}
    assert "(In sub-circuit right of " in found["leg.toml", "components.first.ports.B"], "the last one"
    assert '"nowhere" has no volume' in found["top.toml", "components.left.ports.P"]
    line = 1 + (folder / "leg.toml").read_text().splitlines().index('ports = { A = "P", B = "between" }')
    assert f'/leg.toml:{line}: components.first.ports.B: node "left.between" has no volume' in str(error.value)


def test_every_problem_is_reported_once(folder: Path) -> None:
    (folder / "leg.toml").write_text(LEG.replace('"=volume"', '"=volum"'))
    text = refused(folder, TOP)
    assert text.count("\n") == 0
    said = 'leg.toml:18: components.chamber.volume: "=volum": there is no parameter "volum". Did you mean volume?'
    assert text.endswith(said)


def test_a_hint_ends_as_a_question_before_the_expression(folder: Path) -> None:
    (folder / "leg.toml").write_text(LEG.replace('volume = "=volume"', 'volum = "=volume"'))
    assert 'Did you mean volume? It follows from "=volume". (In sub-' in refused(folder, TOP)


def test_a_file_that_contains_itself_is_refused(folder: Path) -> None:
    inner = '[components.again]\ntype = "subcircuit"\nfile = "leg.toml"\nports = { P = "P", T = "T" }\n'
    (folder / "leg.toml").write_text(LEG.partition("[parameters]")[0] + inner)
    assert "a sub-circuit can't contain itself (leg.toml -> leg.toml)" in refused(folder, TOP)


def test_files_that_multiply_are_refused(folder: Path) -> None:
    """Twelve files, each naming the next one twice: 8190 sub-circuits."""
    for k in range(12):
        twice = "".join(
            f'[components.{name}]\ntype = "subcircuit"\nfile = "{k + 1}.toml"\nports = {{}}\n' for name in "ab"
        )
        (folder / f"{k}.toml").write_text("ports = []\n" + twice)
    (folder / "12.toml").write_text("ports = []\n")
    table = {"components": {"a": {"type": "subcircuit", "file": "0.toml", "ports": {}}}}
    assert "at most 1000 sub-circuits" in refused(folder, table)


def test_values_and_parameters_are_changed_by_name(folder: Path) -> None:
    """What a `switch` names: a component inside, a sub-circuit, or the circuit's own parameters."""
    written = read(folder, TOP).written
    supply = read(folder, with_values(written, "parameters", {"p_S": "50 bar"})).source["components"]["supply"]
    assert supply["pressure"] == "50 bar"
    right = read(folder, with_values(written, "right", {"flow": "30 l/min"})).source["components"]
    assert right["right.inlet"]["nominal_flow"]["flow"] == "30 l/min"
    assert right["left.inlet"]["nominal_flow"]["flow"] == "10 l/min"
    inside = read(folder, with_values(written, "left.inlet", {"nominal_flow.flow": "3 l/min"})).source["components"]
    assert inside["left.inlet"]["nominal_flow"] == {"flow": "3 l/min", "drop": "10 bar"}
    assert inside["left.outlet"] == read(folder, TOP).source["components"]["left.outlet"]
    other = with_component(
        written, "left.chamber", "pipe", {"length": "1 m", "inner_diameter": "16 mm", "wall_thickness": "2 mm"}
    )
    assert read(folder, other).source["components"]["left.chamber"]["ports"] == {"P": "left.chamber"}
    assert read(folder, TOP).written == written


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("parameters", {"p_s": "50 bar"}, "parameters.p_s: there is no such parameter. Did you mean p_S?"),
        ("right", {"flo": "1 l/min"}, "right.flo: there is no such parameter. Did you mean flow?"),
        ("right.inlt", {}, 'the circuit has no component "right.inlt". Did you mean right.inlet?'),
        ("right.parameters", {}, "the circuit has no component"),
        ("middle", {}, 'the circuit has no component "middle".'),
    ],
)
def test_a_change_of_nothing_is_refused(folder: Path, name: str, values: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected.replace("?", r"\?").replace(".", r"\.")):
        with_values(read(folder, TOP).written, name, values)


def test_only_a_component_gets_another_type(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match='"parameters" is not a component'):
        with_component(read(folder, TOP).written, "parameters", "pipe", {})


def test_a_parameter_that_is_a_table_is_changed_in_part_where_it_is_given(folder: Path) -> None:
    (folder / "leg.toml").write_text(
        LEG.replace('flow = "10 l/min"', 'flow = "10 l/min"\nnominal = { flow = "=flow", drop = "7 bar" }').replace(
            'nominal_flow = { flow = "=flow", drop = "10 bar" }', 'nominal_flow = "=nominal"'
        )
    )
    table = copy.deepcopy(TOP)
    table["components"]["right"]["parameters"]["nominal"] = {"flow": "2 l/min", "drop": "6 bar"}
    written = read(folder, table).written
    inlet = read(folder, with_values(written, "right", {"nominal.drop": "5 bar"})).source["components"]["right.inlet"]
    assert inlet["nominal_flow"] == {"flow": "2 l/min", "drop": "5 bar"}
    with pytest.raises(ConfigurationError, match=r"left\.nominal\.drop: give the whole parameter nominal"):
        with_values(written, "left", {"nominal.drop": "5 bar"})


def test_a_mechanism_has_parameters() -> None:
    """The slider-crank with a crank of another length, set by the circuit; the file's own value is the default."""
    definition = tomllib.loads("""
[parameters]
length = "0.2 m"
mass = "1 kg"
[bodies.arm]
mass = "=mass"
inertia = "=mass*length**2/12"
centre = ["=length/2", "0 m"]
[joints.pin]
point = ["0 m", "0 m"]
between = ["ground", "arm"]
""")
    table: dict[str, Any] = {"mechanisms": {"arm": {"definition": definition}}}
    body = read_circuit(table, LIBRARY).mechanisms[0].mechanism.bodies["arm"]
    assert body.inertia == pytest.approx((0.04 / 12,))
    assert body.centre == pytest.approx((0.1, 0.0))
    table["parameters"], table["mechanisms"]["arm"]["parameters"] = {"half": "0.3 m"}, {"length": "=2*half"}
    circuit = read_circuit(table, LIBRARY)
    assert circuit.mechanisms[0].mechanism.bodies["arm"].inertia == pytest.approx((0.36 / 12,))
    longer = read_circuit(with_values(circuit.written, "arm", {"length": "1 m"}), LIBRARY)
    assert longer.mechanisms[0].mechanism.bodies["arm"].centre == pytest.approx((0.5, 0.0))
    table["mechanisms"]["arm"]["parameters"] = {"lenth": "1 m"}
    with pytest.raises(ConfigurationError, match=r"arm\.parameters\.lenth: there is no such parameter .* length\?"):
        read_circuit(table, LIBRARY)


def test_a_mechanism_file_by_itself_has_its_own_values(tmp_path: Path) -> None:
    file = tmp_path / "arm.toml"
    file.write_text("""
parameters = { length = "0.2 m" }
[bodies.arm]
mass = "1 kg"
inertia = "=1*length"
centre = ["=length/2", "0 m"]
[joints.pin]
point = ["0 m", "0 m"]
between = ["ground", "arm"]
""")
    with pytest.raises(ConfigurationError) as error:
        read_circuit_file(file, LIBRARY)
    assert 'arm.toml:5: bodies.arm.inertia[0]: "0.2 m" has the wrong unit' in str(error.value)
    file.write_text(file.read_text().replace("=1*length", "0.1 kg*m^2"))
    assert read_circuit_file(file, LIBRARY).mechanisms[0].mechanism.bodies["arm"].centre == pytest.approx((0.1, 0.0))


@pytest.mark.parametrize(("name", "count"), [("excavator", 3), ("crane", 2)])
def test_circuits_that_repeat_themselves_use_them(name: str, count: int) -> None:
    table = tomllib.loads((ROOT / f"config/circuits/{name}.toml").read_text())
    assert [part["type"] for part in table["components"].values()].count("subcircuit") == count
