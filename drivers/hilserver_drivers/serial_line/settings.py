"""Settings of the serial driver: the port, and how its messages are built."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from hilserver.driver import SlowDriverConfig
from hilserver.errors import shown
from hilserver.units import Number, Time
from hilserver_drivers.binary import ByteOrder, NumberType, limits, size_of
from hilserver_drivers.serial_line.checks import CheckName, check_size
from hilserver_drivers.wire import PortSettings


def _checked(check: Callable[[str], object]) -> AfterValidator:
    """A text for which ``check`` raises no ValueError."""

    def validate(text: str) -> str:
        check(text)
        return text

    return AfterValidator(validate)


def _bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError(f'{shown(text)} has characters that are not bytes (write byte 2 as "\\u0002")') from None


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError(f'{shown(text)} are not bytes in hexadecimal digits, such as "AA 55"') from None


def _pattern(text: str) -> None:
    try:
        groups = re.compile(text).groups
    except re.error as error:
        raise ValueError(f"{shown(text)} is not a regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"{shown(text)} has {groups} groups: put only the number in parentheses")


def as_line(text: str, value: float, decimal: str = ".") -> str:
    """A number put into a text that gives its place and number of digits.

    >>> as_line("V {:+.2f} V", 1.5, decimal=",")
    'V +1,50 V'
    """
    line = ""
    for literal, field, spec, conversion in string.Formatter().parse(text):
        line += literal
        if field is not None:
            if field or conversion:
                raise ValueError(f"{{{field}}} names something")
            line += format(value, spec or "").replace(".", decimal)
    return line


def _format(text: str) -> None:
    example = 'like "V {:.3f}\\r\\n"'
    try:
        _bytes(as_line(text, 1.0))
        if sum(field is not None for _, field, _, _ in string.Formatter().parse(text)) != 1:
            raise ValueError("it needs {} once")
    except ValueError as error:
        raise ValueError(f"{shown(text)} can't be used to write a number ({error}); write it {example}") from None


Text = Annotated[str, _checked(_bytes)]
Hex = Annotated[str, _checked(_hex)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class Lines(_Settings):
    """Lines of text in ASCII, with numbers in columns."""

    end: Text = Field(default="\n", min_length=1, description="end of a line; white space before it is ignored")
    separator: Text = Field(default=",", min_length=1, description='between columns; " ": any white space')
    decimal: Literal[".", ","] = Field(default=".", description="decimal sign")
    columns: int | None = Field(default=None, ge=1, description="lines with a different number of columns are rejected")
    checksum: Literal["none", "nmea"] = Field(
        default="none",
        description="nmea: lines have the form $…*5A, with the exclusive or of all characters between $ and *",
    )
    longest: int = Field(
        default=256, ge=1, le=10_000, description="maximum number of characters; longer lines are rejected"
    )

    @model_validator(mode="after")
    def _decimal_apart(self) -> Lines:
        if self.decimal in self.separator:
            raise ValueError(f'separator and decimal are both "{self.decimal}"')
        return self


class Frame(_Settings):
    """Frames of bytes: start, perhaps a length, a payload of fixed size, a check value."""

    start: Hex = Field(default="", description='bytes with which every frame begins, such as "AA 55"')
    length: Literal["none", "uint8", "uint16"] = Field(default="none", description="length after the start")
    counts: Literal["payload", "rest", "frame"] = Field(
        default="payload", description="what the length counts; rest: payload and check value"
    )
    size: int = Field(ge=1, le=4096, description="bytes of payload")
    check: CheckName = Field(description='check value at the end; "none": corrupted values are not detected')
    check_from: int = Field(default=0, ge=0, description="first byte of the frame that the check covers")
    order: ByteOrder = Field(default="little", description="byte order of numbers")
    check_order: ByteOrder | None = Field(
        default=None, description="byte order of the check value; default: that of numbers"
    )

    @property
    def length_size(self) -> int:
        """Bytes of the length."""
        return 0 if self.length == "none" else size_of(self.length)

    @property
    def total(self) -> int:
        """Bytes of a frame."""
        return len(_hex(self.start)) + self.length_size + self.size + check_size(self.check)

    @property
    def head(self) -> bytes:
        """The beginning of every frame: start and length."""
        if self.length == "none":
            return _hex(self.start)
        counted = {"payload": self.size, "rest": self.size + check_size(self.check), "frame": self.total}[self.counts]
        return _hex(self.start) + counted.to_bytes(self.length_size, self.order)

    @model_validator(mode="after")
    def _can_be_found(self) -> Frame:
        if not _hex(self.start) and self.check == "none":
            raise ValueError("without start and check the beginning of a frame can't be found")
        if self.length_size == 1 and self.total > 255:
            raise ValueError("the frame is too long for a length of one byte")
        if self.check_from >= self.total - check_size(self.check):
            raise ValueError(f"check_from = {self.check_from} is after the payload")
        return self


class Value(_Settings):
    """The place of a number in the payload of a frame."""

    byte: int | None = Field(default=None, ge=0, description="in frames: first byte in the payload, from 0")
    type: NumberType | None = Field(default=None, description="in frames: number type")


class SerialInput(Value):
    """A value that is read: in lines by column, name or pattern, in frames by byte and type."""

    column: int | None = Field(default=None, ge=0, description="in lines: its column, from 0")
    name: str | None = Field(default=None, min_length=1, description='in lines: x in "x=1.5" or "x: 1.5"')
    pattern: Annotated[str, _checked(_pattern)] | None = Field(
        default=None, description="in lines: a regular expression with the number in parentheses"
    )
    bit: int | None = Field(default=None, ge=0, le=63, description="in frames: one bit of an unsigned number")
    request: str | None = Field(
        default=None, min_length=1, description="request for this value; default: the device's request"
    )

    @model_validator(mode="after")
    def _one_place(self) -> SerialInput:
        if (self.column, self.name, self.pattern, self.byte).count(None) != 3:
            raise ValueError("give one of column, name, pattern (lines) or byte (frames)")
        if (self.byte is None) != (self.type is None):
            raise ValueError("byte and type belong together")
        if self.bit is not None and not (
            self.type is not None and self.type.startswith("uint") and self.bit < 8 * size_of(self.type)
        ):
            raise ValueError(f"bit = {self.bit} needs a type with more bits, such as uint8 or uint16")
        return self


class SerialOutput(Value):
    """A value that is written: as a line with ``format``, or in the command frame by byte and type."""

    format: Annotated[str, _checked(_format)] | None = Field(
        default=None, description='the line to send, like "V {:.3f}\\r\\n"'
    )
    safe: Number = Field(description="raw value in the safe state")

    @model_validator(mode="after")
    def _one_form(self) -> SerialOutput:
        if (self.format is None) == (self.byte is None) or (self.byte is None) != (self.type is None):
            raise ValueError("give either format (a line), or byte and type (in the frame of command)")
        if self.type is not None and not limits(self.type)[0] <= self.safe <= limits(self.type)[1]:
            raise ValueError(f"safe = {self.safe:g} does not fit into a {self.type}")
        return self


class SerialConfig(SlowDriverConfig, PortSettings):
    """Settings of a serial device: its port, `lines` or `frame`, inputs, outputs."""

    lines: Lines | None = Field(default=None, description="the device sends lines of text")
    frame: Frame | None = Field(default=None, description="the device sends frames of bytes")
    command: Frame | None = Field(default=None, description="the frame in which outputs with a byte are sent")
    request: str | None = Field(
        default=None,
        min_length=1,
        description="request for a message: text, or hexadecimal digits for frames; none: the device sends without a "
        "request",
    )
    answer: Text | None = Field(default=None, min_length=1, description="line that confirms an output")
    timeout: Time = Field(
        default="100 ms", gt=0, le=10, description="maximum time for one read or write; maximum silence of a device"
    )
    refresh: Time = Field(
        default="1 s", gt=0, le=3600, description="unchanged values are written again after this time"
    )
    inputs: dict[str, SerialInput] = Field(default_factory=dict)
    outputs: dict[str, SerialOutput] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_kind_of_message(self) -> SerialConfig:
        if self.inputs and (self.lines is None) == (self.frame is None):
            raise ValueError("give either lines or frame, according to what the device sends")
        if self.answer is not None and self.lines is None:
            raise ValueError("answer is a line: give lines, too")
        if 3 * self.timeout > self.hang_time:
            text = f"timeout ({self.timeout:g} s) must be at most a third of hang_time ({self.hang_time:g} s)"
            raise ValueError(f"{text}: safe values are tried three times")
        return self

    @model_validator(mode="after")
    def _requests_are_bytes(self) -> SerialConfig:
        for key, text in self._requests():
            try:
                self.request_bytes(text)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
        asked = {self.request_of(name) is not None for name in self.inputs}
        if len(asked) == 2:
            raise ValueError(
                "some inputs have a request and others do not: give a request for all of them, or for none"
            )
        return self

    @model_validator(mode="after")
    def _inputs_have_a_place(self) -> SerialConfig:
        for name, entry in self.inputs.items():
            if (entry.byte is None) == (self.frame is not None):
                raise ValueError(
                    f"inputs.{name}: " + ("a frame has" if self.frame else "lines have no") + " byte and type"
                )
            if self.frame is not None and self._beyond(entry, self.frame):
                raise ValueError(f"inputs.{name} reaches beyond the payload of {self.frame.size} bytes")
            columns = None if self.lines is None else self.lines.columns
            if columns is not None and entry.column is not None and entry.column >= columns:
                raise ValueError(f"inputs.{name}: there is no column {entry.column} of {columns}; they count from 0")
        return self

    @model_validator(mode="after")
    def _outputs_have_a_place(self) -> SerialConfig:
        taken: dict[int, str] = {}
        for name, output in self.outputs.items():
            if output.byte is None or output.type is None:
                continue
            if self.command is None:
                raise ValueError(f"outputs.{name} has a byte: give command, the frame that is sent")
            if self._beyond(output, self.command):
                raise ValueError(f"outputs.{name} reaches beyond the payload of {self.command.size} bytes")
            for byte in range(output.byte, output.byte + size_of(output.type)):
                if (other := taken.setdefault(byte, name)) != name:
                    raise ValueError(f"outputs.{name} and outputs.{other} share byte {byte}")
        return self

    @staticmethod
    def _beyond(value: Value, frame: Frame) -> bool:
        return value.byte is not None and value.type is not None and value.byte + size_of(value.type) > frame.size

    def _requests(self) -> Iterator[tuple[str, str]]:
        if self.request is not None:
            yield "request", self.request
        for name, entry in self.inputs.items():
            if entry.request is not None:
                yield f"inputs.{name}.request", entry.request

    def request_of(self, name: str) -> str | None:
        """The request for an input; None if the device sends without a request."""
        return self.request if self.inputs[name].request is None else self.inputs[name].request

    def request_bytes(self, text: str) -> bytes:
        """The bytes of a request. Raises ValueError if the text can't be sent."""
        return _hex(text) if self.frame is not None else _bytes(text)
