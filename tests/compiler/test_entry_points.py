"""Entry points of the program: they compute what the Python functions compute, and refuse wrong arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from actuator_rigs import Stand, part
from circuit_runs import run_freely
from lift_bench import lift

from hilserver.circuit import dispatch, engine
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.circuit.program import Argument, Function, Parameter, Record, parameters_of
from hilserver.compiler import linking, standard_program
from hilserver.compiler.circuit_code import SWITCH
from hilserver.numerics.valve_record import through_play
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.lockstep import Attached, run_bridged, run_free
from hilserver.tick.plant import PlantArrays, move
from hilserver.tick.program import ENTRY_POINTS
from hilserver.toml import read_toml

CONFIG = Path(__file__).parents[2] / "config"
RIGS = ("boom", "demo", "frame", "lift")
"""Rigs with simulated devices: each runs a virtual circuit, and those of its machine and drive."""


def test_parameters_are_those_of_the_python_function() -> None:
    assert parameters_of(move)["commands"] is Argument.FLOATS
    assert parameters_of(move)["dt"] is Argument.NUMBER
    plant, devices = parameters_of(move)["plant"], parameters_of(run_bridged)["devices"]
    assert isinstance(plant, Record)
    assert plant.type is PlantArrays
    assert plant.fields[:2] == (Argument.INDICES, Argument.FLOATS)
    assert plant.fields[PlantArrays._fields.index("line")] is Argument.MATRIX
    assert isinstance(devices, Record)
    assert (devices.type, devices.many, devices.cells) == (Attached, True, 2)
    assert devices.one().cells == sum(field.cells for field in devices.fields) > plant.cells
    assert set(parameters_of(run_free).values()) == set(Argument)


def test_every_entry_point_is_callable() -> None:
    program = standard_program()
    for function in ENTRY_POINTS:
        assert isinstance(getattr(program, function.__name__), Function)
    with pytest.raises(AttributeError, match="retreat"):
        _ = program.retreat


def test_a_compiled_function_computes_what_the_python_function_computes() -> None:
    command = np.random.default_rng(1).uniform(-1.0, 1.0, 500)
    compiled, plain = np.empty(500), np.empty(500)
    standard_program().through_play(command, 0.02, 0.01, compiled)
    through_play(command, 0.02, 0.01, plain)
    np.testing.assert_array_equal(compiled, plain)


class _Repeated:
    """A Python function in the place of `Repeated`."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.bound = partial(partial, function)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The Python functions from which the program was compiled, with the generated ``evaluate``."""
    monkeypatch.setenv(SWITCH, "off")  # there is no machine code to jump to
    generated = linking.import_generated(dispatch.generate(standard_library()), "plain", tmp_path)
    for name in dispatch.TABLES:
        monkeypatch.setattr(engine, name, vars(generated)[name])
    for function in ENTRY_POINTS:
        monkeypatch.setattr(function, "repeated", partial(_Repeated, function), raising=False)
    return SimpleNamespace(**{function.__name__: function for function in ENTRY_POINTS})


@pytest.mark.parametrize("name", RIGS)
def test_a_rig_runs_in_plain_python_as_it_does_compiled(name: str, plain: Any) -> None:
    """Every bit of its start: of what it computes, and of what its simulated devices do."""
    found = []
    for program in (standard_program(), plain):
        run = LockstepRun(load_rig(CONFIG / f"rigs/{name}.toml"), program=program, trace=True)
        found.append([np.concatenate([run.start(), run.run(10)]), *map(run.true_values, run.plants)])
    assert all(len(rows) > 10 for rows in found[0])
    assert [rows.tobytes() for rows in found[0]] == [rows.tobytes() for rows in found[1]]


def test_delays_within_a_tick_are_the_same_in_plain_python(plain: Any) -> None:
    """Sensors and actuators of a simulated device, with noise and the steps of a converter."""
    sensors = {name: {"delay": f"{k}.3 ms", "noise": 1e-3, "bits": 14} for k, name in enumerate(("p_A", "p_B", "x"))}
    actuators = {"valve_A": {"delay": "1.3 ms"}, "valve_B": {"delay": "0.25 ms"}}
    rig, found = lift({"rig": {"devices": {"rig": {"sensors": sensors, "actuators": actuators}}}}), []
    for program in (standard_program(), plain):
        run = LockstepRun(rig, program=program, trace=True)
        found.append([np.concatenate([run.start(), run.run(10)]), run.true_values("rig")])
    assert [rows.tobytes() for rows in found[0]] == [rows.tobytes() for rows in found[1]]


@pytest.mark.parametrize("integrator", ["rk4", "rosenbrock"])
def test_the_look_ahead_of_an_actuator_is_the_same_in_plain_python(integrator: str, plain: Any) -> None:
    ends = {"rod": "rig.table", "base": "earth"}
    components = {
        "mass": part("load_mass", {"rod": "rig.table"}, mass="1000 kg", gravity="0 m/s^2"),
        "earth": part("velocity_source", {"rod": "earth"}),
        "spring": part("spring", ends, stiffness="1e6 N/m", relaxed="5 mm"),
        "friction": part("friction", {"rod": "rig.table"}, coulomb="10 N", static="10 N"),
    }
    circuit = {"solver": {"integrator": integrator, "substeps": 2}, "components": components}
    rig, found = Stand(circuit, strategy="adaptive_lead").rig(), []
    for program in (standard_program(), plain):
        run = LockstepRun(rig, program=program, trace=True)
        found.append([np.concatenate([run.arm_and_start(), run.run(10)]), run.true_values("lab")])
    assert np.isfinite(found[0][0][-5:, rig.layout.column("actuator.table.foreseen")]).all()
    assert [rows.tobytes() for rows in found[0]] == [rows.tobytes() for rows in found[1]]


def test_a_circuit_runs_in_plain_python_as_it_does_compiled(plain: Any) -> None:
    """A stiff one by the implicit method, with a mechanism."""
    source = read_toml(CONFIG / "circuits/boom.toml")
    source["solver"] = {"integrator": "rosenbrock", "substeps": 2}
    library = standard_library()
    packed = pack(read_circuit(source, library, str(CONFIG / "circuits/boom.toml")), library)
    first, second = (run_freely(program, packed, 10) for program in (standard_program(), plain))
    assert np.ptp(first, axis=0).any()
    assert first.tobytes() == second.tobytes()


def test_a_bound_call_works_on_the_arrays_themselves() -> None:
    command, target = np.zeros(3), np.empty(3)
    run = standard_program().through_play.bound(command, 0.0, 0.0, target)
    for value in (0.25, -0.5):
        command[:] = value
        run()
        assert target.tolist() == [value] * 3


def test_a_repeated_call_has_the_present_arguments() -> None:
    """Those that are other objects than before, and the present contents of the others; wrong ones are refused."""
    repeated, command, target = standard_program().through_play.repeated(), np.zeros(3), np.empty(3)

    def run(*arguments: Any) -> None:
        repeated.bound(*arguments)()

    for value in (0.25, -0.5):
        command[:] = value
        run(command, 0.0, 0.0, target)
        assert target.tolist() == [value] * 3
        run(np.full(5, 2.0 * value), 0.0, 0.0, longer := np.empty(5))
        assert longer.tolist() == [2.0 * value] * 5
    wrong = np.zeros(3, np.int64)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"^through_play: command must be"):
            run(wrong, 0.0, 0.0, target)
    with pytest.raises(TypeError, match="takes 4 arguments, got 3"):
        run(command, 0.0, 0.0)
    run(command, 0.0, 0.0, target)
    with pytest.raises(TypeError, match=r"^through_play: command must be"):
        run(wrong, 0.0, 0.0, target)
    command[:] = 0.75
    run(command, 0.0, 0.0, target)
    assert target.tolist() == [0.75] * 3


VALID: Mapping[Argument, Any] = {
    Argument.FLOATS: np.zeros(3),
    Argument.MATRIX: np.zeros((2, 3)),
    Argument.INTEGERS: np.zeros(3, np.int64),
    Argument.INDICES: np.zeros(3, np.uint64),
    Argument.WHOLE: 3,
    Argument.NUMBER: 0.5,
}
FUNCTIONS: tuple[Callable[..., Any], ...] = (run_free, move, run_bridged)
"""One with all kinds of arguments, one with a named tuple, one with a tuple of named tuples."""


def made(name: str, parameter: Parameter, wrong: Mapping[str, Any]) -> Any:
    """A valid argument, or the wrong one of this name; fields are named like ``devices.plant.line``."""
    if name in wrong:
        return wrong[name]
    if isinstance(parameter, Argument):
        return VALID[parameter]
    fields = zip(fields_of(parameter), parameter.fields, strict=True)
    one = parameter.type(*(made(f"{name}.{field}", kind, wrong) for field, kind in fields))
    return (one, one) if parameter.many else one


def leaves(name: str, parameter: Parameter) -> Iterator[tuple[str, Argument]]:
    """All arrays and numbers of an argument, by name."""
    if isinstance(parameter, Argument):
        yield name, parameter
    else:
        for field, kind in zip(fields_of(parameter), parameter.fields, strict=True):
            yield from leaves(f"{name}.{field}", kind)


def fields_of(record: Record) -> tuple[str, ...]:
    names: tuple[str, ...] = record.type._fields  # type: ignore[attr-defined]
    return names


def call(function: Callable[..., Any], wrong: Mapping[str, Any]) -> None:
    """Have the arguments looked at, without a call."""
    parameters = parameters_of(function).items()
    arguments = [made(name, parameter, wrong) for name, parameter in parameters]
    getattr(standard_program(), function.__name__).bound(*arguments)


def others_than(array: Any) -> tuple[Any, ...]:
    """What may not stand for an array: another type of cells, or dimension, with gaps, no array."""
    dtypes = {np.dtype(name) for name in ("float64", "float32", "int64", "uint64", "int32", ">f8")} - {array.dtype}
    gaps = np.zeros((2 * array.shape[0], *array.shape[1:]), array.dtype)[::2]
    transposed = (np.asfortranarray(np.ones((2, 3))),) if array.ndim > 1 else ()
    return (*map(array.astype, dtypes), array[None], array[0], gaps, *transposed, array.tolist(), 0.0, None)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_arrays_of_the_wrong_kind_are_refused(function: Callable[..., Any]) -> None:
    """Compiled code would read other memory: whatever the array is part of, it is refused by its name."""
    call(function, {})
    arrays = [
        (name, kind)
        for parameter in parameters_of(function).items()
        for name, kind in leaves(*parameter)
        if kind.dimensions
    ]
    assert arrays
    for name, kind in arrays:
        for wrong in others_than(VALID[kind]):
            with pytest.raises(TypeError, match=rf"^{function.__name__}: {re.escape(name)} must be a contiguous array"):
                call(function, {name: wrong})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [*(("steps", wrong) for wrong in (1.5, "3", None, np.zeros(1))), *(("h", w) for w in ("1", None, np.zeros(1), 1j))],
)
def test_non_numbers_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"^run_free: {name} must be"):
        call(run_free, {name: wrong})


def test_numbers_of_numpy_are_numbers() -> None:
    call(run_free, {"steps": np.int64(3), "h": np.float64(0.1)})
    call(run_free, {"steps": np.uint64(3), "h": 1})


def test_the_number_of_arguments_and_fields_is_checked() -> None:
    with pytest.raises(TypeError, match="through_play takes 4 arguments, got 3"):
        standard_program().through_play(np.zeros(3), 0.0, 0.0)
    few = made("plant", parameters_of(move)["plant"], {})[:2]
    for plant in (few, None, 0.0):
        with pytest.raises(TypeError, match=r"^move: plant must be"):
            call(move, {"plant": plant})
    for devices in ((few,), None, np.zeros(3)):
        with pytest.raises(TypeError, match=r"^run_bridged: devices must be"):
            call(run_bridged, {"devices": devices})
