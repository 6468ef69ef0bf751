"""Settings of the Modbus driver: the place of each value in the device and the meaning of its bytes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hilserver.driver import SlowDriverConfig
from hilserver.units import Number, Time
from hilserver_drivers.binary import limits, size_of
from hilserver_drivers.modbus.line import BITS, READ_AT_ONCE, Table
from hilserver_drivers.wire import PortSettings, TcpSettings

RegisterType = Literal["int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
WordOrder = Literal["ABCD", "CDAB", "BADC", "DCBA"]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class _Place(_Settings):
    """The place of a value in the device."""

    table: Table = Field(description="table of the value: registers (holding, input) or bits (coil, discrete)")
    address: int = Field(ge=0, le=65_535, description="from 0 as in the protocol: 40001 in a manual is holding 0")
    type: RegisterType | None = Field(
        default=None, description="number type, which also defines the number of registers"
    )
    order: WordOrder | None = Field(default=None, description="order of the bytes; default: the device's order")
    unit: int | None = Field(default=None, ge=0, le=255, description="default: the device's unit")

    @property
    def is_bit(self) -> bool:
        """Whether it is a coil or a discrete input."""
        return self.table in BITS

    @property
    def needs_type(self) -> bool:
        """Check type and order against the table."""
        return not self.is_bit

    @property
    def count(self) -> int:
        """Number of registers (coils) of the value."""
        return 1 if self.type is None else size_of(self.type) // 2

    @model_validator(mode="after")
    def _one_type(self) -> _Place:
        if self.is_bit and (self.type or self.order):
            raise ValueError(f"a {self.table} is 0 or 1: it has no type and no order")
        if self.needs_type and self.type is None:
            raise ValueError('a register needs a type, such as "int16" or "float32"')
        if self.address + self.count > 65_536:
            raise ValueError(f"a {self.type} at address {self.address} reaches beyond the last register, 65535")
        return self


class ModbusInput(_Place):
    """A value that is read."""

    bit: int | None = Field(default=None, ge=0, le=15, description="one bit of a register, 0 being the lowest")

    @property
    def needs_type(self) -> bool:
        """Check bit and type against the table."""
        return not self.is_bit and self.bit is None

    @model_validator(mode="after")
    def _bit_of_a_register(self) -> ModbusInput:
        if self.bit is not None and (self.is_bit or self.type):
            raise ValueError("bit is for holding and input registers, and excludes type")
        return self


class ModbusOutput(_Place):
    """A value that is written."""

    table: Literal["holding", "coil"] = Field(description="table of the value: a register or a bit")
    safe: Number = Field(description="raw value in the safe state")

    @model_validator(mode="after")
    def _safe_value_fits(self) -> ModbusOutput:
        low, high = (0, 1) if self.type is None else limits(self.type)
        if not low <= self.safe <= high:
            raise ValueError(
                f"safe = {self.safe:g} does not fit: the range of {self.type or self.table} is {low:g} to {high:g}"
            )
        return self


class WatchdogRegister(_Settings):
    """A register or coil that must keep changing; otherwise the device switches its outputs off."""

    table: Literal["holding", "coil"] = Field(default="holding", description="a register or a bit")
    address: int = Field(ge=0, le=65_535, description="from 0 as in the protocol")
    unit: int | None = Field(default=None, ge=0, le=255, description="default: the device's unit")
    mode: Literal["toggle", "count"] = Field(default="toggle", description="0, 1, 0, …; or 0, 1, 2, … 65535, 0")
    period: Time = Field(default="100 ms", gt=0, le=60, description="time between two changes")

    @model_validator(mode="after")
    def _coils_toggle(self) -> WatchdogRegister:
        if self.table == "coil" and self.mode == "count":
            raise ValueError("a coil can only toggle")
        return self


class Grouping(_Settings):
    """Rules for reading several registers in one request. 16 coils or discrete inputs count as one register."""

    gap: int = Field(default=8, ge=0, le=124, description="unused registers in between that may also be read; 0: none")
    size: int = Field(
        default=READ_AT_ONCE, ge=1, le=READ_AT_ONCE, description="maximum number of registers in one request"
    )


class ModbusConfig(SlowDriverConfig):
    """Settings of a Modbus device: `tcp` or `rtu`, inputs, outputs."""

    tcp: TcpSettings | None = None
    rtu: PortSettings | None = None
    unit: int = Field(default=1, ge=0, le=255, description="unit identifier; on a serial line the device's address")
    timeout: Time = Field(default="100 ms", gt=0, le=10, description="maximum total time for one read or write")
    order: WordOrder = Field(default="ABCD", description="ABCD: high word and high byte first; CDAB: low word first")
    group: Grouping = Field(default_factory=Grouping)
    writes: Literal["multiple", "single"] = Field(
        default="multiple",
        description="multiple: functions 16 and 15, adjacent outputs together; single: 6 and 5, one by one",
    )
    refresh: Time = Field(
        default="1 s", gt=0, le=3600, description="unchanged values are written again after this time"
    )
    read_back: bool = Field(
        default=False,
        description="read each output back after it was written; it is confirmed only if the device has the value",
    )
    watchdog_register: WatchdogRegister | None = None
    inputs: dict[str, ModbusInput] = Field(default_factory=dict)
    outputs: dict[str, ModbusOutput] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_connection(self) -> ModbusConfig:
        if (self.tcp is None) == (self.rtu is None):
            raise ValueError('give either tcp = { host = "…" } or rtu = { port = "/dev/…" }')
        if 3 * self.timeout > self.hang_time:
            text = f"timeout ({self.timeout:g} s) must be at most a third of hang_time ({self.hang_time:g} s)"
            raise ValueError(f"{text}: safe values are tried three times")
        return self

    @model_validator(mode="after")
    def _units_exist(self) -> ModbusConfig:
        places = [("unit", self.unit), *((f"inputs.{name}.unit", i.unit) for name, i in self.inputs.items())]
        places += [(f"outputs.{name}.unit", output.unit) for name, output in self.outputs.items()]
        if self.watchdog_register is not None:
            places.append(("watchdog_register.unit", self.watchdog_register.unit))
        for key, unit in places:
            if self.rtu is not None and unit is not None and not 1 <= unit <= 247:
                raise ValueError(f"{key} = {unit}: on a serial line units are 1 to 247")
        return self

    @model_validator(mode="after")
    def _outputs_apart(self) -> ModbusConfig:
        taken: dict[tuple[int, str, int], str] = {}
        for name, output in self.outputs.items():
            if self.writes == "single" and output.count > 1:
                raise ValueError(f'outputs.{name}: a {output.type} can\'t be written with writes = "single"')
            for address in range(output.address, output.address + output.count):
                other = taken.setdefault((self.unit_of(output), output.table, address), name)
                if other != name:
                    raise ValueError(f"outputs.{name} and outputs.{other} share {output.table} {address}")
        register = self.watchdog_register
        if register is not None and (other := taken.get((self.unit_of(register), register.table, register.address))):
            raise ValueError(f"watchdog_register and outputs.{other} share {register.table} {register.address}")
        return self

    def unit_of(self, place: _Place | WatchdogRegister) -> int:
        """The unit that contains a value."""
        return self.unit if place.unit is None else place.unit

    def order_of(self, place: _Place) -> WordOrder:
        """The order of a value's bytes."""
        return self.order if place.order is None else place.order
