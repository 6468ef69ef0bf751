"""Offline analysis of a packed circuit: its linearisation, its equilibrium, and the step its integrator requires."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hilserver.circuit import engine as e
from hilserver.circuit.differences import RELATIVE
from hilserver.circuit.equilibrium import SETTLED
from hilserver.circuit.model import MAX_SUBSTEPS
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats

Complexes = NDArray[np.complex128]

SIGNIFICANT = 0.05
"""Smallest fraction of an output for which a motion is significant."""
OSCILLATES = 1e-3
"""Smallest imaginary part, as a fraction of its magnitude, of a pole that oscillates."""
_SLOWEST = 1e-3
"""1/s; slower motions are treated as being this fast."""
_STEPS = np.geomspace(1e-9, 1e3, 4000)
"""s, from which the longest stable one is chosen."""
_UNCERTAIN = {"euler": (0.0, 2.1), "rk4": (2.5, 3.0)}
"""Size of z = step·eigenvalue of damped motions up to which all are stable, and from which on none is."""
MARGIN = 1.5
"""Factor between the longest stable step and the recommended one: at the limit, nothing decays."""
ANGLES = (".angle", ".phi")
"""Ends of the names of angles."""
TYPICAL_PRESSURE = 1e5
"""Pa: differences are taken over RELATIVE of a measured pressure, but at least of this one."""


class NoEquilibrium(HilserverError):
    """A circuit without an equilibrium; names the values that keep changing."""


class Analysis:
    """A packed circuit with its inputs held, as a function of its states."""

    def __init__(self, program: Program, packed: PackedCircuit, values: Floats | None = None) -> None:
        """``values``: all values to start from (inputs included); default: the circuit's initial ones."""
        first = int(packed.index[e.INITIAL])
        n = len(packed.values)
        self.packed = packed
        self.n = packed.n_states
        self.values = (packed.value[first : first + n] if values is None else values[:n]).copy()
        self.lower, self.upper, self.scale = (
            packed.value[packed.index[k] : packed.index[k] + self.n] for k in (e.LOWER, e.UPPER, e.SCALE)
        )
        self._program = program
        self._recorded = np.zeros(len(packed.recorded))
        self._work = np.zeros(packed.work_size)
        self._derivatives = program.derivatives.bound(
            packed.index, packed.value, self.values, self._recorded, self._work
        )
        self._columns = np.zeros((self.n, self.n))
        self._jacobian = program.jacobian.bound(
            packed.index, packed.value, self.values, self._recorded, self._work, np.zeros(self.n), self._columns
        )

    def rates(self, states: Floats) -> Floats:
        """Time derivatives of the states, with signals and recorded pressures updated in ``values``."""
        self.values[: self.n] = states
        self._derivatives()
        return self._work[: self.n].copy()

    def jacobian(self, states: Floats) -> Floats:
        """Derivatives of the rates by the states, float64[n, n]: one-sided differences away from hard limits.

        A state that is held at a hard limit does not move: its row and column are zero.
        """
        self.values[: self.n] = states
        self._jacobian()
        return self._columns.T.copy()

    def linearised(self, inputs: Sequence[str] = (), outputs: Sequence[str] = ()) -> LinearModel:
        """The circuit around ``values``: differences as for `jacobian`.

        ``inputs``: measured pressures (``rig.A.p``) or signals; ``outputs``: as for `outputs`. The memories of sampled
        kernels (delays, switching bands) are held.
        """
        x = self.values[: self.n].copy()
        A = self.jacobian(x)
        f, y = self.rates(x), self.outputs(outputs)
        held = (f == 0.0) & ((x <= self.lower) | (x >= self.upper))
        C = np.zeros((len(outputs), self.n))
        for k in np.flatnonzero(~held) if outputs else ():
            moved = x.copy()
            step = RELATIVE * max(abs(x[k]), self.scale[k])
            moved[k] += -step if x[k] + step > self.upper[k] else step
            self.rates(moved)
            C[:, k] = (self.outputs(outputs) - y) / (moved[k] - x[k])
        B, D = np.zeros((self.n, len(inputs))), np.zeros((len(outputs), len(inputs)))
        for j, name in enumerate(inputs):
            place = self.packed.values.index(name)
            before = float(self.values[place])
            step = RELATIVE * max(abs(before), TYPICAL_PRESSURE if name.endswith(".p") else 1.0)
            self.values[place] = before + step
            B[:, j] = (self.rates(x) - f) / step
            D[:, j] = (self.outputs(outputs) - y) / step
            self.values[place] = before
        self.rates(x)
        B[held] = 0.0
        return LinearModel(A, B, C, D, self.packed.values[: self.n], self.scale.copy())

    def outputs(self, names: Sequence[str]) -> Floats:
        """These values, recorded results or flows into the machine (``rig.A.q``), from the last call of `rates`."""
        if not names:
            return np.empty(0)
        first, count = int(self.packed.index[e.FLOWS]), int(self.packed.index[e.N_FLOWS])
        table = self.packed.index[first : first + 3 * count].astype(np.int64).reshape(-1, 3).tolist()
        flows = {self.packed.values[place]: total for place, total, _ in table}
        found = np.empty(len(names))
        for i, name in enumerate(names):
            if name in flows:
                found[i] = self._work[flows[name]]
            elif name in self.packed.values:
                found[i] = self.values[self.packed.values.index(name)]
            else:
                found[i] = self._recorded[self.packed.recorded.index(name)]
        return found

    def advance(self, steps: int, h: float) -> Analysis:
        """Integrate this many steps of ``h`` seconds, inputs held, with the circuit's own integrator."""
        self._program.advance(self.packed.index, self.packed.value, self.values, self._recorded, self._work, steps, h)
        return self

    # --- equilibrium -------------------------------------------------------------------------------------------------

    def steady_state(self, held: Any = ()) -> Floats:
        """All values at the equilibrium that the circuit reaches from ``values``; states ``held`` (indices) are fixed.

        Integrates with the L-stable method, each step checked against two half steps, until all states are at rest, but
        for the angles of shafts that turn freely. Raises NoEquilibrium naming the values that keep changing.
        """
        held = {*held, *self._free_angles()}
        index = np.concatenate([self.packed.index, np.arange(self.n, dtype=np.uint64)])
        index[e.INTEGRATOR] = e.Integrator.ROSENBROCK
        index[e.SOLUTION_STEPS] = 0  # its steps are too long to share solutions
        index[e.LIMITED], index[e.N_LIMITED] = len(self.packed.index), self.n
        value, z = self.packed.value.copy(), self.values.copy()
        for i in held:  # a state between equal limits does not move
            value[int(index[e.LOWER]) + i] = value[int(index[e.UPPER]) + i] = z[i]
        whole, halves, rates = np.empty_like(z), np.empty_like(z), np.empty(self.n)
        self._program.find_rest(index, value, z, self._recorded, self._work, whole, halves, rates)
        if np.abs(rates).max(initial=0.0) < SETTLED:
            self.values[:] = z
            return z
        moving = [k for k in np.argsort(-np.abs(rates))[:3] if not abs(rates[k]) <= SETTLED]
        text = ", ".join(
            f"{self.packed.values[k]} ({rates[k] * self.scale[k]:.3g} {self.packed.kinds[k]}/s)" for k in moving
        )
        raise NoEquilibrium(f"the circuit does not reach an equilibrium: {text} keeps changing.")

    def _free_angles(self) -> Iterator[int]:
        """Angles on which nothing depends."""
        influences = self.jacobian(self.values[: self.n].copy())
        for i, name in enumerate(self.packed.values[: self.n]):
            if name.endswith(ANGLES) and not influences[:, i].any():
                yield i

    # --- stiffness ---------------------------------------------------------------------------------------------------

    def stiffness(self, step: float = 0.0) -> Stiffness:
        """The fastest motion of the linearised circuit at ``values``, and the steps that integrators need for it.

        ``step``: of its integrator, s, on which the mass within an end stop depends where the integrator is explicit.
        A circuit without states has no motion: its time constant is infinite.
        """
        if self.n == 0:
            return Stiffness(float("inf"), "nothing", np.empty(0))
        found: tuple[Any, Any] = np.linalg.eig(self._scaled([self.values], step)[0])
        eigenvalues, vectors = found
        order = np.argsort(-np.abs(eigenvalues))
        weights = np.abs(vectors[:, order[0]] * np.linalg.pinv(vectors)[order[0]])  # participation factors
        return _stiffness(eigenvalues[order], self.packed.values[int(np.argmax(weights))])

    def stiffness_at(self, points: Sequence[Floats], step: float) -> list[Stiffness]:
        """The same at several ``values``, without the names of states, which take most of the time."""
        if self.n == 0:
            return [self.stiffness() for _ in points]
        return [_stiffness(each[np.argsort(-np.abs(each))]) for each in self.eigenvalues_at(points, step)]

    def eigenvalues_at(self, points: Sequence[Floats], step: float) -> Complexes:
        """Those of the linearised circuit at several ``values``, 1/s, [points, n], in any order; ``step``: as there."""
        found: Any = np.linalg.eigvals(self._scaled(points, step))
        return np.asarray(found, dtype=complex)

    def _scaled(self, points: Sequence[Floats], step: float) -> Floats:
        """The Jacobians at these values, of states in their typical sizes, float64[points, n, n]."""
        found = np.empty((len(points), self.n, self.n))
        e.set_explicit_step(self.packed.index, self._work, step)
        for k, values in enumerate(points):
            self.values[:] = values
            found[k] = self.jacobian(self.values[: self.n])
        e.set_explicit_step(self.packed.index, self._work, 0.0)
        scaled: Floats = found * self.scale / self.scale[:, None]
        return scaled


class SignificantMotion(NamedTuple):
    """A motion of a circuit: the state with the largest part in it, its frequency in Hz, and whether it oscillates."""

    state: str
    frequency: float
    oscillates: bool


@dataclass(frozen=True)
class LinearModel:
    """A circuit linearised at a point: dx/dt = A·x + B·u, y = C·x + D·u, all of them deviations, SI.

    ``states``: names of x; ``scale``: their typical sizes.
    """

    A: Floats
    B: Floats
    C: Floats
    D: Floats
    states: tuple[str, ...]
    scale: Floats

    def without(self, names: Collection[str]) -> LinearModel:
        """The same model with these states held."""
        keep = [i for i, name in enumerate(self.states) if name not in names]
        states = tuple(self.states[i] for i in keep)
        return LinearModel(self.A[np.ix_(keep, keep)], self.B[keep], self.C[:, keep], self.D, states, self.scale[keep])

    def poles(self) -> Complexes:
        """Eigenvalues, 1/s."""
        found: Complexes = np.linalg.eigvals(self.A * self.scale / self.scale[:, None]).astype(complex)
        return found

    def significant(self, sizes: Floats) -> Iterator[SignificantMotion]:
        """Each motion that is significant in an output, for input changes of ``sizes``.

        A motion's part is its term of the modal sum at rest, C·v·w·B/lambda, against the whole response of the output.
        """
        poles, v = np.linalg.eig(self.A * self.scale / self.scale[:, None])
        w = np.linalg.pinv(v)
        seen, driven = (self.C * self.scale) @ v, w @ (self.B / self.scale[:, None])
        parts = np.abs(np.einsum("ok,ki->koi", seen, driven)) * sizes
        parts = parts / np.maximum(np.abs(poles), _SLOWEST)[:, None, None]
        whole = (parts.sum(axis=0) + np.abs(self.D) * sizes).max(axis=1, initial=0.0)
        for k, pole in enumerate(poles):
            if (parts[k] > SIGNIFICANT * whole[:, None]).any():
                state = self.states[int(np.argmax(np.abs(v[:, k] * w[k])))]
                oscillates = bool(abs(pole.imag) > OSCILLATES * abs(pole))
                yield SignificantMotion(state, float(abs(pole)) / (2.0 * np.pi), oscillates)

    def response(self, omega: Floats | Complexes) -> Complexes:
        """Frequency response at each ``omega`` (1/s): complex[len(omega), outputs, inputs].

        With a complex ``omega`` that of a growing (negative imaginary part) or decaying oscillation.
        """
        A, B, C = self.A * self.scale / self.scale[:, None], self.B / self.scale[:, None], self.C * self.scale
        s = 1j * np.asarray(omega)[:, None, None]
        found: Complexes = C @ np.linalg.solve(s * np.eye(len(A)) - A, np.broadcast_to(B, (len(omega), *B.shape)))
        return found + self.D


@dataclass(frozen=True)
class Stiffness:
    """The fastest time constant in s, the state with the largest part in it, all eigenvalues (1/s), fastest first.

    ``regime``: in which of the circuit's regimes, as the end of a sentence; empty: where it is now.
    """

    time_constant: float
    state: str
    eigenvalues: Floats
    regime: str = ""

    def longest_step(self, integrator: str) -> float:
        """Longest stable step in s: the linear stability region of the integrator; infinite for the L-stable one."""
        if integrator == "rosenbrock":
            return float("inf")
        damped = self.eigenvalues[self.eigenvalues.real < -1e-9 * np.abs(self.eigenvalues).max(initial=0.0)]
        fastest = np.abs(damped).max(initial=1e-300)
        first, last = np.searchsorted(_STEPS, np.array(_UNCERTAIN[integrator]) / fastest)
        stable = _amplification(_STEPS[first:last, None] * damped, integrator).max(axis=1, initial=0.0) <= 1.0
        unstable = int(last if stable.all() else first + np.argmin(stable))
        return float(_STEPS[max(unstable - 1, 0)]) if unstable < len(_STEPS) else float("inf")


def is_surely_stable(eigenvalues: Complexes, step: float, integrator: str) -> bool:
    """Whether a step, s, is shorter than the longest stable one for all these motions, which it need not be known for.

    Then all of them are within `_UNCERTAIN`; the steps between which `longest_step` decides are less than 1 % apart.
    """
    return step * float(np.abs(eigenvalues).max(initial=0.0)) < 0.99 * _UNCERTAIN[integrator][0]


def _stiffness(eigenvalues: Floats, state: str = "") -> Stiffness:
    return Stiffness(float(1.0 / max(abs(eigenvalues[0]), 1e-300)), state, eigenvalues)


def too_long(found: Stiffness, integrator: str, tick: float, substeps: int) -> str | None:
    """What to change if the integrator's step is too long for the fastest motion; otherwise None. ``tick`` in s."""
    step, longest = tick / substeps, found.longest_step(integrator)
    if step <= longest:
        return None
    where = f" {found.regime}" if found.regime else ""
    text = (
        f"a step of {step * 1e6:.0f} µs is too long for {integrator}{where}: {found.state} changes within "
        f"{found.time_constant * 1e6:.0f} µs."
    )
    needed = int(np.ceil(MARGIN * tick / longest))
    if needed > MAX_SUBSTEPS:
        return f'{text} Use integrator = "rosenbrock": this one would need more than {MAX_SUBSTEPS} solver.substeps.'
    return f'{text} Use at least {needed} solver.substeps, or integrator = "rosenbrock".'


def _amplification(z: Floats, integrator: str) -> Floats:
    """|R(z)| of one step: 1 + z (Euler), 1 + z + z²/2 + z³/6 + z⁴/24 (RK4)."""
    r = 1 + z if integrator == "euler" else 1 + z * (1 + z / 2 * (1 + z / 3 * (1 + z / 4)))
    return np.abs(r)
