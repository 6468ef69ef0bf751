"""What adaptive bridges have learned, from a log or a running server, as values of the rig file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isclose
from pathlib import Path

import numpy as np

from hilserver.commissioning.learned_actuators import lines_of_actuator, shown, table_and_key
from hilserver.displacement.servo import UNCERTAIN
from hilserver.errors import HilserverError
from hilserver.protocol.driven import LearnedValue
from hilserver.record.format import RecordError
from hilserver.record.reader import LogReader
from hilserver.rig.actuator_settings import spread_of
from hilserver.rig.build import assemble
from hilserver.rig.learned import learned_values
from hilserver.rig.rig import Rig
from hilserver.rig.settings import ValveSettings
from hilserver.rig.trust import library_of_log
from hilserver.service.actuator_status import learned_of_actuators
from hilserver.tick.columns import is_whole
from hilserver.tick.row import LearningState, ValveState, as_whole
from hilserver.units import shown_value

Learned = Mapping[str, Mapping[str, LearnedValue]]
"""Learned values by valve and key of the rig file, or by actuator and name in its ``uncertainty``."""
DIGITS = 4
"""Decimal places of null and overlap, and significant digits of a flow."""


def learned_of_log(path: Path, *, trust: bool = False) -> Learned:
    """The values at the end of a log. ``trust``: run the Python code in it.

    Raises RecordError if the log does not contain them, HilserverError if it contains code that is not trusted.
    """
    reader = LogReader(path)
    sources = reader.header.configuration
    rig = assemble(sources, path, library_of_log(sources, path, trust=trust))
    fields = (*ValveState.names(), *LearningState.names())
    names = ["mode", *(f"valve.{valve}.{field}" for valve in rig.layout.valves for field in fields)]
    for actuator in rig.layout.actuators:
        names += [f"actuator.{actuator}.{rest}" for rest in rig.layout.section(f"actuator.{actuator}")]
    reader.require(*names)
    if missing := [name for name in names if name not in reader.header.columns]:
        raise RecordError(path, f"has no column {missing[0]}: it was recorded by another version of hilserver.")
    last = None
    for batch in reader.batches():
        last = batch if len(batch) else last
    if last is None:
        raise RecordError(path, "contains no rows.")
    row = np.zeros(rig.layout.width)
    for name in names:
        (as_whole(row) if is_whole(name) else row)[rig.layout.column(name)] = last.column(name)[-1]
    return {**learned_values(rig, row), **learned_of_actuators(rig, row)}


def of_actuators(learned: Learned) -> Learned:
    """The values of actuators among them."""
    return {name: values for name, values in learned.items() if not values.keys().isdisjoint(UNCERTAIN)}


def check_origin(rig: Rig, learned: Learned) -> None:
    """Raises HilserverError if the values were learned with other values than the rig file has now."""
    actuators = of_actuators(learned)
    for name, values in learned.items():
        kind, known = ("actuator", rig.settings.actuators) if name in actuators else ("valve", rig.settings.valves)
        if name not in known:
            raise HilserverError(f'{rig.file}: has no {kind} "{name}", for which values were learned.')
        for key, now in _present(rig, name, values).items():
            then = values[key].configured if key in values else now
            if not isclose(now, then, rel_tol=1e-9, abs_tol=1e-12):
                unit = values[key].unit
                place, is_now, was = place_of(name, key), _shown(key, now, unit), _shown(key, then, unit)
                text = f"{place} is {is_now}, but this was learned with {was}"
                raise HilserverError(f"{rig.file}: {text}. A restarted server starts from the rig file's values.")


def _present(rig: Rig, name: str, values: Mapping[str, LearnedValue]) -> dict[str, float]:
    """The present values in the rig file of what was learned, by key, SI."""
    if name in rig.settings.valves:
        return configured(rig.settings.valves[name])
    model = rig.settings.actuators[name].model()
    return {key: spread_of(model, key) for key in values}


def place_of(name: str, key: str) -> str:
    """The key of the rig file of a learned value.

    >>> place_of("A", "null"), place_of("table", "specimen_stiffness")
    ('valves.A.null', 'actuators.table.specimen.stiffness')
    """
    return f"actuators.{name}.{'.'.join(table_and_key(key))}" if key in UNCERTAIN else f"valves.{name}.{key}"


def _shown(key: str, value: float, unit: str) -> str:
    return shown(value, unit) if key in UNCERTAIN else in_file(key, value)


def configured(v: ValveSettings) -> dict[str, float]:
    """The present values of a valve that can be learned, by key, SI."""
    flows = {"nominal_flow": v.nominal_flow.flow, "nominal_flow_to_tank": v.nominal_flow_AT.flow}
    return {**flows, "delay": v.delay, "overlap": v.overlap, "null": v.null}


def learned_fragment(rig: Rig, learned: Learned) -> str:
    """TOML with the learned values that are known and not at a bound, as far as they differ from the rig file's.

    Where the file states one flow for both edges, and only that from the supply is new, the other one is written as it
    was.
    """
    actuators = of_actuators(learned)
    lines = [line for name, values in actuators.items() for line in lines_of_actuator(name, values)]
    for valve, values in learned.items():
        if valve in actuators:
            continue
        v = rig.settings.valves[valve]
        new = {key: found.value for key, found in values.items() if _is_new(key, found)}
        changed = [f"{key} = {_toml(v, key, value)}" for key, value in new.items()]
        if "nominal_flow" in new and "nominal_flow_to_tank" not in new and v.nominal_flow_to_tank is None:
            same = _toml(v, "nominal_flow_to_tank", v.nominal_flow.flow)
            changed.append(f"nominal_flow_to_tank = {same}  # unchanged; nominal_flow")
        lines += [f"[valves.{valve}]", *changed] if changed else []
    return "\n".join(lines)


def left_out(learned: Learned) -> Iterator[str]:
    """The learned values that the fragment does not contain, each with the reason, as a sentence."""
    actuators = of_actuators(learned)
    for name, values in learned.items():
        kind = "actuator" if name in actuators else "valve"
        for key, found in values.items():
            place = place_of(name, key)
            if found.at_bound:
                yield f"{place} is at its bound, so it is not the true value: identify the {kind}."
            elif not found.known and kind == "actuator" and found.state.startswith(("off", "held")):
                yield f"{place} is not tracked at present ({found.state})."
            elif not found.known:
                yield f"{place} is unknown: the movements of the {kind} have not determined it."


def in_file(key: str, value: float) -> str:
    """A value as the rig file states it.

    >>> in_file("nominal_flow", 1e-3), in_file("delay", 1.234e-3), in_file("null", -0.01234)
    ('60 l/min', '1.23 ms', '-0.0123')
    """
    if key == "delay":
        return f"{1e3 * value:.2f} ms"
    return shown_value(value, "m^3/s", DIGITS) if key.startswith("nominal_flow") else f"{value:.{DIGITS}f}"


def _is_new(key: str, found: LearnedValue) -> bool:
    usable = found.known and not found.at_bound
    return usable and in_file(key, found.value) != in_file(key, found.configured)


def _toml(v: ValveSettings, key: str, value: float) -> str:
    text = in_file(key, value)
    if key in ("null", "overlap"):
        return text
    if key == "delay":
        return f'"{text}"'
    point = v.nominal_flow if key == "nominal_flow" else v.nominal_flow_AT
    return f'{{ flow = "{text}", drop = "{shown_value(point.drop, "Pa", 6)}", per = "{point.per}" }}'
