"""A rig made from answers (`hilserver.commissioning.questions`): an example, with the values of the answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import sqrt
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import InlineTable

from hilserver.commissioning.questions import (
    ANSWERED,
    CURRENT,
    QUESTIONS,
    TABLE,
    Answers,
    has_current_output,
)
from hilserver.commissioning.usual_values import AT_B, USUAL_DROP, load_pressure, load_problem, piston_areas
from hilserver.units import shown_value

TEMPLATES = {"one": "demo", "two": "lift"}
"""The example by the number of servo valves."""
VALVES = {"one": {"main": "servo_valve"}, "two": {"A": "valve_A", "B": "valve_B"}}
"""Servo valves: their names in the rig, and in its simulated drive."""
START = 0.2
"""Position of the rod at the beginning, share of the stroke."""
LIFT, SECONDS, TRAVEL = 0.6, 2.0, 0.4
"""The work cycle's largest command, for about how long, and the share of the stroke that it may take."""
STEP, CERTAIN = 0.4, 0.2
"""The test sequence's command, and the share of its expected travel that must be reached."""
PUMP = 1.5
"""Flow of the virtual pump by the nominal flow of the virtual valve."""
LINE, LEAST_LINE = 3.0, 2e-3
"""Volume of the virtual line by the nominal flow of the virtual valve, s, and the least, m³."""
SIMULATED_CARD, CARD = "the device: here a simulation of rig and I/O card ", "the device: the I/O card of the rig "
"""What the example's comment says of its device, and that of a real one."""
COLUMN = 46
"""Column from which comments stand, where the line is shorter."""


class Edited:
    """A TOML text whose values are replaced; a comment at each line says which answers they come from."""

    def __init__(self, text: str, answers: Answers) -> None:
        self.document: Any = tomlkit.parse(text)
        self._answers = answers
        self._lines: dict[tuple[str, ...], list[str]] = {}
        self._calculated: set[tuple[str, ...]] = set()

    def put(self, path: str, value: Any, *keys: str) -> None:
        """Set the value at a dotted path, which consists of the answers ``keys``."""
        self._set(path, value, keys)

    def calculate(self, path: str, value: Any, *keys: str) -> None:
        """Set the value at a dotted path, which is calculated from the answers ``keys``."""
        self._calculated.add(self._set(path, value, keys))

    def _set(self, path: str, value: Any, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Set a value; returns the path of its line."""
        *tables, last = path.split(".")
        table, line = self.document, tuple[str, ...]()
        for name in tables:
            if not isinstance(table, InlineTable):
                line = (*line, name)
            table = table[name]
        table[last] = value
        line = line if isinstance(table, InlineTable) else (*line, last)
        used = self._lines.setdefault(line, [])
        used += [key for key in keys if key not in used]
        return line

    def drop(self, path: str) -> None:
        """Remove a key, if it is there."""
        *tables, last = path.split(".")
        table = self.document
        for name in tables:
            table = table[name]
        table.pop(last, None)

    def text(self) -> str:
        """The text with the comments."""
        for (*tables, last), keys in self._lines.items():
            table = self.document
            for name in tables:
                table = table[name]
            if (*tables, last) in self._calculated:
                _note(table, last, f"calculated from {answers_of(self._answers, keys)}")
            else:
                _note(table, last, answers_of(self._answers, keys, last))
        return str(tomlkit.dumps(self.document))


def _note(table: Any, key: str, text: str) -> None:
    """A comment at the line of a key."""
    item = table[key]
    item.comment(text)
    item.trivia.comment_ws = " " * max(COLUMN - len(f"{key} = {item.as_string()}"), 2)


def answers_of(answers: Answers, keys: list[str], line: str = "") -> str:
    """Where the values of a line come from: ``flow, drop: answered; per: assumed``, or ``answered`` if the line and
    its only answer have the same name.
    """
    if keys == [line]:
        return answers.origins[line]
    by_origin: dict[str, list[str]] = {}
    for key in keys:
        by_origin.setdefault(answers.origins[key], []).append(key)
    return "; ".join(f"{', '.join(named)}: {where}" for where, named in by_origin.items())


def answered_texts(texts: Mapping[Path, str], rig: Path, answers: Answers) -> dict[Path, str]:
    """The texts of an example's files with the values of all answers.

    ``rig``: the rig file among them. Raises ConfigurationError where the load can't be lifted.
    """
    load_problem(answers)
    found: dict[Path, str] = {}
    for path, text in texts.items():
        if path == rig:
            found[path] = _rig(text, answers)
        elif path.as_posix() not in _OF_THE_SIMULATED or answers["driver"] == "simulated":
            edited = Edited(_with_room(text), answers)
            _FILES[path.as_posix()](edited, answers)
            found[path] = edited.text()
    return found


def amplitude(answers: Answers) -> float:
    """Share of the commands of work cycle and test sequence that keeps the rod within its stroke."""
    travel = LIFT * SECONDS * _speed(answers)
    return float(f"{min(1.0, TRAVEL * answers.value('stroke') / travel):.2g}")


def raised(answers: Answers) -> str:
    """A position that the test sequence's step of the joystick reaches in any case."""
    stroke = answers.value("stroke")
    travel = min(STEP * amplitude(answers) * _speed(answers), (1.0 - START) * stroke)
    return f"{1e3 * (START * stroke + CERTAIN * travel):.5g} mm"


def _speed(answers: Answers) -> float:
    """About the highest speed of the rod, m/s: at full command, or with all the flow of the virtual pump."""
    drop = answers.value("virtual_pressure") - load_pressure(answers)
    most = min(PUMP, sqrt(drop / USUAL_DROP)) * answers.value("virtual_flow")
    return float(most / piston_areas(answers)[0])


# --- the rig file ----------------------------------------------------------------------------------------------------


def _with_room(text: str) -> str:
    """The text with lines for the values of a servo valve that the example leaves out, after its damping."""
    tables = re.split(r"^(?=\[)", text, flags=re.MULTILINE)
    for number, table in enumerate(tables):
        lines = "".join(f"{key} = {{}}\n" for key in ("leakage", "overlap") if f"\n{key} = " not in table)
        tables[number] = re.sub(r"(\ndamping = .*\n)", rf"\1{lines}", table)
    return "".join(tables)


def _rig(text: str, answers: Answers) -> str:
    text = _with_room(text)
    if "\nstroke = {" not in text:
        text = re.sub(r"(\np_B_high = .*\n)", r"\1stroke = {}\n", text)
    if "Q_A" in answers.channels and "\nQ_A = " not in text:
        text = text.replace("\nx = {", "\nQ_A = {}\nx = {").replace('\ntank = "p_T"', '\ntank = "p_T"\nflow = ""', 1)
    if answers["driver"] != "simulated":
        start, end = text.index("[devices.rig]"), text.index("[channels]")
        end = text.rfind("\n# ---", start, end) + 1 or end
        text = f"{text[:start]}{_device(answers)}\n{text[end:]}"
        text = text.replace(SIMULATED_CARD, CARD.ljust(len(SIMULATED_CARD), "-"))
    edited = Edited(text, answers)
    edited.document["description"] = f"{_count(answers)} on a lifting cylinder, made by hilserver new from answers"
    _loop(edited, answers)
    if answers["driver"] == "simulated":
        _simulated_sensors(edited, answers)
    _channels(edited, answers)
    _limits(edited, answers)
    _cylinder(edited, answers)
    for name in VALVES[answers["servo_valves"]]:
        _valve(edited, answers, name)
    if answers["driver"] != "simulated":
        edited.document["simulation"] = tomlkit.table()
        edited.put("simulation.supply_pressure", answers["supply_pressure"], "supply_pressure")
    return edited.text()


def _count(answers: Answers) -> str:
    return "A servo valve" if answers["servo_valves"] == "one" else "A servo valve for each port"


def _device(answers: Answers) -> str:
    """The table of a real device, with a comment at each line."""
    lines = ["[devices.rig]", f'driver = "{answers["driver"]}"']

    def line(text: str, *keys: str) -> None:
        lines.append(f"{text:<{COLUMN - 2}}  # {answers_of(answers, list(keys), text.partition(' ')[0])}")

    is_ni = answers["driver"] == "ni"
    if is_ni:
        line(f'device = "{answers["device"]}"', "device")
    else:
        line(f'tcp = {{ host = "{answers["host"]}" }}', "host")
        line(f'rate = "{answers["rate"]}"', "rate")
    lines += ["", "[devices.rig.inputs]"]
    for channel in answers.channels:
        place = answers.value(key := f"at_{channel}")
        if not is_ni:
            line(f'{channel} = {{ table = "input", address = {place}, type = "int16" }}', key)
        elif answers["signal"] == "current":
            line(f'{channel} = {{ channel = "{place}", signal = "current", range = [0, 0.02] }}', key, "signal")
        else:
            low = "-10" if channel == "Q_A" else "0"
            line(f'{channel} = {{ channel = "{place}", range = [{low}, 10] }}', key, "signal")
    lines += ["", "[devices.rig.outputs]"]
    for output in answers.outputs:
        place = answers.value(key := f"at_{output}")
        safe = 0.5 * sum(_raw(answers)[0])
        if has_current_output(answers):
            current = f'signal = "current", range = [0, 0.02], safe = {safe:g}'
            line(f'{output} = {{ channel = "{place}", {current} }}', key, "valve_signal")
        elif is_ni:
            line(f'{output} = {{ channel = "{place}", safe = {safe:.1f} }}', key)
        else:
            table = f'table = "holding", address = {place}, type = "int16", safe = {round(safe)}'
            line(f"{output} = {{ {table} }}", key, "valve_signal")
    return "\n".join([*lines, ""])


def _loop(edited: Edited, answers: Answers) -> None:
    edited.put("name", answers["name"], "name")
    if answers["driver"] == "simulated":
        return
    loop = edited.document["loop"]
    loop["max_missed"] = 5
    periods = 0.02 + (5.0 / answers.value("rate") if answers["driver"] == "modbus" else 0.0)
    loop["max_age"] = f"{1e3 * periods:.3g} ms"
    _note(loop, "max_missed", "default of hilserver")
    _note(loop, "max_age", "default of hilserver; of a slow device, 5 periods more")


def _range(channel: str, answers: Answers) -> tuple[list[str], str]:
    """Values at the ends of a sensor's range, and the key of the answer."""
    key = {"p_T": "tank_range", "x": "position_range", "Q_A": "flow_range"}.get(channel, "pressure_range")
    text = answers[key]
    number = text.lstrip(" +")
    unit = number.lstrip("0123456789.eE+-").strip()
    return [f"-{number}" if channel == "Q_A" else f"0 {unit}", text], key


def _simulated_sensors(edited: Edited, answers: Answers) -> None:
    sensors = edited.document["devices"]["rig"]["sensors"]
    if "Q_A" not in answers.channels:
        sensors.pop("Q_A", None)
    for channel in answers.channels:
        ends, key = _range(channel, answers)
        settings = dict(sensors[channel])
        if channel == "Q_A":
            first = next(iter(VALVES[answers["servo_valves"]].values()))
            settings = {"of": f"{first}.q_A", "raw": [-10, 10]} | settings
        edited.put(f"devices.rig.sensors.{channel}", _inline(settings | {"value": ends}), key)


def _channels(edited: Edited, answers: Answers) -> None:
    if "Q_A" not in answers.channels:
        edited.drop("channels.Q_A")
    for channel in answers.channels:
        ends, key = _range(channel, answers)
        low = -1 if channel == "Q_A" else 0
        keys, scale = [key], {"raw": [10 * low, 10], "value": ends}
        if answers["driver"] == "modbus":
            full = answers.value("counts")
            keys, scale = [key, "counts"], {"raw": [full * low, full], "value": ends}
        elif answers["driver"] == "ni" and answers["signal"] == "current":
            keys, scale = [key, "signal"], {"current": ends}
        kept = edited.document["channels"][channel]
        others = ("filter",) if answers["driver"] != "simulated" else ("filter", "delay")
        others_kept = {key: kept[key] for key in others if key in kept}
        settings = {"device": "rig", "source": channel, "scale": scale} | others_kept
        edited.put(f"channels.{channel}", _inline(settings), *keys)


def _inline(table: Mapping[str, Any]) -> Any:
    """An inline table with spaces as in the examples."""
    return tomlkit.value(_inline_text(table))


def _inline_text(table: Mapping[str, Any]) -> str:
    items = (
        f"{key} = {_inline_text(value) if isinstance(value, Mapping) else tomlkit.item(value).as_string()}"
        for key, value in table.items()
    )
    return f"{{ {', '.join(items)} }}"


def _limits(edited: Edited, answers: Answers) -> None:
    for port in ("A", "B"):
        edited.put(f"limits.p_{port}_high.max", answers["pressure_limit"], "pressure_limit")
    low, high = (f"{1e3 * share * answers.value('stroke'):.4g} mm" for share in (0.02, 0.98))
    limit = _inline({"channel": "x", "min": low, "max": high, "action": "warn"})
    edited.calculate("limits.stroke", limit, "stroke")


def _cylinder(edited: Edited, answers: Answers) -> None:
    for key in ("bore", "rod_diameter", "stroke", "mass"):
        edited.put(f"cylinders.lift.{key}", answers[key], key)
    for side in ("A", "B"):
        edited.put(f"cylinders.lift.dead_volume_{side}", answers["dead_volume"], "dead_volume")


def _valve(edited: Edited, answers: Answers, name: str) -> None:
    table = f"valves.{name}"
    _datasheet(edited, answers, table)
    if "Q_A" not in answers.channels:
        edited.drop(f"{table}.flow")
    elif name in ("main", "A"):
        edited.document["valves"][name]["flow"] = "Q_A"
    if answers["driver"] != "simulated":
        raw, keys = _raw(answers)
        edited.put(f"{table}.raw", raw, *keys)
        edited.drop(f"{table}.delay")


def _raw(answers: Answers) -> tuple[list[float], tuple[str, ...]]:
    """The output at command -1 and +1, with 0 (the safe command) in the middle, and the keys of its answers."""
    if has_current_output(answers):
        return list(CURRENT), ("valve_signal",)
    full = answers.value("valve_full")
    full = int(full) if full == int(full) else full
    return [0 if answers["valve_signal"] == "live_zero" else -full, full], ("valve_signal", "valve_full")


def _datasheet(edited: Edited, answers: Answers, table: str) -> None:
    """The values of the servo valve, in the rig and in its simulated drive."""
    for key in ("flow", "drop", "per"):
        edited.put(f"{table}.nominal_flow.{key}", answers[key], key)
    edited.put(f"{table}.f90", answers["f90"], "f90")
    edited.put(f"{table}.damping", answers.value("damping"), "damping")
    leakage = {"flow": answers["leakage"], "drop": answers["leakage_drop"], "per": "valve"}
    edited.put(f"{table}.leakage", _inline(leakage), "leakage", "leakage_drop")
    edited.put(f"{table}.overlap", answers.value("overlap"), "overlap")


# --- circuits --------------------------------------------------------------------------------------------------------


def _machine(edited: Edited, answers: Answers) -> None:
    mass = answers.value("mass")
    moved = 0.015 * mass
    for key in ("bore", "rod_diameter", "stroke"):
        edited.put(f"components.cylinder.{key}", answers[key], key)
    edited.calculate("components.cylinder.moving_mass", f"{moved:.4g} kg", "mass")
    for side in ("A", "B"):
        edited.put(f"components.cylinder.dead_volume_{side}", answers["dead_volume"], "dead_volume")
    edited.calculate("components.load.mass", f"{mass - float(f'{moved:.4g}'):.6g} kg", "mass")
    edited.calculate("nodes.A.pressure", shown_value(load_pressure(answers), "Pa"), "mass", "bore", "rod_diameter")
    edited.document["nodes"]["B"]["pressure"] = shown_value(AT_B, "Pa")
    edited.calculate("nodes.rod.position", f"{1e3 * START * answers.value('stroke'):.4g} mm", "stroke")
    edited.document["description"] = f"A cylinder lifting {answers['mass']}. Nodes A and B are the ports of the rig."


def _drive(edited: Edited, answers: Answers) -> None:
    edited.put("components.supply.pressure", answers["supply_pressure"], "supply_pressure")
    for name in VALVES[answers["servo_valves"]].values():
        _datasheet(edited, answers, f"components.{name}")


def _virtual(edited: Edited, answers: Answers) -> None:
    flow, pressure = answers.value("virtual_flow"), answers.value("virtual_pressure")
    most = PUMP * flow
    edited.calculate("components.pump.max_flow", shown_value(most, "m^3/s"), "virtual_flow")
    edited.put("components.pump.set_pressure", answers["virtual_pressure"], "virtual_pressure")
    edited.calculate("components.relief.opening_pressure", shown_value(1.07 * pressure, "Pa", 3), "virtual_pressure")
    edited.calculate("components.line.volume", shown_value(max(LEAST_LINE, flow * LINE), "m^3", 2), "virtual_flow")
    points = [["5 bar", shown_value(most / 3.0, "m^3/s")], ["15 bar", shown_value(most, "m^3/s")]]
    edited.calculate("components.relief.override", points, "virtual_flow")
    edited.put("components.main_valve.nominal_flow.flow", answers["virtual_flow"], "virtual_flow")
    edited.calculate("components.main_valve.leakage.flow", shown_value(0.005 * flow, "m^3/s", 2), "virtual_flow")
    edited.put("nodes.supply.pressure", answers["virtual_pressure"], "virtual_pressure")


def _cycle(edited: Edited, answers: Answers) -> None:
    share = amplitude(answers)
    points = edited.document["inputs"]["joystick"]["points"]
    for point in points:
        point[1] = float(f"{share * point[1]:.3g}")
    edited.document["inputs"]["joystick"]["shape"].comment(
        f"cubic STEP between the points; commands: {share:g} of the template's, which keeps the rod within its stroke"
    )


_OF_THE_SIMULATED = {
    "circuits/machine.toml": _machine,
    "circuits/lift_machine.toml": _machine,
    "circuits/drive.toml": _drive,
    "circuits/two_valves.toml": _drive,
}
_FILES = {**_OF_THE_SIMULATED, "circuits/lift.toml": _virtual, "cycles/lift.toml": _cycle}
"""How the other files of the examples are adapted; the first are those of a simulated machine and its drive."""


def values_table(answers: Answers) -> Iterator[str]:
    """Lines of Markdown: all answers with their origin, and the source of the catalogue's."""
    yield "| question | answer | from |"
    yield "| --- | --- | --- |"
    for key, text in answers.texts.items():
        yield f"| {QUESTIONS[key].text} (`{key}`) | {text} | {answers.origins[key]} |"
    if valve := answers.catalogue.get(answers["servo_valve"]):
        yield from ("", f"Datasheet of {answers['servo_valve']}: {valve['source']}")


def answers_file(answers: Answers) -> str:
    """A file of all answers, as `hilserver new --answers` reads it: those that the user did not give as comments."""
    lines = [
        "# hilserver new FOLDER --answers answers.toml recreates this rig. Assumed values and those of a datasheet",
        "# are comments: remove the # to give your own answer.",
        "",
        f"[{TABLE}]",
    ]
    for key, text in answers.texts.items():
        is_number = isinstance(answers.value(key), int | float) and text[-1:].isdigit()
        value = text if is_number else tomlkit.item(text).as_string()
        line = f"{key} = {value}"
        if answers.origins[key] != ANSWERED:
            line = f"# {line:<{COLUMN - 4}}  # {answers.origins[key]}"
        lines += [f"# {QUESTIONS[key].text}", line, ""]
    return "\n".join(lines)
