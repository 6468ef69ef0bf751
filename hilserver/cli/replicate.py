"""``hilserver replicate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def replicate(
    log: Annotated[Path, typer.Argument(help="log of a run whose work cycle has repeated", show_default=False)],
    target: Annotated[
        Path,
        typer.Argument(help="time history that is wanted: CSV with the columns time and value", show_default=False),
    ],
    name: Annotated[str, typer.Option("--input", help="operator input that the cycle moves", show_default=False)],
    channel: Annotated[str, typer.Option(help="channel that is to follow the target", show_default=False)],
    highest: Annotated[str, typer.Option(help="highest frequency that is corrected")] = "10 Hz",
    gain: Annotated[float, typer.Option(min=0.0, max=1.0, help="share of the error corrected per iteration")] = 0.7,
    out: Annotated[Path, typer.Option("--output", "-o", help="work cycle of the next iteration")] = Path("next.toml"),
) -> None:
    """Correct a work cycle so that the response of a channel becomes a given time history: one iteration.

    Run the written cycle, record it, and repeat this until the error is small enough.

    Example: hilserver replicate logs/run.arrow road.csv --input joystick --channel x -o config/cycles/next.toml
    """
    from hilserver.commissioning.replication import POINTS, last_period, next_drive, read_target, write_cycle
    from hilserver.errors import HilserverError
    from hilserver.record.header import read_header
    from hilserver.units import to_si

    period = last_period(log, name, channel)
    wanted, unit = read_target(target, period)
    header = read_header(log)
    if (known := header.units.get(f"channel.{channel}", "")) != unit:
        raise HilserverError(f"{target} is in {unit or 'no unit'}, but channel {channel} is in {known or 'no unit'}.")
    try:
        bound = to_si(highest, "1/s")
    except ValueError as error:
        raise HilserverError(f"--highest: {error}.") from None
    bound = min(bound, POINTS / (4.0 * period.length))
    found = next_drive(period, wanted, bound, gain)
    inputs = header.configuration.get("rig", {}).get("inputs", {})
    low, high = inputs.get(name, {}).get("range", (-1.0, 1.0))
    is_cut = write_cycle(out, name, period, found.drive, (float(low), float(high)))
    print(f"Error of this iteration: {100.0 * found.error:.2f} % of the target (RMS, without the mean).")
    print(f"From one period to the next, the response changes by {100.0 * found.unsteady:.2f} %.")
    print(f"Corrected up to {bound:.4g} Hz ({found.lines} harmonics): {out}")
    if is_cut:
        print(f"The drive reaches the limits of {name}, {low:g} … {high:g}: the target can't be reached completely.")
