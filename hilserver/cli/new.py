"""``hilserver new``."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from hilserver.commissioning.questions import Answers, Catalogue


def new(
    folder: Annotated[Path, typer.Argument(help="folder to be created")],
    template: Annotated[
        Literal["demo", "lift", "boom", "conveyor"] | None,
        typer.Option(
            help="demo (the default): one servo valve for both ports; lift: one for each; boom: with a mechanism; "
            "conveyor: a hydraulic motor",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="name of the rig; default: that of the folder")] = None,
    flow: Annotated[
        str | None, typer.Option(help='nominal flow of the real valve per edge, such as "40 l/min"')
    ] = None,
    drop: Annotated[str | None, typer.Option(help='pressure drop of this flow per edge, such as "35 bar"')] = None,
    f90: Annotated[str | None, typer.Option(help='-90° frequency of the real valve, such as "60 Hz"')] = None,
    ask: Annotated[
        bool, typer.Option("--ask", help="ask for valve, cylinder, sensors and card, each with a default")
    ] = False,
    answers: Annotated[
        Path | None, typer.Option(help="answers to these questions (TOML), such as the answers.toml of another rig")
    ] = None,
    answer: Annotated[
        list[str] | None, typer.Option(help='one answer, such as bore="63 mm"; may be repeated', metavar="KEY=VALUE")
    ] = None,
    catalogue: Annotated[
        Path | None, typer.Option(help="catalogue of valves (TOML) to choose from; default: public datasheets")
    ] = None,
) -> None:
    """Create a folder with a rig, its circuits, work cycle, test sequence and README, ready to run and to adapt.

    From a template: the values of the real valve are entered in the rig and in its simulated machine.

    From answers (--ask, --answers, --answer): also cylinder, load, sensors, card and virtual valve. What is neither
    answered nor stated in the catalogue is assumed; a comment at each line states its source. The folder then
    contains all answers as answers.toml.
    """
    from hilserver.cli.examples import example
    from hilserver.commissioning.new_rig import RIG, new_rig
    from hilserver.errors import HilserverError

    rig_name = name or re.sub(r"\W+", "_", folder.resolve().name)
    valve = {key: value for key, value in (("flow", flow), ("drop", drop), ("f90", f90)) if value is not None}
    if ask or answers is not None or answer:
        if template is not None:
            raise HilserverError("--template can't be combined with answers, which determine the template.")
        named = {"name": name} if name else {}
        known = _known(answers, named | valve | dict(map(_pair, answer or [])), catalogue_valves(catalogue), rig_name)
        written = _from_answers(folder, known, ask)
    else:
        if catalogue is not None:
            raise HilserverError("--catalogue is for --ask, --answers and --answer.")
        written = new_rig(folder, example(f"rigs/{template or 'demo'}.toml"), rig_name, valve)
    for path in written:
        typer.echo(f"Written: {path}")
    typer.echo(f"Next: hilserver check {folder / RIG}")


def _known(file: Path | None, options: Mapping[str, str], catalogue: Catalogue, name: str) -> Answers:
    """The answers of options, and before them of a file; without a name there, ``name``: that of the folder."""
    from hilserver.commissioning.questions import FOLDER, given_answers

    found = given_answers(answers_in(file) if file else {}, catalogue, str(file or ""))
    given = given_answers(options, catalogue)
    if "name" not in found.texts | given.texts:
        found.texts["name"], found.origins["name"] = name, FOLDER
    found.texts |= given.texts
    found.origins |= given.origins
    for key in given.texts:
        found.files.pop(key, None)
    return found


def answers_in(file: Path) -> dict[str, Any]:
    """The answers of a file. Raises ConfigurationError if it is not one."""
    from hilserver.commissioning.questions import TABLE
    from hilserver.errors import ConfigurationError, Problem
    from hilserver.toml import read_toml

    table = read_toml(file)
    problems = [Problem("belongs in the table [answers].", key, str(file)) for key in table if key != TABLE]
    if not isinstance(table.get(TABLE), dict):
        problems.append(Problem("missing: the table with the answers.", TABLE, str(file)))
    if problems:
        raise ConfigurationError(problems)
    return dict(table[TABLE])


def _from_answers(folder: Path, answers: Answers, ask: bool) -> list[Path]:
    """Create the folder from the answers, and with ``ask`` from what the user says to the other questions."""
    from hilserver.cli.dialogue import asked
    from hilserver.cli.examples import example
    from hilserver.cli.prose import say
    from hilserver.commissioning.new_rig import answered_rig, refuse_impossible, refuse_used
    from hilserver.commissioning.questions import QUESTIONS, completed
    from hilserver.errors import ConfigurationError, HilserverError

    refuse_used(folder)
    if ask and not sys.stdin.isatty():
        raise HilserverError("--ask needs a terminal. Without one, answer with --answers FILE or --answer KEY=VALUE.")
    examples = example("rigs/demo.toml").parent
    if not ask:
        return answered_rig(folder, examples, completed(answers))
    say("Press Enter for the value in brackets. Give values with units. Ctrl-C cancels: nothing is created then.")
    while True:
        answers = asked(answers, lambda so_far: refuse_impossible(so_far, examples))
        try:
            return answered_rig(folder, examples, answers)
        except ConfigurationError as error:
            again = {problem.key for problem in error.problems} & QUESTIONS.keys()
            if not again:
                raise
            say("\n".join(f"Not possible: {problem.message}" for problem in error.problems), indent=2)
            for key in again:
                answers.texts.pop(key)


def _pair(text: str) -> tuple[str, Any]:
    from hilserver.errors import HilserverError

    key, equals, value = text.partition("=")
    if not equals:
        raise HilserverError(f'--answer {text}: write KEY=VALUE, such as bore="63 mm".')
    return key.strip(), value.strip()


def catalogue_valves(catalogue: Path | None) -> Catalogue:
    """The valves of a catalogue, as answers to the questions about a valve."""
    from hilserver.cli.examples import example
    from hilserver.studies.catalogue import load_catalogue
    from hilserver.units import shown_value

    found = {}
    for each in load_catalogue(catalogue or example("catalogue/servo_valves.toml")):
        valve, point = each.valve, each.valve.nominal_flow
        stated = {
            "source": each.source,
            "flow": shown_value(point.flow, "m^3/s"),
            "drop": shown_value(point.drop, "Pa"),
            "per": point.per,
            "f90": f"{valve.frequency():.4g} Hz",
        }
        stated |= {key: f"{getattr(valve, key):g}" for key in ("damping", "overlap") if key in valve.model_fields_set}
        if (leakage := valve.leakage) is not None:  # of two edges in a row, twice
            times = 2.0 if leakage.per == "edge" else 1.0
            stated |= {
                "leakage": shown_value(times * leakage.flow, "m^3/s"),
                "leakage_drop": shown_value(times * leakage.drop, "Pa"),
            }
        found[each.name] = stated
    return found
