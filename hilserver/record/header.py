"""Finds the header of a log: at the start of the file, or, where that is damaged, its copy in the first batch."""

from __future__ import annotations

import mmap
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pydantic import ValidationError

from hilserver.errors import problems_of
from hilserver.record.format import (
    CHECKSUM_KEY,
    FORMAT,
    METADATA_KEY,
    NUMBER_KEY,
    LogHeader,
    RecordError,
    decode,
    encode,
    present_name,
    schema_of,
)

CONTINUATION = b"\xff\xff\xff\xff"
"""The first bytes of every message of an Arrow stream; four bytes with the length of the message follow."""
COPY_KEY = b"header"
"""In the metadata of the first batch of a file: the copy of the header."""
_COPY = re.compile(rb"hilserver header, crc32 (\d+), (\d+) bytes:\n")
"""The text with which a copy begins. JSON text contains no line break, so that no text of a user can look like it."""


@dataclass(frozen=True)
class FoundHeader:
    """The header of a file. ``trouble``: why its copy had to be used; empty if the header itself is intact."""

    header: LogHeader
    trouble: str = ""

    def head(self) -> bytes:
        """The beginning of an Arrow stream of the file's batches: its columns, without metadata."""
        return bytes(schema_of(self.header).remove_metadata().serialize())


def header_copy(header: LogHeader) -> bytes:
    """The copy of a header: found by searching, and verified by its checksum, without knowing anything of the file."""
    text = encode(header.model_dump()).encode()
    return b"hilserver header, crc32 %d, %d bytes:\n" % (zlib.crc32(text), len(text)) + text


def copied_text(content: bytes | mmap.mmap) -> bytes | None:
    """The text of the first intact copy of a header in these bytes; None if there is none."""
    for match in _COPY.finditer(content):
        text = content[match.end() : match.end() + int(match[2])]
        if zlib.crc32(text) == int(match[1]):
            return text
    return None


def read_header(path: Path) -> LogHeader:
    """The header of a log, from its copy if it is damaged.

    Raises `RecordError` if the file is not a log, is empty, or is of a newer format.
    """
    return find_header(path).header


def find_header(path: Path) -> FoundHeader:
    """As `read_header`, and whether the header itself is intact."""
    try:
        return FoundHeader(_header_of(_schema(path), path))
    except RecordError as error:
        text = _copy_in(path)
        if text is None:
            raise
        return FoundHeader(_present(_parsed(text, path)), error.reason.rstrip("."))


def recording_number(path: Path) -> int:
    """The number of a log's recording (`LogHeader`), without decoding its header where that is intact; 0 if none.

    Raises `RecordError` if the file is empty or not an Arrow stream.
    """
    try:
        number = (_schema(path).metadata or {}).get(NUMBER_KEY, b"0")
    except RecordError:
        number = b""
    return int(number) if number.isdigit() else read_header(path).number


def _copy_in(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return copied_text(content)
    except (OSError, ValueError):  # it can't be read, or is empty
        return None


def _schema(path: Path) -> pa.Schema:
    """The Arrow schema at the start of a file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            end = len(start) + int.from_bytes(start[4:], "little")
            file.seek(end)
            following = file.read(len(CONTINUATION))
    except OSError as error:
        raise RecordError(path, f"can't be read: {error.strerror}.") from error
    if size == 0:
        raise RecordError(path, "is empty: nothing was recorded.")
    if not start.startswith(CONTINUATION[:size]):
        raise RecordError(path, "is not a log of hilserver (a log is an Arrow IPC stream).")
    if len(start) < 8 or size < end:
        raise RecordError(path, "ends within its header: nothing was recorded.")
    try:
        with pa.OSFile(str(path)) as source:
            schema = pa.ipc.open_stream(source).schema
    except (pa.ArrowException, OSError) as error:
        raise RecordError(path, f"is not a log of hilserver, or its header is damaged: {error}.") from error
    if not CONTINUATION.startswith(following):
        raise RecordError(path, "has a damaged header: nothing begins where it ends.")
    return schema


def _header_of(schema: pa.Schema, path: Path) -> LogHeader:
    """The header in a log's Arrow schema. Raises `RecordError` if there is none, or it is of a newer format."""
    metadata = schema.metadata or {}
    text = metadata.get(METADATA_KEY)
    if text is None:
        raise RecordError(path, "is an Arrow stream, but not a log of hilserver (its metadata has no hilserver entry).")
    header = _parsed(text, path)
    if metadata.get(CHECKSUM_KEY) != str(zlib.crc32(text)).encode():
        raise RecordError(path, "has a damaged header: its checksum does not match.")
    if not schema.equals(schema_of(header)):
        raise RecordError(path, "has columns that differ from those in its header.")
    return _present(header)


def _parsed(text: bytes, path: Path) -> LogHeader:
    """The header with this text, under the names with which it was recorded."""
    try:
        raw = decode(text)
    except (TypeError, ValueError, SyntaxError) as error:  # the last from the dtype of an array
        raise RecordError(path, f"has a damaged header: {error}.") from error
    newer = raw.get("format") if isinstance(raw, dict) else None
    if isinstance(newer, int) and newer > FORMAT:
        software = raw.get("software", "a newer version")
        raise RecordError(
            path,
            f"is in log format {newer}, written by {software}; this version reads up to format {FORMAT}: update it.",
        )
    try:
        return LogHeader.model_validate(raw)
    except ValidationError as error:
        problems = "; ".join(map(str, problems_of(error, raw)))
        raise RecordError(path, f"has a damaged header: {problems}") from error


def _present(header: LogHeader) -> LogHeader:
    """The header with the present names of its columns."""
    units = {present_name(name): unit for name, unit in header.units.items()}
    names = {"columns": tuple(map(present_name, header.columns)), "row": tuple(map(present_name, header.row))}
    return header.model_copy(update={**names, "units": units})
