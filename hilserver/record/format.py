"""The log's format: header, events and arrays as JSON, Arrow schema, checksum of a batch, files of a run."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, field_validator

from hilserver.errors import HilserverError

FORMAT = 3
"""Version of the log's format; a reader refuses logs of a newer one. In format 1, all columns are float64; in format 3,
columns are left out."""
WHOLE_ROWS = 2
"""Format of the logs with all columns, which versions before format 3 read as well."""

METADATA_KEY = b"hilserver"
CHECKSUM_KEY = b"crc32"
NUMBER_KEY = b"number"
"""In the metadata of a log: the number of its recording, readable without the header."""
ROW_KEY, CIRCUIT_KEY = b"row", b"circuit"
"""In the metadata of a batch: its first row's number in the run, and the number of the run's circuit, both from 0."""
CIRCUIT_COLUMN, EVENTS = "circuit", "events"
CIRCUIT_EVENT = "circuit"
"""Kind of the events with a new circuit."""
SNAPSHOT = "snapshot"
"""Kind of the events with a whole row, ``row``, in logs from which columns are left out."""

RENAMED = {
    "withheld": "no_drop_share",
    "pinned": "end_stop_share",
    "away": "flow_off_end_stop",
    "swing": "oscillation",
    "swing_mean": "oscillation_mean",
    "swing_from": "oscillation_from",
    "swing_to": "oscillation_to",
    "swing_time": "oscillation_time",
    "swing_travel": "oscillation_travel",
    "swing_count": "oscillation_count",
}
"""Fields of ``valve.<name>.<field>`` that have another name in older logs -> their present name."""

BLOCK_ROWS: Final = {"none": 100, "lz4": 100, "zstd": 2000}
"""Compressions of a log -> rows in a batch, unless told otherwise: what one damaged byte costs."""

Event = dict[str, Any]
"""An event in a tick: a JSON object with at least ``kind``; NumPy arrays in it are stored exactly."""


class RecordError(HilserverError):
    """A log or table that can't be written, read or used; names the file and the reason."""

    def __init__(self, path: str | PathLike[str], reason: str) -> None:
        self.path = Path(path)
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class LogHeader(BaseModel):
    """The header of a log: everything that a replay needs in addition to the rows.

    ``columns`` are the names of the row's fixed part, ``circuit_names`` those of the circuit's values in the first
    row, which follow it. ``whole`` are those of ``columns`` that hold whole numbers, int64. ``configuration`` holds
    rig, circuit and cycle as given, ``packed`` what was made of them (numpy arrays are kept exactly), ``units`` the
    unit of a column or circuit value by name. ``started`` is UTC, ISO 8601. ``part`` counts the files of one run: 0
    for the first. ``previous`` is the name of the file before this one: of the same run, or for part 0 of a
    recording that this one continues. ``number`` counts the recordings of a rig in its folder in the order in which
    they were begun, whatever the clock said; it is 0 in older logs and in those of simulations. ``first_row`` and
    ``first_circuit`` are the numbers of the first row and of its circuit in the run. ``compression`` is one of
    `BLOCK_ROWS`, with which a writer compresses the batches; a reader finds it in each batch. ``signals`` are the
    patterns of what is recorded beside what a replay needs, empty for everything; ``row`` are then the names of the
    fixed part of the whole row, of which ``columns`` are those recorded, and a circuit's names those of its values that
    are (all of them are in its ``packed`` table).
    """

    model_config = ConfigDict(frozen=True)

    format: int = WHOLE_ROWS
    software: str
    rig: str
    started: str
    period_s: float
    columns: tuple[str, ...]
    circuit_names: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    configuration: dict[str, Any] = {}
    packed: dict[str, Any] = {}
    units: dict[str, str] = {}
    extra: dict[str, Any] = {}
    part: int = 0
    previous: str = ""
    number: int = 0
    first_row: int = 0
    first_circuit: int = 0
    compression: str = "none"
    signals: tuple[str, ...] = ()
    row: tuple[str, ...] = ()

    @property
    def left_out(self) -> frozenset[str]:
        """The columns of the row that were not recorded."""
        return frozenset(self.row) - frozenset(self.columns)

    @property
    def speed(self) -> float:
        """Seconds of the rig per second of the clock."""
        return float(self.extra.get("speed", 1.0))

    @property
    def clock_period_s(self) -> float:
        """Time between two ticks on the clock, s."""
        return self.period_s / self.speed

    @field_validator("columns")
    @classmethod
    def _names_are_distinct(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        reserved = (CIRCUIT_COLUMN, EVENTS)
        if wrong := sorted({name for name in columns if columns.count(name) > 1 or name in reserved}):
            raise ValueError(f"names of columns must be distinct, and not {' or '.join(reserved)}: {', '.join(wrong)}.")
        return columns


def circuit_event(names: Sequence[str], packed: Mapping[str, Any]) -> Event:
    """The event that belongs to the first row of a new circuit: the names of its values, its packed arrays."""
    return {"kind": CIRCUIT_EVENT, "names": list(names), "packed": dict(packed)}


def present_name(column: str) -> str:
    """The present name of a column of a log, which an older version may have recorded under another one.

    >>> present_name("valve.A.swing_count"), present_name("channel.swing_count")
    ('valve.A.oscillation_count', 'channel.swing_count')
    """
    section, _, field = column.rpartition(".")
    return f"{section}.{RENAMED.get(field, field)}" if section.startswith("valve.") else column


def is_circuit(event: Event) -> bool:
    """Whether the circuit changes at this event's row."""
    return event.get("kind") == CIRCUIT_EVENT


def encode(value: object) -> str:
    """JSON text; a numpy array becomes an object with its bytes in base64.

    >>> encode({"gain": 2.0})
    '{"gain":2.0}'
    """
    return json.dumps(value, default=_encode_array, separators=(",", ":"))


def decode(text: str | bytes) -> Any:
    """The inverse of `encode`, bit for bit.

    >>> decode(encode({"value": np.array([0.1, np.nan])}))
    {'value': array([0.1, nan])}
    """
    return json.loads(text, object_hook=_decode_array)


def _encode_array(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        raise TypeError(
            f"{type(value).__name__} has no JSON form: give strings, numbers, lists, tables or numeric arrays"
        )
    data = base64.b64encode(value.tobytes()).decode()
    return {"dtype": value.dtype.str, "shape": value.shape, "base64": data}


def _decode_array(value: dict[str, Any]) -> Any:
    if value.keys() != {"dtype", "shape", "base64"}:
        return value
    data = bytearray(base64.b64decode(value["base64"]))
    return np.frombuffer(data, dtype=value["dtype"]).reshape(value["shape"])


def schema_of(header: LogHeader) -> pa.Schema:
    """The Arrow schema of a log with this header, which it carries as metadata."""
    whole = set(header.whole)
    kinds = [pa.int64() if name in whole else pa.float64() for name in header.columns]
    fixed = [pa.field(name, kind, nullable=False) for name, kind in zip(header.columns, kinds, strict=True)]
    circuit = pa.field(CIRCUIT_COLUMN, pa.list_(pa.field("item", pa.float64(), nullable=False)), nullable=False)
    events = pa.field(EVENTS, pa.list_(pa.string()))
    text = encode(header.model_dump()).encode()
    metadata = {METADATA_KEY: text, CHECKSUM_KEY: str(zlib.crc32(text)), NUMBER_KEY: str(header.number)}
    return pa.schema([*fixed, circuit, events], metadata=metadata)


def part_path(path: Path, part: int, other: int) -> Path:
    """The file of part ``other`` (from 1 on) of a run, given the file of its part ``part``.

    >>> part_path(Path("run.arrow"), 0, 1).name, part_path(Path("run.001.arrow"), 1, 2).name
    ('run.001.arrow', 'run.002.arrow')
    """
    return path.with_name(f"{run_stem(path, part)}.{other:03d}{path.suffix}")


def later_parts(path: Path, part: int) -> list[Path]:
    """The files that are by name parts of the run after ``part``, in order, given the file of ``part``."""
    pattern = re.compile(rf"{re.escape(run_stem(path, part))}\.(\d{{3,}}){re.escape(path.suffix)}")
    found = [(int(match[1]), other) for other in path.parent.glob("*") if (match := pattern.fullmatch(other.name))]
    return [other for number, other in sorted(found) if number > part]


def run_stem(path: Path, part: int) -> str:
    """The name of a run, given the file of its part ``part``.

    >>> run_stem(Path("logs/run.012.arrow"), 12)
    'run'
    """
    return path.stem.removesuffix(f".{part:03d}") if part else path.stem


def event_texts(batch: pa.RecordBatch) -> list[tuple[int, str]]:
    """The events of a record batch: row within the batch, JSON text."""
    column = batch.column(EVENTS)
    if column.null_count == len(column):
        return []
    return [(row, text) for row, texts in enumerate(column.to_pylist()) for text in texts or ()]


def numbers(array: pa.Array) -> NDArray[Any]:
    """The numbers of an array without nulls; not copied, hence not writable.

    Arrow's own ``to_numpy`` imports pandas if it is installed, which takes a second and 40 MB and is not needed here.
    """
    kind = array.type.to_pandas_dtype()
    if len(array) == 0:
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * array.type.byte_width)


def batch_metadata(batch: pa.RecordBatch, row: int, circuit: int) -> dict[bytes, bytes]:
    """Metadata of a batch: its place in the run, and a checksum of its contents."""
    place = {ROW_KEY: str(row).encode(), CIRCUIT_KEY: str(circuit).encode()}
    return {**place, CHECKSUM_KEY: checksum(batch, place)}


def checksum(batch: pa.RecordBatch, metadata: Mapping[bytes, bytes]) -> bytes:
    """CRC-32 over the numbers and events of a record batch and its place in the run, as decimal digits."""
    *fixed, circuit = batch.columns[:-1]
    crc = 0
    for array in (*fixed, circuit.offsets, circuit.values):
        crc = zlib.crc32(numbers(array).data, crc)
    crc = zlib.crc32(encode(event_texts(batch)).encode(), crc)
    for key in (ROW_KEY, CIRCUIT_KEY):  # logs of older versions have none
        crc = zlib.crc32(metadata.get(key, b""), crc)
    return str(crc).encode()
