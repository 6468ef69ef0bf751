"""The picture of a rig: devices, channels with their limits, ports of the circuit, what is driven, the machine.

It is made of the rig file's table, whatever is missing or wrong in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hilserver.drawing.flow import FlowBlock, FlowLine
from hilserver.editor.parts import Table, below, tables
from hilserver.rig.references import Reference, references
from hilserver.rig.settings import RigSettings
from hilserver.web.datasheet import as_text

SENSING, MEASURED, VIRTUAL, REAL, DRIVEN, MACHINE = range(6)
"""The columns: devices that measure, channels and inputs, the virtual circuit, what is driven, devices that act, and
the machine."""
CIRCUIT = "circuit"
"""The block of the virtual circuit."""
DRIVING = ("valves", "actuators", "outputs")
"""The tables whose entries drive an output of a device."""


def rig_blocks(table: Table) -> list[FlowBlock]:
    """The blocks of a rig; a block that stands for an entry of the file has its part, such as ``channels.p_A``."""
    return [
        *_devices(table, SENSING, _used(table, "channels", "source")),
        *_channels(table),
        *_inputs(table),
        *_circuit(table),
        *_enable(table),
        *_valves(table),
        *_actuators(table),
        *_devices(table, DRIVEN, _outputs(table)),
        *_machine(table),
    ]


def rig_lines(table: Table) -> Iterator[FlowLine]:
    """The lines between them: from each entry to those that name it, and from device to device."""
    for name, channel in tables(table, "channels").items():
        yield FlowLine((_device(channel, SENSING), _text(channel, "source")), (f"channels.{name}", ""))
    for name in below(table, "inputs"):
        yield FlowLine((f"inputs.{name}", ""), (CIRCUIT, ""))
    for kind in DRIVING:
        for name, part in tables(table, kind).items():
            yield FlowLine((f"{kind}.{name}", ""), (_device(part, DRIVEN), _text(part, "output")))
    for reference, entry, key in rig_references(table):
        if reference.to.table in ("channels", "ports", "valves") and not entry.startswith(("cylinders.", "motors.")):
            yield FlowLine((f"{reference.to.table}.{reference.name}", ""), (entry, key))
    for name, actuator in tables(table, "actuators").items():
        yield FlowLine((CIRCUIT, ""), (f"actuators.{name}", ""))
        yield FlowLine((_device(actuator, DRIVEN), _text(actuator, "output")), (_specimen(name), ""))
    homes = _homes(table)
    for valve in tables(table, "valves").values():
        for key in ("port", "other_port"):
            if (port := _text(valve, key)) in homes:
                yield FlowLine((_device(valve, DRIVEN), _text(valve, "output")), homes[port], "flow")


def rig_references(table: Table) -> Iterator[tuple[Reference, str, str]]:
    """The references of a rig file, each with the entry in which it stands and its key there."""
    for reference in references(RigSettings, table):
        section, _, rest = reference.key.partition(".")
        names = below(table, section)
        name = max((n for n in names if rest == n or rest.startswith(f"{n}.")), key=len, default="")
        is_entry = isinstance(names.get(name), Mapping) or section == "ports"
        entry = f"{section}.{name}" if is_entry else section
        yield reference, entry, reference.key.removeprefix(entry).lstrip(".")


def _text(part: Table, key: str) -> str:
    found = part.get(key)
    return found if isinstance(found, str) else ""


def _device(part: Table, column: int) -> str:
    """The block of the device that a channel, valve or output names, in the column of those that measure or act."""
    return f"{column} devices.{_text(part, 'device')}"


def _used(table: Table, kind: str, key: str) -> dict[str, list[str]]:
    """The channels of each device that are used."""
    found: dict[str, list[str]] = {}
    for part in tables(table, kind).values():
        if name := _text(part, key):
            found.setdefault(_text(part, "device"), []).append(name)
    return found


def _outputs(table: Table) -> dict[str, list[str]]:
    """The outputs of each device that are used."""
    found: dict[str, list[str]] = {}
    for kind in DRIVING:
        for device, names in _used(table, kind, "output").items():
            found.setdefault(device, []).extend(names)
    return found


def _devices(table: Table, column: int, used: Mapping[str, Iterable[str]]) -> Iterator[FlowBlock]:
    for name, device in tables(table, "devices").items():
        if name in used or column == SENSING:
            rows = tuple(dict.fromkeys(used.get(name, ())))
            texts = (_text(device, "driver"),) if _text(device, "driver") else ()
            yield FlowBlock(f"{column} devices.{name}", column, name, f"devices.{name}", texts, rows, "device")


def _channels(table: Table) -> Iterator[FlowBlock]:
    limits = tables(table, "limits")
    for name, channel in tables(table, "channels").items():
        yield FlowBlock(f"channels.{name}", MEASURED, name, f"channels.{name}", tuple(_channel_texts(channel)))
        for limit, of in limits.items():
            if of.get("channel") == name:
                yield _limit(limit, of, attached=True)
    for limit, of in limits.items():
        if _text(of, "channel") not in tables(table, "channels"):
            yield _limit(limit, of, attached=False)


def _limit(name: str, limit: Table, *, attached: bool) -> FlowBlock:
    bounds = {"min": "≥", "max": "≤", "max_rate": "rate ≤", "max_age": "age ≤"}
    said = ", ".join(f"{sign} {as_text(limit[key])}" for key, sign in bounds.items() if key in limit)
    text = f"{said}: {_text(limit, 'action')}".strip(": ")
    part = f"limits.{name}"
    return FlowBlock(part, MEASURED, name, part, (text,) if text else (), kind="limit", attached=attached)


def _channel_texts(channel: Table) -> Iterator[str]:
    """Range, delay, filter, noise."""
    scale = below(channel, "scale")
    for values in (scale.get("value"), scale.get("current")):
        if isinstance(values, list) and values:
            yield f"{as_text(values[0])} … {as_text(values[-1])}"
    if "value" in channel:
        yield as_text(channel["value"])
    said = (f"{key} {as_text(channel[key])}" for key in ("delay", "filter", "noise", "tare") if key in channel)
    if text := ", ".join(said):
        yield text


def _inputs(table: Table) -> Iterator[FlowBlock]:
    for name, given in below(table, "inputs").items():
        low_high = given.get("range", [-1, 1]) if isinstance(given, Mapping) else []
        text = " … ".join(map(as_text, low_high)) if isinstance(low_high, list) else ""
        part = f"inputs.{name}"
        yield FlowBlock(part, MEASURED, str(name), part, (text,) if text else (), kind="input")


def _circuit(table: Table) -> Iterator[FlowBlock]:
    file = _text(table, "circuit").rpartition("/")[2]
    yield FlowBlock(CIRCUIT, VIRTUAL, "virtual circuit", CIRCUIT, (file,) if file else (), kind="circuit")
    for port, channel in below(table, "ports").items():
        part, texts = f"ports.{port}", (as_text(channel),)
        yield FlowBlock(part, VIRTUAL, f"port {port}", part, texts, kind="circuit", attached=True)


def _enable(table: Table) -> Iterator[FlowBlock]:
    if isinstance(enable := table.get("enable"), Mapping):
        rows = ("channel",) if "channel" in enable else ()
        yield FlowBlock("enable", VIRTUAL, "local enable", "enable", (_text(enable, "action"),), rows)


def _valves(table: Table) -> Iterator[FlowBlock]:
    rows: dict[str, list[str]] = {}
    for reference, entry, key in rig_references(table):
        if reference.to.table in ("channels", "ports"):
            rows.setdefault(entry, []).append(key)
    for name, valve in tables(table, "valves").items():
        flow, part = below(valve, "nominal_flow"), f"valves.{name}"
        texts = [_text(below(valve, "bridge"), "strategy")]
        if "flow" in flow:
            texts.append(f"{as_text(flow['flow'])} at {as_text(flow.get('drop', '?'))}")
        shown = tuple(text for text in texts if text)
        yield FlowBlock(part, REAL, name, part, shown, tuple(rows.get(part, ())), "valve")
    for name, output in tables(table, "outputs").items():
        on = (f"on: {as_text(output['on'])}",) if "on" in output else ()
        yield FlowBlock(f"outputs.{name}", REAL, name, f"outputs.{name}", on, kind="valve")


def _actuators(table: Table) -> Iterator[FlowBlock]:
    for name, actuator in tables(table, "actuators").items():
        ends = actuator.get("range")
        texts = [_text(below(actuator, "bridge"), "strategy")]
        texts.append(" … ".join(map(as_text, ends)) if isinstance(ends, list) else "")
        rows = tuple(key for key in ("position", "force") if key in actuator)
        part = f"actuators.{name}"
        yield FlowBlock(part, REAL, name, part, tuple(text for text in texts if text), rows, "valve")


def _specimen(actuator: str) -> str:
    """The block of what an actuator moves."""
    return f"{MACHINE} actuators.{actuator}"


def _specimens(table: Table) -> Iterator[FlowBlock]:
    for name, actuator in tables(table, "actuators").items():
        specimen = below(actuator, "specimen")
        texts = tuple(as_text(specimen[key]) for key in ("mass", "stiffness") if key in specimen)
        yield FlowBlock(_specimen(name), MACHINE, f"specimen of {name}", f"actuators.{name}", texts, kind="machine")


def _machine(table: Table) -> Iterator[FlowBlock]:
    """The cylinders and motors, the ports at which valves are but neither of them, and what actuators move."""
    yield from _specimens(table)
    for name, cylinder in tables(table, "cylinders").items():
        size = "/".join(_text(cylinder, key) for key in ("bore", "rod_diameter") if key in cylinder)
        texts = [f"{size} · {as_text(cylinder.get('stroke', '?'))}"] if size else []
        if "position" in cylinder:
            texts.append(f"position {as_text(cylinder['position'])}")
        rows = tuple(key for key in ("port_A", "port_B") if key in cylinder)
        part = f"cylinders.{name}"
        yield FlowBlock(part, MACHINE, name, part, tuple(texts), rows, "machine")
    for name, motor in tables(table, "motors").items():
        texts = [as_text(motor["displacement"])] if "displacement" in motor else []
        if "speed" in motor:
            texts.append(f"speed {as_text(motor['speed'])}")
        rows = tuple(key for key in ("port_A", "port_B") if key in motor)
        part = f"motors.{name}"
        yield FlowBlock(part, MACHINE, name, part, tuple(texts), rows, "machine")
    for port, (block, _) in _homes(table).items():
        if block.startswith(f"{MACHINE} "):
            yield FlowBlock(block, MACHINE, f"machine port {port}", f"ports.{port}", kind="machine")


def _homes(table: Table) -> dict[str, tuple[str, str]]:
    """The terminal at the machine of each port to which a valve leads."""
    homes: dict[str, tuple[str, str]] = {}
    for kind in ("cylinders", "motors"):
        for name, actuator in tables(table, kind).items():
            homes |= {_text(actuator, key): (f"{kind}.{name}", key) for key in ("port_A", "port_B") if key in actuator}
    for valve in tables(table, "valves").values():
        for key in ("port", "other_port"):
            if (port := _text(valve, key)) in below(table, "ports"):
                homes.setdefault(port, (f"{MACHINE} ports.{port}", ""))
    return homes
