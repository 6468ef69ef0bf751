"""``hilserver export``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

Fmi = Annotated[str | None, typer.Option(help="circuit: version of FMI, 2.0 or 3.0; default: 2.0")]
Tick = Annotated[
    str | None, typer.Option(help='circuit: time that is divided into solver.substeps, such as "0.5 ms"; default: 1 ms')
]


def export(
    source: Annotated[
        Path,
        typer.Argument(
            help="log of hilserver (.arrow; further files of a long run are found automatically), "
            "or circuit file (.toml)"
        ),
    ],
    out: Annotated[
        Path,
        typer.Argument(help="file to write; its suffix (.csv, .parquet, .mf4, .mat, .xlsx; .fmu) selects the format"),
    ],
    format: Annotated[
        str | None, typer.Option(help="log: csv, parquet, mf4, mat or xlsx, if the suffix does not state it")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(help='log: columns to write, such as "channel.*"; may be repeated; default: all'),
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="log: keep every n-th row only")] = 1,
    fmi: Fmi = None,
    tick: Tick = None,
) -> None:
    """Write a log as CSV, Parquet, MDF4, MAT (MATLAB) or Excel, or a circuit as an FMU, for other tools.

    From a log: one column per logged quantity (SI units; raw readings unchanged), one per value of the virtual circuit.

    From a circuit file: an FMU (functional mock-up unit) for Simulink, OpenModelica, Amesim and others. It contains
    the compiled circuit, and needs neither hilserver nor Python.
    """
    of_log = {"--format": format, "--columns": columns, "--every": every if every > 1 else None}
    of_circuit = {"--fmi": fmi, "--tick": tick}
    if source.suffix == ".toml":
        _refuse(source, "circuit file", of_log)
        _circuit(source, out, fmi, tick)
    else:
        _refuse(source, "log", of_circuit)
        _log(source, out, format, columns or ("*",), every)


def _refuse(source: Path, kind: str, options: Mapping[str, object]) -> None:
    """Raises HilserverError if one of these options, which have no meaning for the kind of file, is given."""
    from hilserver.errors import HilserverError

    for option in (name for name, value in options.items() if value):
        raise HilserverError(f"{source}: {option} does not apply to a {kind}.")


def _log(log: Path, out: Path, format: str | None, columns: Sequence[str], every: int) -> None:
    from hilserver.record.export import export as write

    done = write(log, out, format, columns=tuple(columns), every=every)
    torn = " The log has no end mark; all complete rows were written." if done.torn and not done.damages else ""
    print(f"{out}: {done.rows} rows, {len(done.columns)} columns.{torn}")
    for damage in done.damages:
        print(f"The log is damaged: {damage}.")


def _circuit(file: Path, out: Path, fmi: str | None, tick: str | None) -> None:
    from hilserver.cli.simulate import seconds
    from hilserver.fmu.description import FMI_2
    from hilserver.fmu.export import export_circuit
    from hilserver.fmu.variables import PARAMETERS, Causality
    from hilserver.simulation.circuit_run import TICK

    done = export_circuit(file, out, fmi or FMI_2, TICK if tick is None else seconds("--tick", tick))
    inputs, outputs = done.number(Causality.INPUT), done.number(Causality.OUTPUT)
    uses = "model exchange and co-simulation" if done.number(Causality.DERIVATIVE) else "co-simulation"
    print(f"{out}: FMI {done.version}, {uses}; inputs: {inputs}, outputs: {outputs}.")
    settable, all_values = done.number(Causality.TUNABLE, Causality.FIXED), done.number(*PARAMETERS)
    print(f"Of {all_values} datasheet and initial values, {settable} can be changed in the FMU.")
