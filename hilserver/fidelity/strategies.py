"""A simulated rig in lockstep: work cycle and sweep under each strategy, compared with the reference simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hilserver.circuit.program import Program
from hilserver.errors import HilserverError, did_you_mean
from hilserver.fidelity.comparison import Comparison, traced_run
from hilserver.fidelity.results import NO_BRIDGE, Fidelity, SegmentResult, Variant
from hilserver.fidelity.step import IntegrationStep, RunAt
from hilserver.fidelity.sweeps import about_foreseen, alone
from hilserver.rig.available_strategies import cannot, gains_nothing, possible
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.rig.settings import RigSettings, ValveSettings
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.pacing import Look, Paced, Pacing
from hilserver.tick.bridge.strategies import BRIDGING, Strategy

DEFAULT_STRATEGIES = (
    "inverse_static",
    "inverse_lag_leakage",
    "second_order",
    "null_region",
    "prediction",
    "feedback",
    "flow_servo",
)
"""Strategies that `fidelity` compares by default, together with the one in the rig file."""
Watch = Callable[[str, float], object]
"""Called from time to time during a paced run, with the strategy and the simulated time since the rig's start, s."""


class PacedRuns:
    """Makes runs of a rig that are paced at ``speed`` times real time."""

    def __init__(self, speed: float, watch: Watch | None) -> None:
        self._speed, self._watch = speed, watch
        self._clocks: list[Pacing] = []

    def __call__(self, rig: Rig, program: Program) -> LockstepRun:
        pacing = Pacing(1.0 / rig.settings.loop.rate, self._speed, self._look(rig))
        self._clocks.append(pacing)
        return LockstepRun(rig, program=program, trace=True, pacing=pacing)

    def _look(self, rig: Rig) -> Look | None:
        if (watch := self._watch) is None:
            return None
        strategy = Strategy(int(rig.plan.valve["strategy_first"][0])).name
        return lambda ticks, values: watch(strategy, ticks / rig.settings.loop.rate)

    def together(self) -> Paced | None:
        """How the runs kept to the clock."""
        return Paced.all_of(clock.paced() for clock in self._clocks)


def simulate(
    rig: Rig, strategies: Sequence[str] | None = None, speed: float | None = None, watch: Watch | None = None
) -> Fidelity:
    """Run the work cycle in the reference simulation, without compensation, and with each strategy of the bridge.

    All runs have the same machine, initial state and operator inputs, tick by tick. Flows, pressures and positions are
    the simulated ones, not the measured ones; circuit and machine keep accounts. ``strategies``: default all that the
    rig can use and may benefit from.
    ``speed``: pace the bridged rig at this multiple of real time; ``watch`` is informed of the progress.
    Raises HilserverError if the rig has no simulated machine, valve or work cycle.
    """
    if rig.cycle is None:
        raise HilserverError(f"{rig.file}: simulate needs a work cycle, which this rig file does not name (cycle = …).")
    paced = PacedRuns(speed, watch) if speed is not None else None
    chosen = strategies or possible(rig.settings)
    rig = replace(assemble(rig.sources, rig.file, rig.library, accounts=True), speed=rig.speed)
    return compare(rig, chosen, chosen_by_user=strategies is not None, paced=paced)


def measure(rig: Rig, named: Sequence[str] | None, swept: str = "", sweep: dict[str, Any] | None = None) -> Fidelity:
    """The rig's fidelity: over its work cycle, if it has one, and over a sweep of the input ``swept``.

    ``named``: strategies, or "all"; default the usual ones. Raises HilserverError if the rig has no simulated
    machine, or neither cycle nor sweep.
    """
    if not any(device.is_simulated for device in rig.devices):
        raise HilserverError(
            f"{rig.file}: this rig has no simulated machine. Run the real one (--drive), or give a log in which "
            "its work cycle ran (--log)."
        )
    if rig.cycle is None and sweep is None:
        raise HilserverError(f"{rig.file}: there is nothing to run without a work cycle (cycle = …) or a sweep.")
    cycle = alone(rig, swept, sweep) if sweep is not None else None
    by_user = bool(named) and list(named or ()) != ["all"]
    return compare(rig, selected(rig, named), chosen_by_user=by_user, sweep=cycle, swept=swept)


def compare(
    rig: Rig,
    strategies: Sequence[str],
    *,
    chosen_by_user: bool,
    sweep: Mapping[str, Any] | None = None,
    swept: str = "",
    paced: PacedRuns | None = None,
) -> Fidelity:
    """The same for ``strategies``, and also over ``sweep``: the table of a work cycle that sweeps the input ``swept``.

    A rig without a work cycle is only swept. A strategy without benefit is left out unless the user selected it.
    """
    tried, left_out = usable(rig, strategies, chosen_by_user)
    comparison = Comparison.of(rig)
    results: dict[str, dict[str, SegmentResult]] = {name: {} for name in (NO_BRIDGE, *tried)}
    tripped: dict[str, str] = {}
    rigs = (rig, with_cycle(rig, sweep)) if sweep is not None else (rig,)
    for each in rigs:
        if each.cycle is not None:
            left = [n for n in tried if n not in tripped]
            for name, found in comparison.run(each, left, tripped, paced or traced_run).items():
                results[name] |= found
    if set(tried) <= set(tripped):
        texts = "; ".join(f"with strategy {name} it {text}" for name, text in tripped.items())
        raise HilserverError(f"{rig.file}: the rig does not complete its work cycle: {texts}.")
    driven = {name: valve.port for name, valve in rig.settings.valves.items()}
    others = {valve.other_port for valve in rig.settings.valves.values()}
    return Fidelity(
        rig=rig.settings.name,
        dt=comparison.dt,
        quantities=comparison.quantities(),
        valves=driven,
        variants=tuple(Variant(name, **kinds) for name, kinds in results.items() if kinds and name not in tripped),
        tripped=tripped,
        reference=f"the virtual circuit connected directly to {comparison.reference.machine.origin}",
        left_out=left_out | ({NO_BRIDGE: comparison.no_command} if comparison.no_command else {}),
        ports_without_valve=tuple(p for p in rig.circuit.rig_ports() if p not in {*driven.values(), *others}),
        swept=swept,
        notes=(
            "Flows, pressures and positions are the simulated machine's own values, not those of its sensors.",
            *about_foreseen((each.cycle for each in rigs), tried),
            *dict.fromkeys(note for kinds in results.values() for segment in kinds.values() for note in segment.notes),
        ),
        circuit=rig.circuit.source,
        paced=paced.together() if paced is not None else None,
    )


def at_step(rig: Rig, swept: str = "", sweep: dict[str, Any] | None = None) -> RunAt:
    """Repeats the results of `simulate` or `measure` with another step; of the sweep only if there is no work cycle."""
    cycle = alone(rig, swept, sweep) if sweep is not None and rig.cycle is None else None
    return lambda step, names: compare(step.rig(rig), names, chosen_by_user=True, sweep=cycle, swept=swept)


def selected(rig: Rig, named: Sequence[str] | None) -> list[str]:
    """The strategies of these names; "all": all that the rig can use; no names: the usual ones and the rig file's."""
    if named and list(named) != ["all"]:
        return list(named)
    own = {valve.bridge.strategy for valve in rig.settings.valves.values()} - {"manual"}
    return [name for name in possible(rig.settings) if named or name in DEFAULT_STRATEGIES or name in own]


def usable(rig: Rig, strategies: Sequence[str], by_user: bool) -> tuple[list[str], dict[str, str]]:
    """Strategies that are tried, and those that are left out, with the reason.

    Raises HilserverError for an unknown strategy, or one that the user selected and a valve of the rig can't use.
    """
    left_out: dict[str, str] = {}
    for name in strategies:
        if name not in BRIDGING:
            raise HilserverError(f'{rig.file}: "{name}" is not a strategy to compare.{did_you_mean(name, BRIDGING)}')
        refused, idle = _against(rig, cannot, name), _against(rig, gains_nothing, name)
        if refused and by_user:
            raise HilserverError(f"{rig.file}: {_sentence(name, refused)}.")
        if refused or (len(idle) == len(rig.settings.valves) and not by_user):
            left_out[name] = _sentence(name, refused or idle)
    return [name for name in BRIDGING if name in strategies and name not in left_out], left_out


def _against(rig: Rig, reason: Callable[[RigSettings, ValveSettings, str], str], strategy: str) -> dict[str, str]:
    """The reason against a strategy, by valve."""
    found = {name: reason(rig.settings, valve, strategy) for name, valve in rig.settings.valves.items()}
    return {name: text for name, text in found.items() if text}


def _sentence(strategy: str, reasons: dict[str, str]) -> str:
    """The same as a sentence."""
    texts = dict.fromkeys(reasons.values())
    by_text = {text: ", ".join(valve for valve, own in reasons.items() if own == text) for text in texts}
    return "; ".join(f"{strategy} {text} (valve {valves})" for text, valves in by_text.items())


def with_cycle(rig: Rig, cycle: Mapping[str, Any]) -> Rig:
    """The rig with another work cycle, of a companion the companion. Raises ConfigurationError if they don't fit."""
    made = assemble({**rig.sources, "cycle": dict(cycle)}, rig.file, rig.library, accounts=rig.accounts)
    return IntegrationStep(halvings=rig.halvings).rig(made) if rig.halvings else made
