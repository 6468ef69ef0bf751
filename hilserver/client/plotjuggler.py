"""Telemetry for PlotJuggler: its UDP server takes JSON, its layouts are XML.

According to its source (plotjuggler_plugins/DataStreamUDP and the JSON parser, version 3), a datagram of at most 2048
bytes is one sample, its ``timestamp`` (s) is used where enabled, and a value ``p_A`` becomes the curve ``/p_A``.
A layout shows only curves that exist when it is loaded, so the stream has to be started first.
"""

from __future__ import annotations

import itertools
import json
import socket
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping

from hilserver.client.session import Session
from hilserver.protocol.published import Telemetry

LARGEST = 1400
"""Bytes of a datagram: the maximum for one Ethernet frame, and fewer than PlotJuggler reads."""
QUANTITIES = {"Pa": "pressure", "m^3/s": "flow", "m": "position", "N": "force", "s": "time"}
MAX_CURVES = 12
"""Maximum number of curves in a plot; further ones are only in the list of curves."""
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#17becf", "#8c564b", "#e377c2")
"""Colours of the curves of a plot, in turn: PlotJuggler draws curves without a colour in a layout in black."""
BUFFER = 30
"""s: length of the stream that PlotJuggler keeps."""


def datagrams(telemetry: Telemetry) -> Iterator[bytes]:
    """Every sample as JSON; one with many channels in several datagrams. Channels without a valid value are omitted.

    >>> from hilserver.protocol.published import Telemetry
    >>> list(datagrams(Telemetry(t0=5.0, dt=0.5, channels={"p_A": (1.0, None), "x": (0.1, 0.2)})))
    [b'{"timestamp":5.0,"p_A":1.0,"x":0.1}', b'{"timestamp":5.5,"x":0.2}']
    """
    count = max(map(len, telemetry.channels.values()), default=0)
    for k in range(count):
        head = f'{{"timestamp":{telemetry.t0 + k * telemetry.dt!r}'
        text = head
        for name, values in telemetry.channels.items():
            if k < len(values) and values[k] is not None:
                part = f",{json.dumps(name)}:{values[k]!r}"
                if len(text) + len(part) + 1 > LARGEST:
                    yield f"{text}}}".encode()
                    text = head
                text += part
        if text != head:
            yield f"{text}}}".encode()


def layout(units: Mapping[str, str], channels: Iterable[str]) -> str:
    """A layout with a plot per quantity, the valves' commands, and the virtual circuit's pressures.

    ``units``: SI unit by channel; ``channels``: those of the telemetry.
    """
    plots: dict[str, dict[str, list[str]]] = {"rig": {}, "virtual circuit": {}, "loop": {}}
    for name in channels:
        if name.startswith("circuit."):
            if name.endswith(".p"):
                plots["virtual circuit"].setdefault("pressure", []).append(name)
        elif name.startswith("loop.") or name == "mode":
            plots["loop"].setdefault(name, []).append(name)
        elif (name.endswith((".command", ".demand")) and not units.get(name)) or name.startswith("input."):
            plots["rig"].setdefault("command", []).append(name)
        elif (quantity := QUANTITIES.get(units.get(name, ""))) is not None:
            plots["rig"].setdefault(quantity, []).append(name)
    root = ElementTree.Element("root")
    widget = ElementTree.SubElement(root, "tabbed_widget", {"parent": "main_window", "name": "Main Window"})
    for tab, groups in plots.items():
        if groups:
            _tab(ElementTree.SubElement(widget, "Tab", tab_name=tab, containers="1"), groups)
    ElementTree.SubElement(widget, "currentTabIndex", index="0")
    ElementTree.SubElement(root, "use_relative_time_offset", enabled="1")
    ElementTree.SubElement(root, "streaming_buffer_size", value=str(BUFFER))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _tab(tab: ElementTree.Element, groups: Mapping[str, list[str]]) -> None:
    """One plot below the other."""
    container = ElementTree.SubElement(tab, "Container")
    share = ";".join(f"{1 / len(groups):.6f}" for _ in groups)
    # orientation "-": the dividing line is horizontal
    splitter = ElementTree.SubElement(container, "DockSplitter", orientation="-", sizes=share, count=str(len(groups)))
    for title, names in groups.items():
        area = ElementTree.SubElement(splitter, "DockArea", name=title)
        plot = ElementTree.SubElement(area, "plot", mode="TimeSeries", style="Lines")
        for name, colour in zip(names[:MAX_CURVES], itertools.cycle(COLOURS), strict=False):
            ElementTree.SubElement(plot, "curve", name=f"/{name}", color=colour)


async def stream(session: Session, host: str, port: int) -> None:
    """Send the telemetry of a session by UDP until cancelled. Raises OSError if the address can't be used."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect((host, port))

        def send(telemetry: Telemetry) -> None:
            for datagram in datagrams(telemetry):
                try:
                    sender.send(datagram)
                except ConnectionRefusedError:  # no receiver yet
                    continue

        session.listeners.append(send)
        try:
            await session.until(lambda: False)
        finally:
            session.listeners.remove(send)
