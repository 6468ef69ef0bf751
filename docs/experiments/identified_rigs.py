"""What ``hilserver identify --apply`` brings on simulated rigs with unknown properties: fidelity before and after.

The unknowns are those of ``hilserver fidelity --vary``, drawn all at once by seed::

    python docs/experiments/identified_rigs.py --rigs 8

``--file another`` runs each rig with what was identified on the one before it; ``--tared`` runs it without zero errors
of its sensors, as after ``hilserver calibrate --tare`` on each of them. With neither, the zeros are identified, too. A
rig that can't be identified is named and left out of the medians; the exit code is 1 only if there is no other.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from identification_coverage import CONFIG, VALVES, changed_rig

from hilserver.compiler import compiled_program
from hilserver.errors import HilserverError
from hilserver.fidelity.unknowns import applicable, varied
from hilserver.fidelity.vary import _Bench
from hilserver.identify.identification import identify_valve
from hilserver.identify.merge import merged
from hilserver.identify.report import fragment, obsolete
from hilserver.identify.sequence import recorded_sequence
from hilserver.identify.zeros import without_zero_errors
from hilserver.rig.build import Rig, assemble, load_rig

ZERO_ERRORS = "sensor offset"
"""The unknown that taring removes."""


def figures(rig: Rig, seed: int, strategy: str, tared: bool) -> Mapping[str, float]:
    """NRMSE and noise over the work cycle, on the device with all unknowns of this seed; empty after a trip."""
    unknowns = [each for each in applicable(rig, "rig") if not (tared and each.name == ZERO_ERRORS)]
    changed = assemble(varied(rig, "rig", unknowns, seed), rig.file, rig.library)
    return _Bench(rig, "rig", strategy, compiled_program(rig.library)).run_on(changed, seed).figures


def identified_rig(name: str, seed: int, seconds: float, end_stops: bool) -> Rig:
    """The rig file with what a sequence on this device has identified. Raises HilserverError if this fails."""
    changed = changed_rig(name, seed)
    recording = recorded_sequence(changed, list(VALVES[name]), seconds, 0.6, end_stops=end_stops)
    recording = without_zero_errors(changed, recording)
    results = [identify_valve(changed, recording, valve) for valve in VALVES[name]]
    unused = {found.experiment.valve: obsolete(found) for found in results}
    with TemporaryDirectory() as folder:
        shutil.copytree(CONFIG.parent, Path(folder) / "config")
        file = Path(folder) / "config" / "rigs" / f"{name}.toml"
        file.write_text(
            merged(file.read_text(), fragment(results, recording), unused, datetime.now().astimezone().date())
        )
        return load_rig(file)


def identified_rigs(name: str, seeds: range, seconds: float, end_stops: bool) -> tuple[dict[int, Rig], dict[int, str]]:
    """The rig files by seed, and why the others could not be identified."""
    found, failed = {}, {}
    for seed in seeds:
        try:
            found[seed] = identified_rig(name, seed, seconds, end_stops)
        except HilserverError as error:
            failed[seed] = str(error)
            print(seed, f"not identified: {error}", flush=True)
    return found, failed


def in_words(values: Mapping[str, float]) -> str:
    """``"position rod 0.26%, …"``"""
    return ", ".join(f"{name} {value:.2%}" for name, value in values.items()) or "tripped"


def main() -> None:
    """Print the figures of each rig, then their medians, and which rigs these do not contain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rig", choices=list(VALVES), default="lift")
    parser.add_argument("--rigs", type=int, default=8, help="number of seeds")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the sequence")
    parser.add_argument("--strategy", default="feedback")
    parser.add_argument("--tared", action="store_true", help="the sensors have no zero errors in the runs")
    parser.add_argument("--file", choices=["own", "another"], default="own", help="rig on which it was identified")
    options = parser.parse_args()
    stated, runs = load_rig(CONFIG / f"{options.rig}.toml"), []
    seeds = range(options.seed, options.seed + options.rigs)
    shift = 1 if options.file == "another" else 0
    end_stops = options.file == "own" and not options.tared
    identified, failed = identified_rigs(options.rig, seeds, options.seconds, end_stops)
    for place, seed in enumerate(identified):
        file = list(identified.values())[place - shift]
        runs.append(tuple(figures(each, seed, options.strategy, options.tared) for each in (stated, file)))
        for when, values in zip(("before", "after"), runs[-1], strict=True):
            print(seed, when, in_words(values), flush=True)
    for when, found in zip(("before", "after"), zip(*runs, strict=True), strict=bool(runs)):
        ended = [run for run in found if run]
        medians = {name: float(np.median([run[name] for run in ended])) for name in (ended[0] if ended else ())}
        print(f"median {when}, of {len(ended)}:", in_words(medians))
    if failed:
        print(f"{len(failed)} of {len(seeds)} rigs not identified: seeds {', '.join(map(str, failed))}")
    sys.exit(0 if identified else 1)


if __name__ == "__main__":
    main()
