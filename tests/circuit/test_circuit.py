"""Circuits: refusals and their messages, the order of calls, hard limits, carry-over, changes, cache."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from importlib.machinery import SourceFileLoader
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from component_bench import BAR, L_MIN, Bench

from hilserver.circuit import engine
from hilserver.circuit.change import with_component, with_values
from hilserver.circuit.library import Library, standard_library
from hilserver.circuit.model import read_circuit, read_part
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.compiler import compiled_program, linking
from hilserver.compiler.own import fingerprint_of
from hilserver.components.base import Component
from hilserver.errors import ConfigurationError
from hilserver.numerics import linear
from hilserver.tick.records import records_in
from hilserver.tick.row import ValveState

TANK = {"type": "tank", "ports": {"T": "t"}}
VOLUME = {"type": "volume", "ports": {"P": "a"}, "volume": "1 l"}
ORIFICE = {"type": "orifice", "ports": {"A": "a", "B": "t"}, "nominal_flow": {"flow": "10 l/min", "drop": "35 bar"}}
MASS = {"type": "load_mass", "ports": {"rod": "r"}, "mass": "100 kg", "gravity": "0 m/s^2"}
SENSOR = {"type": "pressure_sensor", "ports": {"P": "a"}, "signal": "s"}
RELIEF = {
    "type": "relief_valve",
    "ports": {"P": "a", "T": "t"},
    "opening_pressure": "100 bar",
    "override": [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]],
}
PUMP = {"type": "flow_source", "ports": {"P": "a", "T": "t"}, "flow": "60 l/min", "command": "u"}


def packed(components: Mapping[str, Any], nodes: Mapping[str, Any] | None = None, **options: Any) -> PackedCircuit:
    table = {"components": components, "nodes": nodes or {}}
    return pack(read_circuit(table, standard_library(), "c.toml"), standard_library(), file="c.toml", **options)


def said(components: Mapping[str, Any], nodes: Mapping[str, Any] | None = None, **options: Any) -> list[str]:
    """The message about a circuit that can't be used."""
    with pytest.raises(ConfigurationError) as caught:
        packed(components, nodes, **options)
    return [str(problem) for problem in caught.value.problems]


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_node_without_a_volume_is_named_with_its_components() -> None:
    second = {**ORIFICE, "ports": {"A": "a", "B": "lost"}}
    third = {**ORIFICE, "ports": {"A": "lost", "B": "t"}}
    (problem,) = said({"tank": TANK, "line": VOLUME, "one": second, "two": third})
    assert problem == (
        'c.toml: components.one.ports.B: node "lost" has no volume: its pressure is undefined. '
        "Add a volume, pipe or hose to it (it connects one, two)."
    )


def test_a_node_without_a_mass_is_named() -> None:
    cylinder = {"type": "position_sensor", "ports": {"rod": "r"}, "signal": "x"}
    (problem,) = said({"sensor": cylinder})
    assert 'node "r" has no mass: its motion is undefined' in problem


def test_all_nodes_without_a_volume_are_named() -> None:
    ends = {f"o{k}": {**ORIFICE, "ports": {"A": f"n{k}", "B": "t"}} for k in range(3)}
    assert len(said({"tank": TANK, **ends})) == 3


def test_a_signal_loop_is_named() -> None:
    """A flow sensor without a lag does not exist here; two source kernels of a test component make the loop."""

    class Adder(Component):
        """u_y = u_x: an algebraic signal."""

        type_name = "adder"
        inputs = ("x",)
        outputs = ("y",)

        def parameters(self, fluid: object) -> dict[str, float]:
            return {}

    from hilserver.components.base import kernel

    @kernel(Adder)
    def adder(u_x):  # type: ignore[no-untyped-def]
        u_y = u_x
        return u_y

    library = Library([Adder])
    loop = {"one": {"type": "adder", "x": "b", "y": "a"}, "two": {"type": "adder", "x": "a", "y": "b"}}
    with pytest.raises(ConfigurationError, match=r"signal loop: (one -> two -> one|two -> one -> two)\."):
        pack(read_circuit({"components": loop}, library), library)
    chain = {"two": {"type": "adder", "x": "a", "y": "b"}, "one": {"type": "adder", "x": "in", "y": "a"}}
    circuit = pack(read_circuit({"components": chain}, library), library)
    first = circuit.index[engine.CALLS] + 0
    arguments = [int(circuit.index[circuit.index[first + 4 * k + 1]]) for k in range(2)]
    assert [circuit.values[place] for place in arguments] == ["in", "a"]  # the writer of a comes before its reader


@pytest.mark.parametrize(
    ("components", "nodes", "expected"),
    [
        ({"tank": TANK, "more": TANK}, {}, 'components.more: "t" is also prescribed by tank'),
        ({"tank": {**TANK, "ports": {"T": "rig.A"}}}, {}, "prescribe it; place an orifice or a line in"),
        ({"s1": SENSOR, "s2": SENSOR, "line": VOLUME}, {}, 'components.s2.signal: signal "s" is also written by s1'),
        (
            {"line": VOLUME, "m": {**MASS, "ports": {"rod": "a"}}},
            {},
            '"a" is a hydraulic node elsewhere and a mechanical',
        ),
        ({"line": VOLUME, "s": {**SENSOR, "signal": "a"}}, {}, '"a" is a hydraulic node'),
        (
            {"line": {**VOLUME, "ports": {"Q": "a"}}},
            {},
            "components.line.ports.Q: volume has no such port. Allowed: P.",
        ),
        ({"line": {**VOLUME, "ports": {}}}, {}, "components.line.ports.P: port is not connected"),
        ({"line": {**VOLUME, "ports": {"P": ""}}}, {}, 'components.line.ports.P: "" is not the name of a node'),
        ({"line": {**VOLUME, "type": "volme"}}, {}, '"volme" is not a component type. Did you mean volume?'),
        ({"line": {"ports": {"P": "a"}}}, {}, "components.line.type: missing: give the component type."),
        ({"line": {**VOLUME, "volum": "1 l"}}, {}, "components.line.volum: unknown key. Did you mean volume?"),
        ({"line": {**VOLUME, "volume": "1 bar"}}, {}, 'components.line.volume: "1 bar" has the wrong unit'),
        ({"line": 3}, {}, "components.line: 3 is not a table"),
        ({"a b": VOLUME}, {}, "components.a b: a component's name must not contain brackets, quotes or spaces"),
        ({"line": VOLUME}, {"b": {}}, "nodes.b: no component connects to this node"),
        ({"line": VOLUME}, {"a": {"presure": "1 bar"}}, "nodes.a.presure: unknown key. Did you mean pressure?"),
        ({"line": VOLUME}, {"a": 3}, "nodes.a: 3 is not a table"),
        ({"p": {**PUMP, "command": inf}, "line": VOLUME, "tank": TANK}, {}, "components.p.command: inf is neither"),
        ({}, {}, "a circuit needs at least one component"),
    ],
)
def test_an_error_in_a_circuit_is_located(components: dict[str, Any], nodes: dict[str, Any], expected: str) -> None:
    assert any(expected in problem for problem in said(components, nodes)), said(components, nodes)


def test_two_values_never_share_a_name() -> None:
    """A signal called like the pressure of a node, or like the time, would read something else than was meant."""
    for signal in ("t", "a.p"):
        pump = {**PUMP, "ports": {"P": "a", "T": "tank"}, "command": signal}
        found = said({"pump": pump, "line": VOLUME, "tank": {**TANK, "ports": {"T": "tank"}}})
        assert any(f'"{signal}" would name two values' in problem for problem in found)


def test_all_types_of_the_library_record_each_result_once() -> None:
    for component in standard_library().types.values():
        words = [t.word for contract in standard_library().contracts_of(component) for t in contract.results]
        assert len(set(words)) == len(words), component.type_name


def test_an_invalid_circuit_table_is_refused() -> None:
    for odd in ([1], "x", 3, None):
        with pytest.raises(ConfigurationError, match="is not a table with components"):
            read_circuit(odd, standard_library())  # type: ignore[arg-type]


def test_a_part_of_a_circuit_may_name_what_another_part_has() -> None:
    """Initial values of a node that only the other file connects to; the whole circuit refuses them."""
    table = {"components": {"line": VOLUME}, "nodes": {"elsewhere": {"pressure": "1 bar"}}}
    assert read_part(table, standard_library()).starts["elsewhere"].pressure == BAR
    with pytest.raises(ConfigurationError, match="no component connects"):
        read_circuit(table, standard_library())


# --- what is packed --------------------------------------------------------------------------------------------------


def test_a_sensor_is_packed_and_follows_its_node() -> None:
    """First order, 1 ms: after 20 time constants e^-20 of the step is left."""
    bench = Bench({"components": {"line": VOLUME, "sensor": SENSOR}, "nodes": {"a": {"pressure": "50 bar"}}})
    bench.run(0.02, 1e-4)
    assert bench["s"] == pytest.approx(50 * BAR, rel=1e-8)


def test_a_cylinder_on_a_prescribed_node_has_no_state_there() -> None:
    names = packed({"tank": TANK, "more": {**VOLUME, "ports": {"P": "t"}}, "line": VOLUME, "o": ORIFICE}).values
    assert names.index("t.p") > names.index("t")  # behind the states and the time: prescribed by the tank


def test_bindings_and_ports_point_to_the_right_values() -> None:
    """rig.A's pressure comes from row column 30, the input u from 40; the flow at port A is found, at B it is not."""
    components = {"pump": {**PUMP, "ports": {"P": "rig.A", "T": "t"}}, "tank": TANK}
    circuit = packed(components, bindings={"rig.A": 30, "rig.B": 31, "u": 40, "v": 41}, ports=("A", "B"))
    index, start = circuit.index, circuit.index[engine.BOUND]
    bound = index[start : start + 2 * index[engine.N_BOUND]].reshape(-1, 2)
    assert {circuit.values[place]: int(column) for place, column in bound} == {"rig.A.p": 30, "u": 40}
    ports = index[index[engine.PORTS] : index[engine.PORTS] + 3 * index[engine.N_PORTS]]
    assert list(ports[::3]) == [circuit.values.index("rig.A.q"), len(circuit.values)]  # the second port: not connected
    assert list(ports[2::3]) == [circuit.values.index("rig.A.p"), len(circuit.values)]


def test_states_are_carried_over_by_name_and_kind() -> None:
    old = packed({"pump": {**PUMP, "command": 1}, "tank": TANK, "a1": VOLUME, "relief": RELIEF})
    new = packed({"pump": {**PUMP, "command": 2}, "tank": TANK, "a1": VOLUME, "relief": ORIFICE, "s": SENSOR})
    source = dict(zip(new.values, new.carried_from(old), strict=True))
    assert source["a.p"] == old.values.index("a.p")
    assert source["t"] == old.values.index("t")
    assert source["pump.command"] == -1  # a constant: the new one counts
    assert source["s.y"] == -1  # new
    prescribed = packed({"tank": {**TANK, "ports": {"T": "a"}}})
    assert dict(zip(prescribed.values, prescribed.carried_from(old), strict=True))["a.p"] == -1  # was a state


# --- hard limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("integrator", ["euler", "rk4", "rosenbrock"])
def test_a_closed_relief_valve_does_not_wind_up(integrator: str) -> None:
    """A second below its opening pressure must not delay its opening: the same peak as without that second (1e-6).

    theory §3: K = 0 is a hard floor of the state; without it the opening is late and the peak far too high.
    """
    table = {
        "solver": {"integrator": integrator},
        "components": {"pump": PUMP, "tank": TANK, "line": VOLUME, "relief": RELIEF},
        "nodes": {"a": {"pressure": "60 bar"}},
    }
    peaks = []
    for wait in (0.0, 1.0):
        bench = Bench(table)
        bench.run(wait, 1e-4)
        assert bench["relief.K"] == 0.0
        bench["u"] = 1.0
        record = bench.record(("a.p", "relief.K"), 0.3, 1e-4)
        assert record["relief.K"].min() >= 0.0
        peaks.append(record["a.p"].max())
    assert peaks[1] == pytest.approx(peaks[0], rel=1e-6)
    assert peaks[0] > 115 * BAR  # it does overshoot the 60 l/min point: the test sees the opening


def test_an_initial_value_beyond_a_limit_is_clipped_in_the_first_step() -> None:
    bench = Bench({"components": {"tank": TANK, "line": VOLUME, "relief": RELIEF, "pump": PUMP}})
    bench["relief.K"] = -1.0
    bench.run(1e-4, 1e-4)
    assert bench["relief.K"] >= 0.0


# --- changes to a circuit's table ------------------------------------------------------------------------------------

SOURCE: dict[str, Any] = {"components": {"relief": RELIEF, "o": ORIFICE}}


def test_values_of_a_component_are_set_in_a_copy() -> None:
    changed = with_values(SOURCE, "o", {"nominal_flow.flow": "20 l/min", "description": "x"})
    assert changed["components"]["o"]["nominal_flow"] == {"flow": "20 l/min", "drop": "35 bar"}
    assert SOURCE["components"]["o"]["nominal_flow"] == {"flow": "10 l/min", "drop": "35 bar"}


@pytest.mark.parametrize(
    ("component", "values", "expected"),
    [
        ("relif", {}, 'the circuit has no component "relif". Did you mean relief?'),
        ("o", {"description.text": 1, "nominal_flow": 1}, None),
        (
            "relief",
            {"opening_pressure.x": "1 bar"},
            "components.relief.opening_pressure.x: opening_pressure has no keys",
        ),
    ],
)
def test_a_change_that_can_not_be_made_is_refused(component: str, values: dict[str, Any], expected: str | None) -> None:
    if expected is None:  # made, but refused when the circuit is read
        with pytest.raises(ConfigurationError):
            read_circuit(with_values(SOURCE, component, values), standard_library())
        return
    with pytest.raises(ConfigurationError) as caught:
        with_values(SOURCE, component, values)
    assert expected in str(caught.value)


def test_another_type_keeps_the_connections_of_the_same_name() -> None:
    changed = with_component({"components": {"p": PUMP}}, "p", "pressure_source", {"pressure": "1 bar", "command": 1})
    assert changed["components"]["p"]["ports"] == {"P": "a", "T": "t"}
    moved = with_component({"components": {"p": PUMP}}, "p", "flow_source", {"ports": {"T": "x"}})
    assert moved["components"]["p"]["ports"] == {"P": "a", "T": "x"}


def test_odd_ports_in_a_change_are_refused_when_the_circuit_is_read() -> None:
    changed = with_component({"components": {"p": PUMP}}, "p", "flow_source", {"flow": "1 l/min", "ports": 5})
    with pytest.raises(ConfigurationError, match="5 is not a table such as"):
        read_circuit(changed, standard_library())


# --- the program's cache ---------------------------------------------------------------------------------------------

KERNEL = '''
from hilserver.components.base import Component, kernel

GAIN = {gain}


def helper(x):
    return {helper}


class Scaler(Component):
    """A test component."""

    type_name = "scaler"
    inputs = ("x",)
    outputs = ("y",)

    def parameters(self, fluid):
        return {{}}


@kernel(Scaler)
def scaler(u_x):
    u_y = GAIN * helper(u_x){comment}
    return u_y
'''


@pytest.fixture
def kernels(tmp_path: Path) -> Iterator[Any]:
    """Import a module with a component, written with other constants or helpers, as another process would see it."""
    made: list[str] = []

    def write(gain: float = 2.0, helper: str = "x", comment: str = "") -> ModuleType:
        name, path = "scaler_of_a_test", tmp_path / f"scaler_{len(made)}.py"
        path.write_text(KERNEL.format(gain=gain, helper=helper, comment=comment))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        made.append(name)
        spec.loader.exec_module(module)
        return module

    yield write
    for name in set(made):
        sys.modules.pop(name)


def name(module: ModuleType) -> str:
    return fingerprint_of(Library([module.Scaler]).contracts)


def test_a_changed_kernel_or_what_it_reads_and_calls_is_compiled_again(kernels: Any) -> None:
    """Numba itself would run the old machine code: it does not see changes in other files (numba issue 1833)."""
    first = name(kernels())
    assert name(kernels()) == first
    changes: list[dict[str, Any]] = [{"gain": 3.0}, {"helper": "2 * x"}, {"comment": " + 0.0"}]
    assert len({first, *(name(kernels(**change)) for change in changes)}) == 4


@pytest.mark.parametrize(
    ("module", "constant", "other"),
    [
        ("end_stop", "AT_THE_STOP", 0.004),
        ("row", "TREND_CELLS", 7),
        ("plan", "_valve", records_in(ValveState)),
        ("modes", "Mode", IntEnum("Mode", {"SAFE": 0})),
    ],
)
def test_what_an_imported_function_reads_is_part_of_a_kernels_fingerprint(
    module: str, constant: str, other: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants, fields of records, members of enums: changed ones must not meet old machine code."""
    from hilserver.compiler.own import _collect
    from hilserver.tick import modes, plan, row, tick
    from hilserver.tick.bridge import end_stop

    def seen() -> dict[str, str]:
        found: dict[str, str] = {}
        _collect(tick.tick, found)
        return found

    modules = {"end_stop": end_stop, "row": row, "plan": plan, "modes": modes}
    before = seen()
    monkeypatch.setattr(modules[module], constant, other)
    assert seen() != before


def test_what_a_function_was_made_with_is_part_of_a_kernels_fingerprint() -> None:
    from hilserver.compiler.own import _collect

    def made(factor: float, function: Callable[[float], float]) -> Callable[[float], float]:
        def kernel(x: float) -> float:
            return factor * function(x)

        return kernel

    def seen(factor: float, function: Callable[[float], float]) -> dict[str, str]:
        found: dict[str, str] = {}
        _collect(made(factor, function), found)
        return found

    twice, thrice = made(2.0, abs), made(3.0, abs)
    assert seen(1.0, twice) == seen(1.0, made(2.0, abs))
    assert seen(1.0, twice) != seen(4.0, twice)
    assert seen(1.0, twice) != seen(1.0, thrice)


def test_linked_modules_keep_their_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HEADER is 32 in the engine; a linked module may use the name for something else, but not for a function."""
    file = tmp_path / "other.py"
    file.write_text("HEADER = 7\n\n\ndef header():\n    return HEADER\n\n\ndef advance():\n    return 0\n")
    loader = SourceFileLoader("other", str(file))
    module = ModuleType("other")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "other", module)
    loader.exec_module(module)
    monkeypatch.setattr(linking, "LINKED", (*linking.LINKED, module))
    with pytest.raises(TypeError, match="other: another linked module has a function advance: rename one"):
        linking.linked(standard_library(), "test", tmp_path)


def test_a_program_has_only_its_own_functions() -> None:
    program = compiled_program(standard_library())
    assert callable(program.advance)
    with pytest.raises(AttributeError, match="retreat"):
        _ = program.retreat


# --- the engine's plain parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_the_linear_solver_against_numpy(n: int) -> None:
    """Random matrices that need pivoting (a zero diagonal): agreement to rounding, 1e-9 relative."""
    random = np.random.default_rng(n)
    matrix = random.normal(size=(n, n))
    if n > 1:
        np.fill_diagonal(matrix, 0.0)
    b = random.normal(size=n)
    factors, pivots, x = matrix.ravel().copy(), np.zeros(n), b.copy()
    linear.factorise(factors, n, pivots)
    linear.solve(factors, x, n, pivots)
    assert x == pytest.approx(np.linalg.solve(matrix, b), rel=1e-9)


def test_flows_balance_at_rest() -> None:
    """Pump 10 l/min against an orifice of 10 l/min at 35 bar: 35 bar, and what comes in goes out (1e-9)."""
    bench = Bench(
        {"components": {"pump": {**PUMP, "flow": "10 l/min", "command": 1}, "tank": TANK, "a1": VOLUME, "o": ORIFICE}}
    )
    bench.run(5.0, 1e-3)
    assert bench["a.p"] == pytest.approx(35 * BAR, rel=1e-9)
    assert bench["o.q_B"] == pytest.approx(10 * L_MIN, rel=1e-9)
