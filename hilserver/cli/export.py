"""``hilserver export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    log: Annotated[
        Path, typer.Argument(help="log of hilserver (.arrow); further files of a long run are found automatically")
    ],
    out: Annotated[Path, typer.Argument(help="file to write; its suffix (.csv, .parquet, .mf4) selects the format")],
    format: Annotated[str | None, typer.Option(help="csv, parquet or mf4, if the suffix does not state it")] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(help='columns to write, such as "channel.*"; may be repeated; default: all'),
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="keep every n-th row only")] = 1,
) -> None:
    """Write a log as CSV, Parquet or MDF4, for other tools.

    One column per logged quantity (SI units; raw readings unchanged), one per value of the virtual circuit.
    """
    from hilserver.record.export import export as write

    done = write(log, out, format, columns=tuple(columns or ("*",)), every=every)
    torn = " The log has no end mark; all complete rows were written." if done.torn and not done.damages else ""
    print(f"{out}: {done.rows} rows, {len(done.columns)} columns.{torn}")
    for damage in done.damages:
        print(f"The log is damaged: {damage}.")
