"""What ``hilserver check`` does with files that belong to a rig or a circuit: work cycles, sequences, studies, …

Each is read as by the command that uses it, with all its problems. What depends on a file that it does not name is not
checked, which is said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path


def _cycle(file: Path) -> list[str]:
    from hilserver.simulation.circuit_run import read_cycle

    cycle = read_cycle(file)
    return [
        f"Work cycle of {cycle.duration:g} s, with {_listed('input', cycle.inputs)}.",
        "Not checked: whether a rig has these inputs, with these ranges. The check of its rig file does that.",
    ]


def _calibration(file: Path) -> list[str]:
    from hilserver.errors import ConfigurationError, Problem
    from hilserver.rig.calibration import histories
    from hilserver.toml import read_toml

    problems: list[Problem] = []
    found = histories(read_toml(file), str(file), problems)
    if problems:
        raise ConfigurationError(problems)
    return [
        f"Calibrations of {_listed('channel', found)}.",
        "Not checked: whether the channels still have these sources and units. The check of their rig file does that.",
    ]


def _sequence(file: Path) -> list[str]:
    from hilserver.rig.build import load_rig
    from hilserver.sequences.model import load_sequence
    from hilserver.sequences.simulated import check_sequence

    sequence = load_sequence(file)
    steps, expectations = len(sequence.steps), len(sequence.settings.expect)
    said = f"Test sequence of {sequence.length:g} s, with {steps} steps and {expectations} expectations."
    if sequence.rig_file is None:
        return [said, "Not checked: its inputs, devices and channels, because it names no rig file."]
    check_sequence(sequence, load_rig(sequence.rig_file))
    return [
        said,
        f"Its inputs and faults are possible on {sequence.rig_file}.",
        "Not checked: whether its commands are accepted, and its channels recorded. hilserver test does that.",
    ]


def _study(file: Path) -> list[str]:
    from hilserver.studies.settings import load_study

    study = load_study(file)
    varied, figures = [each.key for each in study.varied], [each.name for each in study.figures]
    return [f"Study of {_listed('value', varied)}, with {_listed('figure', figures)}."]


def _catalogue(file: Path) -> list[str]:
    from hilserver.studies.catalogue import load_catalogue

    return [f"Catalogue of {len(load_catalogue(file))} valves."]


def _columns(file: Path) -> list[str]:
    from hilserver.studies.measured import read_columns

    return [
        f"Map of the columns of {', '.join(read_columns(file).columns)}.",
        "Not checked: whether log and circuit have these columns and quantities. hilserver fit does that.",
    ]


def _subcircuit(file: Path) -> list[str]:
    from hilserver.circuit.library import circuit_library
    from hilserver.circuit.model import read_part
    from hilserver.circuit.subcircuits import SUBCIRCUIT
    from hilserver.errors import ConfigurationError
    from hilserver.toml import read_toml

    ports = read_toml(file)["ports"]
    same = {port: port for port in ports if isinstance(port, str)} if isinstance(ports, list) else {}
    part = {"type": SUBCIRCUIT, "file": file.name, "ports": same}
    try:
        read_part({"components": {"part": part}}, circuit_library(file), folder=file.parent)
    except ConfigurationError as error:  # as if there were no circuit around it
        text, key = " (In sub-circuit part of the circuit.)", "components.part."
        alone = [replace(each, message=each.message.removesuffix(text)) for each in error.problems]
        raise ConfigurationError(
            each if each.file else replace(each, file=str(file), key=each.key.removeprefix(key)) for each in alone
        ) from None
    return [
        f"Sub-circuit with {_listed('port', same)}.",
        "Not checked: its connections. The check of a circuit that contains it does that.",
    ]


def _listed(noun: str, names: Collection[str]) -> str:
    """``inputs flow, joystick``."""
    return f"{noun if len(names) == 1 else f'{noun}s'} {', '.join(names)}"


FILE_CHECKS: dict[str, Callable[[Path], list[str]]] = {
    "work cycle": _cycle,
    "calibration": _calibration,
    "sequence": _sequence,
    "study": _study,
    "catalogue": _catalogue,
    "map of a log's columns": _columns,
    "sub-circuit": _subcircuit,
}
"""By kind (`kind_of`): a function that checks a file and tells what it is, and what of it was not checked. Raises
ConfigurationError with all problems."""
