"""What ``hilserver check`` does with files that belong to a rig or a circuit: work cycles, sequences, studies, …

Each is read as by the command that uses it, with all its problems. What depends on a file that it does not name is not
checked, which is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

HASHED, LONGEST_LINE = re.compile(rb"[^:\s]+:\$[67]\$"), 500
"""How the first line of a file of mosquitto_passwd begins, and the bytes of it that are read."""


def kind_of_file(file: Path) -> str:
    """What a file is; empty if its content does not tell. Raises ConfigurationError if it can't be read as TOML."""
    from hilserver.rig.file_kinds import kind_of
    from hilserver.toml import read_toml

    if file.suffix.lower() == ".csv":
        return "sequence"
    with suppress(OSError), file.open("rb") as opened:
        if HASHED.match(opened.readline(LONGEST_LINE)):
            return "accounts"
    return kind_of(read_toml(file))


def _accounts(file: Path) -> list[str]:
    from hilserver.protocol.accounts import SERVER, Accounts

    names = [line.partition(":")[0] for line in Accounts("rig", file).passwords().splitlines()]
    return [
        f"Passwords of {_listed('account', [name for name in names if name != SERVER])} at a broker.",
        "Not checked: which of them may send commands. The check of the rig file does that (mqtt.operators).",
    ]


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
    steps, expectations = _count(len(sequence.steps), "step"), _count(len(sequence.settings.expect), "expectation")
    said = f"Test sequence of {sequence.length:g} s, with {steps} and {expectations}."
    if sequence.rig_file is None:
        return [said, "Not checked: its inputs, devices and channels, because it names no rig file."]
    check_sequence(sequence, load_rig(sequence.rig_file))
    return [
        said,
        f"Its inputs and faults are possible on {sequence.rig_file}, which has room for its reactions and playouts.",
        "Not checked: whether its commands are accepted, and its channels recorded. hilserver test does that.",
    ]


def _study(file: Path) -> list[str]:
    from hilserver.studies.settings import load_study

    study = load_study(file)
    varied, figures = [each.key for each in study.varied], [each.name for each in study.figures]
    return [f"Study of {_listed('value', varied)}, with {_listed('figure', figures)}."]


def _catalogue(file: Path) -> list[str]:
    from hilserver.studies.catalogue import load_catalogue

    return [f"Catalogue of {_count(len(load_catalogue(file)), 'valve')}."]


def _columns(file: Path) -> list[str]:
    from hilserver.studies.measured import read_columns

    return [
        f"Map of the columns of {', '.join(read_columns(file).columns)}.",
        "Not checked: whether log and circuit have these columns and quantities. hilserver fit does that.",
    ]


def _layout(file: Path) -> list[str]:
    from hilserver.viewer.layout import read_layout

    layout = read_layout(file)
    signals = layout.signals()
    return [
        f"Layout of recordings, with {_listed('tab', [tab.name or 'without a name' for tab in layout.tabs])}, and "
        f"{_listed('signal', signals) if signals else 'no signals'}.",
        "Not checked: whether a log has these signals. hilserver view LOG --layout FILE does that.",
    ]


def _login(file: Path) -> list[str]:
    from hilserver.protocol.address import read_address

    rig, address = read_address(file)
    address.check()
    user = f" as {address.user}" if address.user is not None else ""
    return [
        f"Login{user} at the broker {address}{f', for rig {rig}' if rig is not None else ''}"
        f"{', with TLS' if address.ca_file is not None else ''}.",
        "Not checked: whether this broker accepts it. hilserver status --broker FILE does that.",
    ]


def _answers(file: Path) -> list[str]:
    from hilserver.cli.examples import example
    from hilserver.cli.new import answers_in, catalogue_valves
    from hilserver.commissioning.new_rig import refuse_impossible
    from hilserver.commissioning.questions import completed, given_answers

    answers = given_answers(answers_in(file), catalogue_valves(None), str(file))
    refuse_impossible(completed(answers), example("rigs/demo.toml").parent)
    return [f"{_count(len(answers.texts), 'answer')} for hilserver new --answers."]


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


def _count(number: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number} {noun if number == 1 else f'{noun}s'}"


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
    "layout": _layout,
    "login": _login,
    "accounts": _accounts,
    "answers": _answers,
}
"""By kind (`kind_of`): a function that checks a file and says what it is, and what could not be checked. Raises
ConfigurationError with all problems."""
