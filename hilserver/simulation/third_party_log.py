"""Replay of third-party logs: their samples as the sensors of a rig, the work cycle as the operator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hilserver.errors import ConfigurationError, HilserverError, Problem
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import BLOCK, LockstepRun
from hilserver.toml import copied
from hilserver.units import shown_unit


@dataclass(frozen=True)
class ThirdPartyRun:
    """A third-party log replayed into a rig: the log that was written, and the plotted columns by name."""

    rig: Rig
    log: Path
    samples: tuple[str, ...]
    ticks: int
    mode: str
    fault: str
    series: dict[str, Floats]


def rig_with_file(path: Path, file: Path | None) -> Rig:
    """A rig whose replay device takes its samples from ``file``. Raises ConfigurationError."""
    rig = load_rig(path)
    names = [device.name for device in rig.devices if device.is_replayed]
    if not names:
        text = "no device has the driver replay: there is nothing to replay. (hilserver simulate runs simulated rigs.)"
        raise ConfigurationError([Problem(text, "devices", str(path))])
    if file is None:
        return rig
    if len(names) > 1:
        text = f"--file is for one device, but {', '.join(names)} replay files: name their files in the rig file."
        raise ConfigurationError([Problem(text, "devices", str(path))])
    sources = copied(rig.sources)
    sources["rig"]["devices"][names[0]]["file"] = str(file.absolute())
    return assemble(sources, path, rig.library)


def replay_samples(rig: Rig, log: Path) -> ThirdPartyRun:
    """Arm and start the rig with the first samples and run it to the last one; every tick is recorded in ``log``.

    Raises HilserverError if the rig does not start; a trip during the run is reported in the result.
    """
    with LockstepRun(rig, log) as run:
        total = run.ticks_recorded
        if total is None:
            raise HilserverError(f"{rig.file}: no device has the driver replay, so there is nothing to replay.")
        columns = _plotted(rig)
        kept = [run.start()[:, list(columns.values())]]
        done = len(kept[0])
        while done < total:
            kept.append(run.run(min(BLOCK, total - done))[:, list(columns.values())])
            done += len(kept[-1])
        samples = tuple(f"{name}: {samples.described(run.dt)}" for name, samples in run.samples.items())
        mode, fault = run.mode, run.fault
    values = np.concatenate(kept)
    series = {name: values[:, i].copy() for i, name in enumerate(columns)}
    return ThirdPartyRun(rig, log, samples, len(values), mode, fault, series)


def _plotted(rig: Rig) -> dict[str, int]:
    """Time, port pressures, operator inputs; flow, command and saturation of every valve."""
    names = ["time", *(f"channel.{name}" for name in dict.fromkeys(rig.settings.ports.values()))]
    names += [f"input.{name}" for name in rig.settings.inputs]
    names += [
        f"valve.{valve}.{word}" for valve in rig.layout.valves for word in ("flow_virtual", "command", "saturation")
    ]
    return {name: rig.layout.column(name) for name in names}


def third_party_sentences(run: ThirdPartyRun) -> list[str]:
    """The result in sentences."""
    unit, factor = shown_unit("m^3/s")
    sentences = [f"Device {text}" for text in run.samples]
    sentences.append(f"{run.ticks} ticks; the rig ended in mode {run.mode}{f' ({run.fault})' if run.fault else ''}.")
    for valve in run.rig.layout.valves:
        flow, command = run.series[f"valve.{valve}.flow_virtual"], run.series[f"valve.{valve}.command"]
        share = (run.series[f"valve.{valve}.saturation"] > 0.0).mean()
        sentences.append(
            f"Valve {valve}: virtual flow {factor * flow.min():.3g} … {factor * flow.max():.3g} {unit}, "
            f"command {command.min():.3g} … {command.max():.3g}, saturated in {share:.1%} of the ticks."
        )
    return sentences
