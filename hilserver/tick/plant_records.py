"""The records of the simulated plant: its sensors and actuators."""

from __future__ import annotations

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import gives_arrays
from hilserver.tick.records import RecordTable, Struct, dtype_of, value


class SensorRecord(Struct):
    """A sensor of the plant: raw = raw_zero + gain * value, then noise, steps of the converter, range and delay."""

    source: int = value("", "place of the measured value among the plant's")
    gain: float = value("", "raw reading per SI unit")
    raw_zero: float = value("", "raw reading at value 0")
    noise: float = value("", "standard deviation of the noise, raw")
    quantum: float = value("", "step of the converter, raw; 0: none")
    delay: int = value("ticks", "transport delay, whole ticks")
    fraction: float = value("ticks", "the rest of it, below 1")
    raw_low: float = value("", "least raw reading")
    raw_high: float = value("", "greatest raw reading")


class PlantActuator(Struct):
    """An actuator of the plant: value = value_zero + gain * raw command, -1 … 1, after its delay."""

    target: int = value("", "place of the commanded value among the plant's")
    gain: float = value("", "value per unit of the raw command")
    value_zero: float = value("", "value at raw command 0")
    safe: float = value("", "raw command in the safe state")
    watchdog: int = value("ticks", "time without a command after which it goes there")
    delay: int = value("ticks", "transport delay, whole ticks")
    fraction: float = value("ticks", "the rest of it, below 1")


SENSOR, ACTUATOR = dtype_of(SensorRecord), dtype_of(PlantActuator)


@gives_arrays
def sensors_on(cells: Floats) -> RecordTable[SensorRecord]:
    """The sensors in these cells, as a view."""
    return cells.view(SENSOR)


@gives_arrays
def actuators_on(cells: Floats) -> RecordTable[PlantActuator]:
    """The actuators in these cells, as a view."""
    return cells.view(ACTUATOR)
