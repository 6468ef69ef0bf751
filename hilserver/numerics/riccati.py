r"""The stationary Kalman filter of a linear system, in plain arithmetic.

Libraries of linear algebra choose their code by the processor, and their results differ in the last bits. These don't,
so that a log can be replayed on another machine, bit for bit.

Van Loan's exponential gives the system over a tick, the doubling algorithm the stationary covariance,

.. math:: A_{k+1} = A_k W^{-1} A_k, \quad G_{k+1} = G_k + A_k W^{-1} G_k A_k^T, \quad
   H_{k+1} = H_k + A_k^T H_k W^{-1} A_k, \quad W = I + G_k H_k

whose H converges quadratically to the solution of the discrete Riccati equation. Sources: Van Loan, IEEE TAC 23 (1978)
395; Chu, Fan, Lin & Wang, Int. J. Control 77 (2004) 767. ``spare`` is scratch space: `spare_cells`.
"""

from __future__ import annotations

import numpy as np

from hilserver.numerics.arrays import Floats, Integers, Matrix, as_matrix
from hilserver.numerics.compilable import compilable
from hilserver.numerics.linear import factorise

TERMS = 20
"""Of the exponential series, for a matrix whose norm is at most 1/2: the next one is below the last bit."""
MAX_DOUBLINGS = 60
CONVERGED = 1e-15
"""Change of the covariance relative to its largest value."""
SETTLED = 20
"""Longest periods of a sensor after which the covariance repeats itself."""


def spare_cells(states: int) -> int:
    """Length of the scratch space for a system with this number of states."""
    return 16 * states * states + 2 * states


@compilable
def multiply(a: Matrix, b: Matrix, product: Matrix) -> None:
    """product <- a b

    Indices are unsigned: with indices that can't be negative, the compiler vectorises the sum of rows.
    """
    columns = np.uint64(b.shape[1])
    for i in range(np.uint64(a.shape[0])):
        for j in range(columns):
            product[i, j] = 0.0
        for k in range(np.uint64(a.shape[1])):
            factor = a[i, k]
            for j in range(columns):
                product[i, j] += factor * b[k, j]


@compilable
def transpose(a: Matrix, turned: Matrix) -> None:
    """turned <- a^T"""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            turned[j, i] = a[i, j]


@compilable
def copy(a: Matrix, target: Matrix) -> None:
    """target <- a"""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            target[i, j] = a[i, j]


@compilable
def move_covariance(step: Matrix, turned: Matrix, spread: Matrix, P: Matrix, half: Matrix) -> None:
    """P <- step P step^T + spread; ``turned`` is step^T, ``half`` scratch space."""
    multiply(step, P, half)
    multiply(half, turned, P)
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            P[i, j] += spread[i, j]


@compilable
def exponential(matrix: Matrix, found: Matrix, term: Matrix, product: Matrix) -> None:
    """found <- e^matrix: the series of a fraction of the matrix, squared as often. The matrix becomes that fraction."""
    n, norm, halvings = matrix.shape[0], 0.0, 0
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += abs(matrix[i, j])
        norm = max(norm, total)
    while norm > 0.5:
        norm *= 0.5
        halvings += 1
    share = 0.5**halvings
    for i in range(n):
        for j in range(n):
            matrix[i, j] *= share
            found[i, j] = term[i, j] = 1.0 if i == j else 0.0
    for k in range(1, TERMS):
        multiply(term, matrix, product)
        for i in range(n):
            for j in range(n):
                term[i, j] = product[i, j] / k
                found[i, j] += term[i, j]
    for _ in range(halvings):
        multiply(found, found, product)
        copy(product, found)


@compilable
def discretise(motion: Matrix, drive: Matrix, dt: float, step: Matrix, spread: Matrix, spare: Floats) -> None:
    """Transition ``step`` over a tick of dz/dt = motion z, and the noise ``spread`` that comes in during it."""
    n = motion.shape[0]
    size = 4 * n * n
    block, power = as_matrix(spare[:size], 2 * n), as_matrix(spare[size : 2 * size], 2 * n)
    term, product = as_matrix(spare[2 * size : 3 * size], 2 * n), as_matrix(spare[3 * size : 4 * size], 2 * n)
    for i in range(n):
        for j in range(n):
            block[i, j], block[i, n + j] = -motion[i, j] * dt, drive[i, j] * dt
            block[n + i, j], block[n + i, n + j] = 0.0, motion[j, i] * dt
    exponential(block, power, term, product)
    for i in range(n):
        for j in range(n):
            step[i, j] = power[n + j, n + i]
    for i in range(n):
        for j in range(n):
            spread[i, j] = 0.0
            for k in range(n):
                spread[i, j] += step[i, k] * power[k, n + j]


@compilable
def covariance_before(step: Matrix, spread: Matrix, seen: Matrix, variance: Floats, P: Matrix, spare: Floats) -> None:
    """P <- the stationary covariance before the samples of a tick, where all sensors have one in each."""
    n = step.shape[0]
    size = n * n
    A, G = as_matrix(spare[:size], n), as_matrix(spare[size : 2 * size], n)
    V, U = as_matrix(spare[2 * size : 3 * size], n), as_matrix(spare[3 * size : 4 * size], n)
    X, Y = as_matrix(spare[4 * size : 5 * size], n), as_matrix(spare[5 * size : 6 * size], n)
    Z, W = as_matrix(spare[6 * size : 7 * size], n), spare[7 * size : 8 * size]
    pivots = spare[8 * size : 8 * size + n]
    transpose(step, A)
    copy(spread, P)
    for i in range(n):
        for j in range(n):
            G[i, j] = 0.0
            for k in range(seen.shape[0]):
                G[i, j] += seen[k, i] * seen[k, j] / variance[k]
    for _ in range(MAX_DOUBLINGS):
        multiply(G, P, X)
        for i in range(n):
            for j in range(n):
                W[i * n + j] = X[i, j] + (1.0 if i == j else 0.0)
        factorise(W, n, pivots)
        divide(W, pivots, A, V)
        divide(W, pivots, G, U)
        multiply(P, V, X)  # H W^-1 A
        transpose(A, Y)
        largest, change = add_product(P, Y, X, Z)
        multiply(A, U, X)
        add_product(G, X, Y, Z)
        multiply(A, V, X)
        copy(X, A)
        if change <= CONVERGED * largest:
            break


@compilable
def divide(factors: Floats, pivots: Floats, matrix: Matrix, found: Matrix) -> None:
    """found <- (factorised matrix)^-1 matrix: `hilserver.numerics.linear.solve` for all columns at a time."""
    size, one = np.uint64(matrix.shape[0]), np.uint64(1)
    copy(matrix, found)
    for col in range(size):
        best = np.uint64(np.int64(pivots[col]))
        if best != col:
            for k in range(size):
                found[col, k], found[best, k] = found[best, k], found[col, k]
    for down in range(size):
        i = np.uint64(down)
        for j in range(i):
            subtract_row(found, i, factors[i * size + j], np.uint64(j))
    for up in range(size):
        i = size - one - np.uint64(up)
        for j in range(i + one, size):
            subtract_row(found, i, factors[i * size + j], np.uint64(j))
        for k in range(size):
            found[i, k] = found[i, k] / factors[i * size + i]


@compilable
def subtract_row(matrix: Matrix, i: np.uint64, factor: float, j: np.uint64) -> None:
    """Subtract a multiple of row ``j`` from row ``i``."""
    for k in range(np.uint64(matrix.shape[1])):
        matrix[i, k] -= factor * matrix[j, k]


@compilable
def add_product(total: Matrix, a: Matrix, b: Matrix, product: Matrix) -> tuple[float, float]:
    """total <- total + a b; the largest value of the total, and the largest change. ``product``: scratch space."""
    multiply(a, b, product)
    largest, change = 0.0, 0.0
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            total[i, j] += product[i, j]
            largest, change = max(largest, abs(total[i, j])), max(change, abs(product[i, j]))
    return largest, change


@compilable
def correct_covariance(P: Matrix, seen: Matrix, variance: Floats, periods: Integers, tick: int, along: Floats) -> None:
    """P <- the covariance after the samples of the sensors that have one in this tick, one sensor after the other."""
    n = P.shape[0]
    for s in range(seen.shape[0]):
        if tick % periods[s] == 0:
            total = variance[s]
            for i in range(n):
                along[i] = 0.0
                for j in range(n):
                    along[i] += P[i, j] * seen[s, j]
                total += seen[s, i] * along[i]
            for i in range(n):
                for j in range(n):
                    P[i, j] -= along[i] * along[j] / total


@compilable
def add_gain(gain: Matrix, P: Matrix, seen: Matrix, variance: Floats, s: int, share: float) -> None:
    """Add a fraction of the gain of sensor ``s``, from the covariance after all samples: K = P H^T R^-1."""
    for i in range(P.shape[0]):
        total = 0.0
        for j in range(P.shape[0]):
            total += P[i, j] * seen[s, j]
        gain[i, s] += share * total / variance[s]


@compilable
def stationary(
    step: Matrix,
    spread: Matrix,
    seen: Matrix,
    variance: Floats,
    periods: Integers,
    gain: Matrix,
    after: Matrix,
    spare: Floats,
) -> None:
    """Gain of each sensor when its sample comes, every ``periods`` ticks, and the covariance after all have come.

    ``seen``, float64[sensors, states]: what each sensor sees of the states; ``variance``: of its noise. With different
    periods, the covariance is followed until it repeats itself; a sensor's gain is the mean over the ticks in which it
    has a sample.
    """
    n, sensors = step.shape[0], seen.shape[0]
    longest = shortest = periods[0]
    for s in range(sensors):
        longest, shortest = max(longest, periods[s]), min(shortest, periods[s])
        for i in range(n):
            gain[i, s] = 0.0
    size = n * n
    first = 8 * size + n
    longer, noisier = as_matrix(spare[first : first + size], n), as_matrix(spare[first + size : first + 2 * size], n)
    half, turned = as_matrix(spare[:size], n), as_matrix(spare[size : 2 * size], n)
    along = spare[2 * size : 2 * size + n]
    transpose(step, turned)
    copy(step, longer)
    copy(spread, noisier)
    for _ in range(longest - 1):  # over several ticks
        multiply(step, longer, half)
        copy(half, longer)
        move_covariance(step, turned, spread, noisier, half)
    covariance_before(longer, noisier, seen, variance, after, spare)
    if longest == shortest:
        correct_covariance(after, seen, variance, periods, 0, along)
        for s in range(sensors):
            add_gain(gain, after, seen, variance, s, 1.0)
        return
    correct_covariance(after, seen, variance, periods, 0, along)
    transpose(step, turned)
    for tick in range(1, (SETTLED + 1) * longest + 1):
        move_covariance(step, turned, spread, after, half)
        correct_covariance(after, seen, variance, periods, tick, along)
        if tick > SETTLED * longest:
            for s in range(sensors):
                if tick % periods[s] == 0:
                    samples = (SETTLED + 1) * longest // periods[s] - SETTLED * longest // periods[s]
                    add_gain(gain, after, seen, variance, s, 1.0 / samples)
