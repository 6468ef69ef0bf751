"""Opens a log of any of the known formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from hilserver.record.cuts import FOLDER as CUTS
from hilserver.record.format import RecordError
from hilserver.viewer.arrow_log import ArrowLog
from hilserver.viewer.mdf_log import MdfLog
from hilserver.viewer.measurement import Measurement
from hilserver.viewer.parquet_log import CsvLog, ParquetLog

FORMATS: Mapping[str, Callable[[Path], Measurement]] = {
    ".arrow": ArrowLog,
    ".mf4": MdfLog,
    ".parquet": ParquetLog,
    ".csv": CsvLog,
    ".tsv": CsvLog,
    ".txt": CsvLog,
}


def logs_in(folder: Path) -> dict[str, Path]:
    """The files of a folder that may be logs, by name, the latest first by name; none if there is no such folder.

    Those of its folder of cuts follow, as ``cuts/<name>``.
    """
    places = {"": folder, f"{CUTS}/": folder / CUTS}
    files = [(start, path) for start, place in places.items() if place.is_dir() for path in _latest_first(place)]
    return {start + path.name: path for start, path in files if path.suffix.lower() in FORMATS and path.is_file()}


def _latest_first(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), reverse=True)


def open_log(path: Path) -> Measurement:
    """Open a log by its suffix.

    Raises `RecordError` if there is no such file, its format is not known, or it can't be read.
    """
    if not path.is_file():
        raise RecordError(path, "is a folder: give its logs." if path.is_dir() else "does not exist.")
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise RecordError(path, f"is not a log: its name must end with one of {', '.join(FORMATS)}.")
    if path.stat().st_size == 0:
        raise RecordError(path, "is empty.")
    return kind(path)
