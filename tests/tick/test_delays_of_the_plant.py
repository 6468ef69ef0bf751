"""Delays of a simulated rig's sensors and actuators: any time, not only whole ticks.

The judges: a sine, a ramp and the integral of a command, whose delayed values are known; for whole ticks, what was
measured or commanded that many ticks ago, bit for bit.
"""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np
import pytest
from component_bench import program

from hilserver.circuit.library import standard_library
from hilserver.circuit.pack import PackedCircuit
from hilserver.numerics.arrays import Floats
from hilserver.rig.simulated import build_plant, plant_circuit
from hilserver.tick.plant import PlantArrays
from hilserver_drivers.simulated import SimulatedRigConfig

DT = 1e-3
TICKS = 200
FREQUENCY, AMPLITUDE = 20.0, 3.0
SENSORS = {
    "sine": {"of": "sine", "raw": [-5, 5], "value": [-5, 5]},
    "slide": {"of": "slide.s", "raw": [0, 1], "value": ["0 m", "1 m"]},
}


def machine(speed: float) -> PackedCircuit:
    """A sine, a slide with this speed, m/s, and two whose speeds are commands."""
    components = {
        "sine": {"type": "sine_signal", "signal": "sine", "frequency": f"{FREQUENCY} Hz", "amplitude": AMPLITUDE},
        "slide": {"type": "velocity_source", "ports": {"rod": "slide"}, "command": speed, "initial": "0.5 m"},
        "first": {"type": "velocity_source", "ports": {"rod": "first"}, "command": "u"},
        "second": {"type": "velocity_source", "ports": {"rod": "second"}, "command": "v"},
    }
    return plant_circuit({"components": components}, {"components": {}}, standard_library())


def plant_with(sensor: dict[str, Any], actuators: dict[str, dict[str, Any]], speed: float = 0.2) -> PlantArrays:
    """The machine with sensors of the sine and of the slide, alike otherwise, and with these actuators."""
    settings = SimulatedRigConfig.model_validate({
        "machine": "machine.toml",
        "drive": "drive.toml",
        "sensors": {name: {**each, **sensor} for name, each in SENSORS.items()},
        "actuators": actuators,
    })  # fmt: skip
    return build_plant(settings, machine(speed), (list(SENSORS), list(actuators)), DT)


def readings(plant: PlantArrays) -> Floats:
    """What the sensors read in each tick, from the start on."""
    found = np.empty((TICKS, len(SENSORS)))
    for k in range(TICKS):
        program().sample(plant, found[k])
        program().move(plant, np.zeros(0), DT)
    return found


ACTUATORS = {"first": {"to": "u", "raw": [-1, 1]}, "second": {"to": "v", "raw": [-1, 1]}}


@pytest.mark.parametrize("delay", [0.5, 1.3, 0.01, 7.99])
def test_a_sensor_has_the_delay_that_is_stated(delay: float) -> None:
    found = readings(plant_with({"delay": f"{delay} ms"}, {}))
    t = np.arange(TICKS) * DT - 1e-3 * delay
    late = t >= 0.0
    sine, ramp = AMPLITUDE * np.sin(2.0 * pi * FREQUENCY * t), 0.5 + 0.2 * t
    np.testing.assert_allclose(found[late, 0], sine[late], atol=1e-9)
    np.testing.assert_allclose(found[late, 1], ramp[late], atol=1e-12)


@pytest.mark.parametrize("ticks", [0, 1, 3, 8])
def test_whole_ticks_are_the_readings_that_many_ticks_ago(ticks: int) -> None:
    """With noise and the steps of a converter; at first, the sensor repeats its first reading."""
    errors = {"noise": 1e-3, "bits": 12}
    now, late = readings(plant_with(errors, {})), readings(plant_with({**errors, "delay": f"{ticks} ms"}, {}))
    assert late[ticks:].tobytes() == now[: TICKS - ticks].tobytes()
    assert (late[:ticks] == now[0]).all()


def test_noise_and_steps_of_the_converter_are_those_of_a_sample() -> None:
    """Of a mean of two samples, noise would be smaller by 30 %, and steps finer."""
    noise, bits = 2e-3, 12
    found = readings(plant_with({"noise": noise, "bits": bits, "delay": "0.5 ms"}, {}, speed=0.0))[:, 1]
    assert (found * 2**bits == np.round(found * 2**bits)).all()
    assert np.std(found) == pytest.approx(noise, rel=0.15)


@pytest.mark.parametrize(("first", "second"), [(0.0, 0.5), (1.3, 1.3), (2.0, 0.7), (0.25, 3.6)])
def test_an_actuator_has_the_delay_that_is_stated(first: float, second: float) -> None:
    """The ways of two slides are the integrals of the delayed commands, exactly."""
    delays = {"first": first, "second": second}
    actuators = {name: {**each, "delay": f"{delays[name]} ms"} for name, each in ACTUATORS.items()}
    plant, commands = plant_with({}, actuators), np.random.default_rng(1).uniform(-1.0, 1.0, (30, 2))
    places = [machine(0.2).names.index(name) for name in ("first.x", "second.x")]
    found = np.empty((30, 2))
    for k in range(30):
        program().move(plant, commands[k], DT)
        found[k] = plant.values[places]
    for j, delay in enumerate(delays.values()):
        t = (np.arange(30) + 1.0) * DT - 1e-3 * delay
        way = np.interp(t, np.arange(31) * DT, np.concatenate([[0.0], np.cumsum(commands[:, j]) * DT]))
        np.testing.assert_allclose(found[:, j], way, atol=1e-12)


def test_the_first_reading_of_a_signal_is_that_of_the_initial_state() -> None:
    """A position sensor of the circuit gives a signal, which had been 0 in the first tick: a jump by the whole way."""
    components = {
        "slide": {"type": "velocity_source", "ports": {"rod": "slide"}, "command": 0.2, "initial": "0.5 m"},
        "seen": {"type": "position_sensor", "ports": {"rod": "slide"}, "signal": "s", "initial": "0.5 m"},
    }
    settings = SimulatedRigConfig.model_validate({
        "machine": "machine.toml",
        "drive": "drive.toml",
        "sensors": {"x": {"of": "s", "raw": [0, 1], "value": ["0 m", "1 m"]}},
    })  # fmt: skip
    packed = plant_circuit({"components": components}, {"components": {}}, standard_library())
    plant, raw = build_plant(settings, packed, (["x"], []), DT), np.zeros(1)
    program().sample(plant, raw)
    assert raw[0] == pytest.approx(0.5, abs=1e-12)
