"""``hilserver calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.output import asking, never_waiting

if TYPE_CHECKING:
    from hilserver.rig.calibration import Calibration, CalibrationFit
    from hilserver.rig.rig import Rig


@never_waiting()
def calibrate(
    rig: Annotated[Path, typer.Argument(help="rig file (TOML)", show_default=False)],
    channel: Annotated[str, typer.Argument(help="the channel to calibrate", show_default=False)],
    points: Annotated[
        Path | None, typer.Option(help="take the points (raw reading, value) from this CSV file instead of measuring")
    ] = None,
    degree: Annotated[int, typer.Option(help="degree of the polynomial; 1: straight line", min=1, max=5)] = 1,
    tare: Annotated[float | None, typer.Option(help="shift the zero only: the value applied now, such as 0")] = None,
    unit: Annotated[str | None, typer.Option(help="unit of the values; default: as in the configuration")] = None,
    note: Annotated[str, typer.Option(help="reference instrument and name")] = "",
    seconds: Annotated[float, typer.Option(help="averaging time of a reading, s", min=0.05, max=600)] = 1.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="store without asking")] = False,
) -> None:
    """Calibrate a channel: apply known values, from zero to span; a polynomial is fitted and stored with its date.

    Nothing is armed or written: raw readings come from the running server, or from the device. A stored calibration
    applies from the next start.
    """
    from hilserver.commissioning import calibrate as c
    from hilserver.rig.build import load_rig

    loaded = load_rig(rig)
    settings = c.measured_channel(loaded, channel)
    c.calibration_file(loaded)
    given_in = c.checked_unit(loaded, channel, c.default_unit(loaded, channel) if unit is None else unit)
    if tare is not None:
        measured = _measured(loaded, channel, seconds)
        entry = c.tare_entry(loaded, channel, measured, tare, given_in, note)
        typer.echo(f"tare {entry.tare:g} {given_in}")
    else:
        from hilserver.rig.calibration import fit

        found = c.read_points(points, given_in) if points is not None else _walk(loaded, channel, given_in, seconds)
        fitted = fit(found, degree)
        _show(loaded, channel, fitted, given_in)
        entry = c.fitted_entry(settings, given_in, note, fitted)
    _store(loaded, channel, entry, yes)


def _measured(rig: Rig, channel: str, seconds: float) -> float:
    """One raw reading."""
    from hilserver.commissioning.calibrate import measure
    from hilserver.commissioning.live import live

    with live(rig, rig.settings.channels[channel].device or "") as source:
        found = measure(rig, source, channel, seconds)
        typer.echo(f"  raw {found.raw:.6g} ± {found.deviation:.2g} ({found.samples} samples, {source.described})")
    return found.raw


def _walk(rig: Rig, channel: str, unit: str, seconds: float) -> list[tuple[float, float]]:
    """Prompt for known values, one after the other, and measure each."""
    from hilserver.commissioning.calibrate import measure, same_as_before
    from hilserver.commissioning.live import live

    absolute = " (absolute)" if rig.settings.channels[channel].absolute else ""
    found: list[tuple[float, float]] = []
    with live(rig, rig.settings.channels[channel].device or "") as source:
        typer.echo(f"{channel}: readings {source.described}, means of {seconds:g} s; values in {unit}{absolute}")
        while True:
            what = ("zero", "span")[len(found)] if len(found) < 2 else "another point (Enter: finish)"
            with asking():
                text = typer.prompt(f"{what}: apply the value, let it settle, enter it", default="", show_default=False)
            if not text and len(found) >= 2:
                return found
            try:
                value = float(text)
            except ValueError:
                typer.echo(f"  enter a number, in {unit}")
                continue
            measured = measure(rig, source, channel, seconds)
            typer.echo(f"  raw {measured.raw:.6g} ± {measured.deviation:.2g} ({measured.samples} samples)")
            if same_as_before(measured, found):
                typer.echo("  differs from an earlier point by no more than the noise: not used")
                continue
            found.append((measured.raw, value))


def _show(rig: Rig, channel: str, fitted: CalibrationFit, unit: str) -> None:
    """Show the fit next to the present calibration."""
    from hilserver.cli.rig_tables import formula
    from hilserver.cli.tables import TerminalTable, new_console
    from hilserver.commissioning.calibrate import far_from_configured, value_now

    table = TerminalTable(title=f"{channel} in {unit or 'no unit'}", title_justify="left")
    for head in ("raw", "value", "present", "fitted", "residual"):
        table.add_column(head, justify="right")
    for (raw, value), residual in zip(fitted.points, fitted.residuals, strict=True):
        columns = (raw, value, value_now(rig, channel, raw, unit), value - residual, residual)
        table.add_row(*(f"{number:.5g}" for number in columns))
    new_console().print(table)
    typer.echo(f"value = {formula(fitted.polynomial)}")
    share = f" ({100.0 * fitted.largest_residual / fitted.span:.2g} % of the span)" if fitted.span else ""
    typer.echo(f"maximum residual {fitted.largest_residual:.3g} {unit}{share}")
    if far_from_configured(rig, channel, fitted, unit):
        typer.echo("Note: this differs greatly from the present calibration. Are channel and unit correct?")


def _store(rig: Rig, channel: str, entry: Calibration, yes: bool) -> None:
    from hilserver.commissioning.calibrate import calibration_file, store

    file = calibration_file(rig)
    if not yes and not _confirmed(f"Store the calibration in {file}?"):
        typer.echo("Nothing was stored.")
        raise typer.Exit(1)
    store(rig, channel, entry)
    typer.echo(f"Stored in {file}; it applies from the next start.")


def _confirmed(question: str) -> bool:
    with asking():
        return typer.confirm(question)
