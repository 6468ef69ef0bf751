"""The table of a study: a row for each variant, streamed to a file while the study runs.

While it runs, it is an Arrow stream, of which an interrupted study has all complete batches; at the end it becomes
Parquet, whose groups of rows are larger.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.report.studies import TABLE, UNFINISHED, is_locked, lock
from hilserver.studies.execution import Evaluated
from hilserver.studies.figures import Figure
from hilserver.studies.varied import VariedValue

VARIANT, ENDED, FAILURE = "variant", "ended", "failure"
IDENTITY = b"hilserver.study"
PATIENCE = 1.0
"""s in which the lock of the stream must be had: somebody may be looking whether it is held."""
GROUP = 50_000
"""Rows of a group of the Parquet file, at least: with one for each batch, a reader needs ten times the memory."""


def table_schema(
    varied: Sequence[VariedValue], figures: Sequence[Figure], identity: str, with_ends: bool = False
) -> pa.Schema:
    """Number, values, figures and, where it failed, the reason; ``identity``: of the study.

    ``with_ends``: also why runs ended early that have figures nevertheless.

    Of a choice, the name is in the table. The field of a number states its SI unit, as in an export of a log.
    """
    values = [pa.field(v.key, pa.string()) if v.choices else _number(v.key, v.unit) for v in varied]
    numbers = [_number(figure.name, figure.unit) for figure in figures]
    texts = [pa.field(name, pa.string()) for name in ((ENDED, FAILURE) if with_ends else (FAILURE,))]
    fields = [pa.field(VARIANT, pa.int64()), *values, *numbers, *texts]
    return pa.schema(fields, metadata={IDENTITY: identity.encode()})


def _number(name: str, unit: str) -> pa.Field:
    return pa.field(name, pa.float64(), metadata={"unit": unit} if unit else None)


class StudyTable:
    """Writes the table of a study. ``done``: number of variants that it has already, ``failed``: how many of them have.

    With ``resume``, continues the stream that an interrupted study has left. Raises HilserverError if that is of
    another study, if another process is writing it, or if it can't be written.
    """

    def __init__(self, stem: Path, schema: pa.Schema, resume: bool) -> None:
        self.stream, self.parquet = (stem.with_name(f"{stem.name}{end}") for end in (UNFINISHED, TABLE))
        self.stem, self.schema, self.done, self.failed = stem, schema, 0, 0
        self._resumable = True
        if is_locked(self.stream):
            raise HilserverError(f"{self.stream}: another process runs this study: wait for it, or give --output.")
        try:
            stem.parent.mkdir(parents=True, exist_ok=True)
            earlier = self.stream.with_suffix(".earlier")
            if resume and self.stream.exists() and not earlier.exists():  # else: interrupted while it was copied
                next(complete_batches(self.stream, schema), None)
                self.stream.replace(earlier)
            self._file = self.stream.open("wb")
            self._lock()
            self._writer = pa.ipc.new_stream(self._file, schema)
            for batch in self._earlier(earlier) if resume else ():
                self._write(batch)
            earlier.unlink(missing_ok=True)
        except OSError as error:
            raise HilserverError(f"{stem.parent}: can't be written to: {error.strerror or error}.") from error

    def _earlier(self, stream: Path) -> Iterator[pa.RecordBatch]:
        """What has been computed before: by a study that was interrupted, or by this one, which is complete then."""
        if stream.exists():
            yield from complete_batches(stream, self.schema)
        elif self.parquet.exists():
            try:
                with pq.ParquetFile(self.parquet) as table:
                    if table.schema_arrow.equals(self.schema, check_metadata=True):
                        yield from table.iter_batches()
            except (pa.ArrowInvalid, OSError) as error:
                self._writer.close()
                self._file.close()
                self.stream.unlink()
                text = "is damaged, so that the study can't be resumed. Without --resume, it starts anew."
                raise HilserverError(f"{self.parquet}: {text}") from error

    def _lock(self) -> None:
        """States that the study runs, until its process ends."""
        end = time.monotonic() + PATIENCE
        while not lock(self._file) and time.monotonic() < end:
            time.sleep(0.01)

    def append(self, values: Floats, found: Evaluated, choices: Sequence[tuple[str, ...]]) -> None:
        """Add evaluated variants with their values. ``choices``: of each value, the names chosen from."""
        numbers = range(found.first, found.first + len(values))
        columns = [pa.array(numbers, pa.int64())]
        columns += [
            pa.array([names[int(x)] for x in column], pa.string()) if names else pa.array(column)
            for column, names in zip(values.T, choices, strict=True)
        ]
        columns += [pa.array(column) for column in found.figures.T]
        told = [found.ended, found.failures] if ENDED in self.schema.names else [found.failures]
        columns += [pa.array([texts.get(number) for number in numbers], pa.string()) for texts in told]
        self._write(pa.record_batch(columns, schema=self.schema))

    def _write(self, batch: pa.RecordBatch) -> None:
        try:
            self._writer.write_batch(batch)
            self._file.flush()
        except OSError as error:
            raise self._unwritten(self.stream, error) from error
        self.done += batch.num_rows
        self.failed += batch.num_rows - batch.column(FAILURE).null_count

    def close(self) -> None:
        """Leave the stream as it is, so that the study can be resumed."""
        with suppress(OSError):  # of a full disk; what is missing is computed again
            self._writer.close()
            self._file.close()

    def __enter__(self) -> StudyTable:
        self._resumable = False
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Finish the table, or remove what an error has left of it: for one that is not resumed."""
        if kind is None:
            self.finish()
        else:
            self.close()
            self.stream.unlink(missing_ok=True)

    def finish(self) -> Path:
        """Write the Parquet file, group by group, and return it."""
        self.close()
        try:
            with pq.ParquetWriter(self.parquet, self.schema) as writer:
                for group in _gathered(complete_batches(self.stream, self.schema)):
                    writer.write_table(pa.Table.from_batches(group))
            self.stream.unlink()
        except OSError as error:
            raise self._unwritten(self.parquet, error) from error
        return self.parquet

    def _unwritten(self, file: Path, error: OSError) -> HilserverError:
        then = "continue with --resume" if self._resumable else "start again"
        remedy = f"If the disk is full, free some space, then {then}."
        return HilserverError(f"{file}: can't be written: {error.strerror or error}. {remedy}")


def complete_batches(file: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of a stream, up to an incomplete one at its end. Raises HilserverError if it is of another study."""
    with file.open("rb") as source:
        try:
            reader = pa.ipc.open_stream(source)
        except (pa.ArrowInvalid, OSError):
            return  # not even its schema is complete
        if not reader.schema.equals(schema, check_metadata=True):
            text = "belongs to another study, or to another version of it. Leave out --resume to start again."
            raise HilserverError(f"{file.with_suffix('.arrows')}: {text}")
        while True:
            try:
                yield reader.read_next_batch()
            except (StopIteration, pa.ArrowInvalid, OSError):
                return


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The same batches, so many together that they have the rows of a group."""
    group, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        if rows >= GROUP:
            yield group
            group, rows = [], 0
    if group:
        yield group
