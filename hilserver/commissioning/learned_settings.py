"""What an adaptive bridge has learned, from a log or a running server, as values of the rig file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isclose
from pathlib import Path

import numpy as np

from hilserver.errors import HilserverError
from hilserver.protocol.driven import LearnedValue
from hilserver.record.format import RecordError
from hilserver.record.reader import LogReader
from hilserver.rig.build import assemble
from hilserver.rig.learned import learned_values
from hilserver.rig.rig import Rig
from hilserver.rig.settings import ValveSettings
from hilserver.rig.trust import library_of_log
from hilserver.tick.columns import is_whole
from hilserver.tick.row import LearningState, ValveState, as_whole
from hilserver.units import shown_value

Learned = Mapping[str, Mapping[str, LearnedValue]]
"""Learned values by valve and key of the rig file."""
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
    return learned_values(rig, row)


def check_origin(rig: Rig, learned: Learned) -> None:
    """Raises HilserverError if the values were learned with other values than the rig file has now."""
    for valve, values in learned.items():
        if valve not in rig.settings.valves:
            raise HilserverError(f'{rig.file}: has no valve "{valve}", for which values were learned.')
        for key, now in configured(rig.settings.valves[valve]).items():
            then = values[key].configured if key in values else now
            if not isclose(now, then, rel_tol=1e-9, abs_tol=1e-12):
                text = f"valves.{valve}.{key} is {in_file(key, now)}, but this was learned with {in_file(key, then)}"
                raise HilserverError(f"{rig.file}: {text}. A restarted server starts from the rig file's values.")


def configured(v: ValveSettings) -> dict[str, float]:
    """The present values of a valve that can be learned, by key, SI."""
    flows = {"nominal_flow": v.nominal_flow.flow, "nominal_flow_to_tank": v.nominal_flow_AT.flow}
    return {**flows, "delay": v.delay, "overlap": v.overlap, "null": v.null}


def learned_fragment(rig: Rig, learned: Learned) -> str:
    """TOML with the learned values that are known and not at a bound, as far as they differ from the rig file's.

    Where the file states one flow for both edges, and only that from the supply is new, the other one is written as it
    was.
    """
    lines = []
    for valve, values in learned.items():
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
    for valve, values in learned.items():
        for key, found in values.items():
            if found.at_bound:
                yield f"valves.{valve}.{key} is at its bound, so it is not the true value: identify the valve."
            elif not found.known:
                yield f"valves.{valve}.{key} is unknown: the movements of the valve have not determined it."


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
