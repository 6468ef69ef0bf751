"""``hilserver doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def doctor(
    rig: Annotated[
        Path | None, typer.Argument(help="rig file (TOML): its loop, broker and log folder are checked")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="the findings as JSON")] = False,
) -> None:
    """Check whether this computer is suitable for the rig.

    Looks at kernel, CPUs, limits, clock, broker, cache, shared memory and disk, and reports for each finding its
    consequences and the command that fixes it. Changes nothing, accesses no device.

    Exit code: 0 suitable (notes do not count), 1 the rig runs, but less well than it could, 2 it can't run like this.
    """
    from hilserver.cli.tables import new_console
    from hilserver.commissioning.doctor import diagnose, doctor_figures, exit_code
    from hilserver.report.figures import json_text
    from hilserver.rig.build import load_rig

    findings = diagnose(load_rig(rig) if rig is not None else None)
    if json:
        print(json_text(doctor_figures(findings)))
        raise typer.Exit(exit_code(findings))
    console = new_console()
    colours = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}
    for finding in findings:
        console.print(f"{finding.state:8}", style=colours[finding.state], end="")
        console.print(f"{finding.check}: {finding.found}", soft_wrap=True)
        for word, text in (("effect:", finding.cost), ("fix:", finding.remedy)):
            if text and finding.state != "ok":
                console.print(f"{'':8}{word:8}{text}", soft_wrap=True)
    counts = {state: sum(f.state == state for f in findings) for state in ("error", "warning")}
    console.print(", ".join(f"{n} {state}{'' if n == 1 else 's'}" for state, n in counts.items()) + ".")
    raise typer.Exit(exit_code(findings))
