"""What ``hilserver identify --apply`` brings on simulated rigs with unknown properties: fidelity before and after.

The unknowns are those of ``hilserver fidelity --vary``, drawn all at once by seed::

    python docs/experiments/identified_rigs.py --rigs 8

Printed are the NRMSE and the noise of the command over the work cycle, the pressures at rest in it, and the amplitude
and phase of the flows over frequency: up to 10 Hz, and up to the frequency at which the slower of the spools lags 45°.
At the end, median and 95th percentile of each. ``--jobs 4`` computes four rigs at a time.

``--file another`` runs each rig with what was identified on the one before it; ``--tared`` runs it without zero errors
of its sensors, as after ``hilserver calibrate --tare`` on each of them. With neither, the zeros are identified, too.
``--known "sensor delay"``: the rig file states this property as it is. A rig that can't be identified is named and left
out of the medians. The exit code is 1 if no rig could be identified and ran without a trip, before and after.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from identification_coverage import CONFIG, NOISE, VALVES, changed_rig, true_f45

from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.errors import HilserverError
from hilserver.fidelity.cycle_run import CycleRun, NotCompletedError, run_cycle_on
from hilserver.fidelity.measures import Deviation
from hilserver.fidelity.results import SATURATED_SHARE, SegmentResult
from hilserver.fidelity.strategies import with_cycle
from hilserver.fidelity.sweeps import alone, default_input, sweep_of
from hilserver.fidelity.unknowns import applicable, varied
from hilserver.identify.evaluation import Evaluation
from hilserver.identify.excitation import Extent
from hilserver.identify.identification import identify_valve
from hilserver.identify.lateness import with_lateness
from hilserver.identify.report import fragment, obsolete
from hilserver.identify.simulated_excitation import recorded_excitation
from hilserver.identify.zeros import without_zero_errors
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.merge import merged
from hilserver.rig.rig import Rig
from hilserver.studies.figures import AMPLITUDE_ERROR, PHASE_ERROR
from hilserver.studies.sweep_figures import figure_over_frequency
from hilserver.tick.codes import Saturation

ZERO_ERRORS = "sensor offset"
"""The unknown that taring removes."""
NOISE_OF_RUNS = 1000
"""Each rig has noise of its own, with the seed of the rig and this: another than while it was identified."""
FREQUENCIES = (2.0, 3.0, 5.0, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0)
"""Hz, of the sines below the -45° frequency of the valve, at which there is one more."""
SLOW = 10.0
"""Hz, the lower of the frequencies up to which amplitude and phase are evaluated."""
AT_REST = 0.2
"""s at the end of each rest in which the pressures are compared."""
UNITS = {PHASE_ERROR: (np.degrees(1.0), "°"), "rest": (1e-5, " bar")}
"""Factor and unit of each kind of figure that is not in per cent."""


def figures(
    name: str, file: Mapping[str, Any], seed: int, strategy: str, known: Sequence[str], swept: bool
) -> Mapping[str, float]:
    """All figures, SI, on the device with all unknowns of this seed but the ``known`` ones; empty after a trip.

    ``file``: the sources of the rig with this name. Those over frequency only if ``swept``.
    """
    stated = load_rig(CONFIG / f"{name}.toml")
    rig = assemble(file, stated.file, stated.library)
    unknowns = [each for each in applicable(rig, "rig") if each.name not in known]
    sources = varied(rig, "rig", unknowns, seed)
    sources["rig"]["devices"]["rig"]["seed"] = NOISE_OF_RUNS + seed
    changed = assemble(sources, rig.file, rig.library)
    program = compiled_program(rig.library)
    try:
        run = run_cycle_on(changed, "rig", strategy, program)
        over_frequency = dict(sweep_figures(changed, strategy, program)) if swept else {}
        return {**dict(cycle_figures(changed, run)), **over_frequency}
    except NotCompletedError:
        return {}


def cycle_figures(rig: Rig, run: CycleRun) -> Iterator[tuple[str, float]]:
    """NRMSE, noise, and the pressures at rest: the RMS of their difference from those of the reference simulation."""
    result, dt = run.result, run.comparison.dt
    yield from ((quantity, deviation.nrmse) for quantity, deviation in result.deviations.items())
    yield "noise", max(result.noise(valve, dt) for valve in result.command)
    inputs = rig.settings.inputs.items()
    still = np.all([run.record.columns[f"input.{name}"] == each.initial for name, each in inputs], axis=0)
    ends = np.flatnonzero(still & ~np.append(still[1:], False)) + 1
    last = round(AT_REST / dt)
    ticks = np.concatenate([np.arange(end - last, end) for end in ends if np.all(still[max(end - last, 0) : end])])
    for quantity in run.comparison.quantities():
        if quantity.unit == "Pa":
            at_rest = (series[quantity.name][ticks] for series in (result.actual, result.reference))
            yield f"rest {quantity.name}", Deviation.between(*at_rest).rms


def sweep_figures(rig: Rig, strategy: str, program: Program) -> Iterator[tuple[str, float]]:
    """The largest errors of amplitude and phase (rad) of the flows, up to each of the two frequencies.

    Left out are the sines that a valve is too small for or that leave it no pressure drop, not those at its slew limit;
    the share of the sines that count is a figure, too.
    """
    parts = rig.sources["devices"]["rig"]["drive"]["components"]
    f45 = min(true_f45(parts[part]) for part in VALVES[rig.settings.name].values())
    name = default_input(rig)
    sweep = sweep_of(rig, name, [*(f for f in FREQUENCIES if f < f45), f45])
    result = run_cycle_on(with_cycle(rig, alone(rig, name, sweep)), "rig", strategy, program, swept=True).result
    cut = ~int(Saturation.SLEW)
    flags = {valve: (each.astype(int) & cut).astype(float) for valve, each in result.saturation.items()}
    result = replace(result, saturation=flags)
    for end, highest in ((f"{SLOW:g} Hz", SLOW), ("f45", f45)):
        part = replace(result, sines=tuple(sine for sine in result.sines if sine.frequency <= highest))
        yield f"sines to {end}", float(np.mean([part.saturated_at(s.frequency) <= SATURATED_SHARE for s in part.sines]))
        for error in (AMPLITUDE_ERROR, PHASE_ERROR):
            yield from ((f"{error} {q} to {end}", figure_over_frequency(error, q, part)) for q in result.virtual)
        yield from (
            (f"{AMPLITUDE_ERROR} {q} to {end} without the worst sine", without_the_worst(q, part))
            for q in result.virtual
        )


def without_the_worst(quantity: str, sweep: SegmentResult) -> float:
    """The second largest amplitude error. The largest one is usually at the resonance of mass and oil."""
    counted = [each for each in sweep.responses[quantity] if sweep.saturated_at(each.frequency) <= SATURATED_SHARE]
    return float(np.sort([abs(each.ratio - 1.0) for each in counted])[-2]) if len(counted) > 1 else np.nan


def identified_sources(
    name: str, seed: int, seconds: float, end_stops: bool, known: Sequence[str]
) -> Mapping[str, Any]:
    """The rig file with what a sequence on this device has identified. Raises HilserverError if this fails."""
    unknown = [each.name for each in applicable(load_rig(CONFIG / f"{name}.toml"), "rig") if each.name not in known]
    changed = changed_rig(name, seed, unknown, NOISE + seed)
    recording = recorded_excitation(
        changed, list(VALVES[name]), Extent(seconds, 0.6, longest=3.0 * seconds, end_stops=end_stops)
    )
    recording = without_zero_errors(changed, recording)
    recording = replace(recording, delays_known="sensor delay" in known)
    results = with_lateness([identify_valve(changed, recording, valve) for valve in VALVES[name]])
    evaluation = Evaluation(results, recording)
    with TemporaryDirectory() as folder:
        shutil.copytree(CONFIG.parent, Path(folder) / "config")
        file = Path(folder) / "config" / "rigs" / f"{name}.toml"
        file.write_text(
            merged(file.read_text(), fragment(evaluation), obsolete(evaluation), datetime.now().astimezone().date())
        )
        return load_rig(file).sources


def identified_rigs(
    pool: Executor, name: str, seeds: range, seconds: float, end_stops: bool, known: Sequence[str]
) -> tuple[dict[int, Rig], dict[int, str]]:
    """The rig files by seed, and why the others could not be identified."""
    stated, found, failed = load_rig(CONFIG / f"{name}.toml"), {}, {}
    begun = {seed: pool.submit(identified_sources, name, seed, seconds, end_stops, known) for seed in seeds}
    for seed, each in begun.items():
        try:
            found[seed] = assemble(each.result(), stated.file, stated.library)
        except HilserverError as error:
            failed[seed] = str(error)
            print(seed, f"not identified: {error}", flush=True)
    return found, failed


def in_words(values: Mapping[str, float]) -> str:
    """``"position rod 0.26%, …, phase error flow A 1.20°, …, rest pressure A 0.61 bar"``"""
    return ", ".join(f"{name} {value_in_words(name, value)}" for name, value in values.items()) or "tripped"


def value_in_words(name: str, value: float) -> str:
    """A figure in the unit of its kind."""
    factor, unit = next((each for kind, each in UNITS.items() if name.startswith(kind)), (100.0, "%"))
    return f"{factor * value:.2f}{unit}"


def main() -> None:
    """Print the figures of each rig, then their medians, and which rigs these do not contain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rig", choices=list(VALVES), default="lift")
    parser.add_argument("--rigs", type=int, default=8, help="number of seeds")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="least duration of the sequence; the longest is 3 times that"
    )
    parser.add_argument("--strategy", default="feedback")
    parser.add_argument("--tared", action="store_true", help="the sensors have no zero errors in the runs")
    parser.add_argument("--known", action="append", default=[], help="unknowns that the rig file states as they are")
    parser.add_argument("--file", choices=["own", "another"], default="own", help="rig on which it was identified")
    parser.add_argument("--jobs", type=int, default=1, help="rigs that are computed at a time")
    parser.add_argument("--no-sweep", action="store_true", help="without amplitude and phase over frequency")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.rigs)
    shift = 1 if options.file == "another" else 0
    end_stops = options.file == "own" and not options.tared
    known = [*options.known, *([ZERO_ERRORS] if options.tared else [])]
    stated, runs = load_rig(CONFIG / f"{options.rig}.toml").sources, []
    with ProcessPoolExecutor(options.jobs) if options.jobs > 1 else ThreadPoolExecutor(1) as pool:
        identified, failed = identified_rigs(pool, options.rig, seeds, options.seconds, end_stops, options.known)
        files = [each.sources for each in identified.values()]
        begun = [
            [
                pool.submit(figures, options.rig, file, seed, options.strategy, known, not options.no_sweep)
                for file in (stated, files[place - shift])
            ]
            for place, seed in enumerate(identified)
        ]
        for seed, pair in zip(identified, begun, strict=True):
            runs.append([each.result() for each in pair])
            for when, values in zip(("before", "after"), runs[-1], strict=True):
                print(seed, when, in_words(values), flush=True)
    for when, found in zip(("before", "after"), zip(*runs, strict=True), strict=bool(runs)):
        ended = [run for run in found if run]
        names = ended[0] if ended else ()
        for word, percent in (("median", 50.0), ("95th percentile", 95.0)):
            summary = {name: float(np.percentile([run[name] for run in ended], percent)) for name in names}
            print(f"{word} {when}, of {len(ended)}:", in_words(summary))
    if failed:
        print(f"{len(failed)} of {len(seeds)} rigs not identified: seeds {', '.join(map(str, failed))}")
    sys.exit(0 if any(all(run) for run in runs) else 1)


if __name__ == "__main__":
    main()
