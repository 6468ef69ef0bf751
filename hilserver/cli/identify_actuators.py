"""``hilserver identify`` for actuators whose position is controlled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hilserver.cli.changing import change_file
from hilserver.cli.prose import say

if TYPE_CHECKING:
    from hilserver.identify.actuator_fit import IdentifiedActuator
    from hilserver.identify.actuator_record import RecordedActuator
    from hilserver.rig.rig import Rig


def identify_actuators(
    rig: Rig, names: Sequence[str], log: Path | None, seconds: float | None, out: Path, *, apply: bool, yes: bool
) -> bool:
    """Identify these actuators, all if none are given, from a log or from a sweep of the simulated rig.

    False if the result was to be applied, but can't be.
    """
    from hilserver.cli.fidelity import grid_table
    from hilserver.cli.tables import new_console
    from hilserver.identify.actuator_fit import identify_actuator
    from hilserver.identify.actuator_report import actuator_document, actuator_fragment, actuator_table, sentences
    from hilserver.identify.actuator_sweep import USUAL_SECONDS

    records = _records(rig, _wanted(rig, names), log, seconds or USUAL_SECONDS)
    results = [identify_actuator(record) for record in records]
    console, text = new_console(), actuator_fragment(results)
    for found in results:
        grid = actuator_table(found)
        console.print(grid_table(grid, f"Actuator {found.record.name}", compact=True))
        for sentence in sentences(found):
            say(sentence)
    typer.echo(f"\n{text}")
    written = actuator_document(results).write(out, f"{rig.settings.name}-actuators")
    fragment_file = out / f"{rig.settings.name}-actuators.toml"
    fragment_file.write_text(text, encoding="utf-8")
    for path in (fragment_file, *written):
        say(f"Written: {path}")
    return not apply or _applied(rig.file, text, results, yes)


def _wanted(rig: Rig, names: Sequence[str]) -> list[str]:
    """The actuators to identify. Raises HilserverError for what is none."""
    from hilserver.errors import HilserverError, did_you_mean

    known = rig.settings.actuators
    for name in names:
        if name not in known:
            raise HilserverError(f'{rig.file}: "{name}" is not an actuator.{did_you_mean(name, known)}')
    return list(dict.fromkeys(names or known))


def _records(rig: Rig, names: Sequence[str], log: Path | None, seconds: float) -> list[RecordedActuator]:
    from hilserver.identify.actuator_record import columns_in_log, record_of_columns
    from hilserver.identify.actuator_sweep import recorded_sweep

    if log is not None:
        columns = columns_in_log(rig, list(names), log)
        return [record_of_columns(rig, name, columns, str(log)) for name in names]
    if not all(device.is_simulated for device in rig.devices):
        _write_sweep(rig, names, seconds)
    return [recorded_sweep(rig, name, seconds) for name in names]


def _write_sweep(rig: Rig, names: Sequence[str], seconds: float) -> None:
    """Write the files with which a real rig makes the recording, and raise HilserverError that says how."""
    from hilserver.errors import HilserverError
    from hilserver.identify.actuator_sweep import MADE, sweep_files, sweep_of

    if len(names) > 1:
        raise HilserverError(
            f"{rig.file}: choose one of its actuators with --actuator ({', '.join(names)}): each has its own recording."
        )
    sweep = sweep_of(rig, names[0], seconds)
    files = {rig.file.parent / name: text for name, text in sweep_files(rig, {names[0]: sweep}).items()}
    for path, text in files.items():
        if path.exists() and not path.read_text(encoding="utf-8").startswith(MADE):
            raise HilserverError(f"{path}: exists, and was not written by this command. Move it elsewhere.")
        path.write_text(text, encoding="utf-8")
    real = next(device.name for device in rig.devices if not device.is_simulated)
    first = next(iter(files))
    low, high = 1e3 * sweep.command.min(), 1e3 * sweep.command.max()
    raise HilserverError(
        f"{rig.file}: device {real} is not simulated, and this command does not move it. Record a sweep of actuator "
        f"{names[0]} between {low:.3g} and {high:.3g} mm, up to {sweep.highest:.3g} Hz, with strategy direct: "
        f"{', '.join(map(str, files))} were written for that. Look through them, then: hilserver run {first}; arm and "
        f"start it, start the work cycle, and stop it at its end. Then: hilserver identify {rig.file} --log with the "
        "log of that run."
    )


def _applied(file: Path, fragment: str, results: Sequence[IdentifiedActuator], yes: bool) -> bool:
    """Show the difference, ask, and merge the fragment into the rig file. A model that is not stable is not merged."""
    from datetime import datetime

    from hilserver.rig.build import load_rig
    from hilserver.rig.merge import merged

    if unstable := [found.record.name for found in results if found.decay <= 0.0]:
        say(f"Nothing was merged: {file} stays as it is. The model of {', '.join(unstable)} is not stable.")
        return False
    before, now = file.read_text(encoding="utf-8"), datetime.now().astimezone()
    change_file(file, before, merged(before, fragment, {}, now.date()), now, load_rig, "identified", yes=yes)
    return True
