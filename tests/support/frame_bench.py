"""Rigs with a position-controlled actuator for tests: the benchmark's frame, and the demo with the frame beside it."""

from __future__ import annotations

from pathlib import Path

from service_harness import CONFIG, rig_text

FRAME = CONFIG / "rigs" / "frame.toml"


def frame_text(folder: Path, rate: str = "4096 Hz") -> str:
    """The frame as a rig, recording in ``folder``, with {name} in the place of its name."""
    text = FRAME.read_text().replace('"../', f'"{CONFIG}/').replace('name = "frame"', 'name = "{name}"')
    text = text.replace("max_missed = 4000", "max_missed = 10000\nlock_memory = false\ncompiled_circuit = false")
    text = text.replace('rate = "4096 Hz"', f'rate = "{rate}"\nheartbeat_timeout = "5 s"')
    text = text.replace('max_age = "1 s"', 'max_age = "5 s"').replace('lost_after = "2 s"', 'lost_after = "20 s"')
    return f'{text}\n[arming]\nvirtual_commissioning = false\n[recording]\nfolder = "{folder / "logs"}"\n'


def rig_with_both(folder: Path, strategy: str = "inverse_lag") -> Path:
    """A rig file in ``folder``: the demo's valve and cylinder, and the frame with its actuator, in one circuit.

    ``strategy``: of the valve.
    """
    frame = FRAME.read_text().replace('"../', f'"{CONFIG}/')
    device = frame[frame.index("[devices.lab]") : frame.index("[channels]")]
    actuator = frame[frame.index("[actuators.table]") : frame.index("[operator]")]
    actuator = actuator.replace('position = "x"', 'position = "x_table"').replace('force = "F"', 'force = "F_table"')
    channels = frame[frame.index("x = { device") : frame.index("[inputs.ground_acceleration]")]
    channels = channels.replace("x = { device", "x_table = { device").replace("\nF = {", "\nF_table = {")
    inputs = frame[frame.index("[inputs.ground_acceleration]") : frame.index("[limits]")]
    circuit = folder / "both.toml"
    floors = (CONFIG / "circuits" / "frame.toml").read_text()
    circuit.write_text((CONFIG / "circuits" / "lift.toml").read_text() + floors[floors.index("# --- floors") :])
    changes = {
        "circuit =": f'circuit = "{circuit}"',
        "rate =": 'rate = "2 kHz"',
        "strategy =": f'strategy = "{strategy}"',
    }
    text = rig_text("both", folder, changes)
    text = text.replace("[channels]\n", f"[channels]\n{channels}\n", 1)
    rig = folder / "rig.toml"
    rig.write_text(f"{text}\n{device}\n{inputs}\n{actuator}")
    return rig
