"""Virtual structures and the critical delay against closed forms and independent computations."""

from __future__ import annotations

from math import inf, pi

import numpy as np
import pytest
from numpy.polynomial import Polynomial
from scipy.signal import lsim

from hilserver.circuit.analysis import Complexes
from hilserver.displacement.specimen import Specimen
from hilserver.hybrid.benchmark import CASES, FRAME, SPECIMEN, BenchmarkCase
from hilserver.hybrid.critical_delay import critical_delay
from hilserver.hybrid.structure import PortalFrame, Structure, beam_stiffness, with_modal_damping
from hilserver.numerics.arrays import Floats

CRITICAL_MS = {"1": 14.64, "2": 12.22, "3": 9.92, "4": 8.73}
"""From sweeps of the coupled benchmark in frequency by others."""


def coupled(structure: Structure, omega: float, force: complex) -> complex:
    """Position of the interface per ground acceleration; ``force``: of the specimen per metre."""
    s = 1j * omega
    matrix = structure.mass * s**2 + structure.damping * s + structure.stiffness
    matrix = matrix + np.diag([force, 0.0, 0.0])
    return complex(np.linalg.solve(matrix, -structure.driven_mass @ np.ones(3))[0])


@pytest.mark.parametrize("ratio", [0.01, 1.0, 100.0])
def test_a_portal_frame_with_hinged_base_has_the_stiffness_of_its_closed_form(ratio: float) -> None:
    """Each column is a cantilever on the end of a beam in antisymmetric bending."""
    E, I_c, h, L = 200e9, 1e-6, 3.0, 5.0
    column, beam = h**3 / (3.0 * E * I_c), h**2 * L / (6.0 * E * ratio * I_c)
    frame = PortalFrame(E, I_c, ratio * I_c, h, L, storeys=1, bays=1)
    assert frame.stiffness()[0, 0] == pytest.approx(2.0 / (column + beam), rel=1e-9)


def test_a_beam_that_moves_as_a_rigid_body_needs_no_force() -> None:
    stiffness = beam_stiffness(1e6, 2.0)
    assert stiffness @ [1.0, 0.0, 1.0, 0.0] == pytest.approx(np.zeros(4), abs=1e-6)
    assert stiffness @ [0.0, 1.0, 2.0, 1.0] == pytest.approx(np.zeros(4), abs=1e-6)


def test_the_frame_of_the_benchmark_has_the_published_natural_frequencies() -> None:
    assert CASES[0].structure().frequencies() == pytest.approx([3.61, 16.00, 38.09], abs=5e-3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_mode_has_the_damping_of_the_case(case: BenchmarkCase) -> None:
    poles = np.linalg.eigvals(case.structure().motion().A)
    assert -poles.real / np.abs(poles) == pytest.approx(np.full(6, case.damping), rel=2e-3)


def test_a_structure_with_its_specimen_is_the_whole_again() -> None:
    whole = CASES[0].structure()
    for omega in (1.0, 22.0, 100.0, 300.0):
        s = 1j * omega
        force = SPECIMEN.mass * s**2 + SPECIMEN.damping * s + SPECIMEN.stiffness
        assert coupled(whole.without(SPECIMEN), omega, force) == pytest.approx(coupled(whole, omega, 0.0), rel=1e-9)


def test_the_response_is_that_of_scipy() -> None:
    dt, structure = 1e-3, with_modal_damping([900.0, 1100.0, 1000.0], FRAME.stiffness(), 0.02)
    ground = np.sin(np.arange(3000.0) * dt * 20.0) + np.random.default_rng(1).standard_normal(3000)
    motion = structure.motion()
    system = (motion.A, motion.B[:, :1], np.eye(6)[:3], np.zeros((3, 1)))
    times: Floats = np.arange(len(ground), dtype=float) * dt
    right = lsim(system, ground, times)[1]
    assert np.abs(structure.response(ground, dt) - right).max() < 1e-9 * np.abs(right).max()


def pade(order: int) -> tuple[Polynomial, Polynomial]:
    """e^-x by Padé: numerator and denominator."""
    bottom = [1.0]
    for k in range(1, order + 1):
        bottom.append(bottom[-1] * (order - k + 1) / (k * (2 * order - k + 1)))
    return Polynomial([c * (-1) ** k for k, c in enumerate(bottom)]), Polynomial(bottom)


def coupled_poles(structure: Structure, delay: float) -> Complexes:
    """Poles of the structure with the delayed specimen: determinant of its matrix, with the delay after Padé."""
    top, bottom = (part(Polynomial([0.0, delay])) for part in pade(6))
    force = Polynomial([SPECIMEN.stiffness, SPECIMEN.damping, SPECIMEN.mass]) * top
    own = [
        [Polynomial([structure.stiffness[i, j], structure.damping[i, j], structure.mass[i, j]]) for j in range(3)]
        for i in range(3)
    ]
    minor = own[1][1] * own[2][2] - own[1][2] * own[2][1]
    rest = own[0][1] * (own[1][0] * own[2][2] - own[1][2] * own[2][0]) - own[0][2] * (
        own[1][0] * own[2][1] - own[1][1] * own[2][0]
    )
    found: Complexes = ((own[0][0] * minor - rest) * bottom + force * minor).roots().astype(complex)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_critical_delay_is_where_the_coupled_structure_becomes_unstable(case: BenchmarkCase) -> None:
    structure = case.structure().without(SPECIMEN)
    found, frequency = critical_delay(structure, SPECIMEN)
    assert 1e3 * found == pytest.approx(CRITICAL_MS[case.name], rel=1e-3)
    slow = 2.0 * np.pi * 1.5 * frequency  # of Padé's poles and of the higher modes nothing is asked
    for delay, stable in ((0.99 * found, True), (1.01 * found, False)):
        poles = coupled_poles(structure, delay)
        assert (poles[np.abs(poles) < slow].real.max() < 0.0) is np.bool_(stable)


def oscillator(frequency: float, damping: float, specimen: Specimen) -> Structure:
    """The virtual part of a mass of 1000 kg on a spring: natural frequency Hz and damping ratio of the whole."""
    mass, omega = 1000.0, 2.0 * pi * frequency
    whole = (np.array([[value]]) for value in (mass, 2.0 * damping * mass * omega, mass * omega**2, mass))
    return Structure(*whole).without(specimen)


@pytest.mark.parametrize("frequency", [0.04, 2.0, 900.0])
def test_the_critical_delay_of_an_oscillator_scales_with_its_period(frequency: float) -> None:
    """The closed form for m z'' + c z' + k z + K z(t - tau) = 0: K² = (k - m w²)² + (c w)² and tan(w tau) = ..."""
    mass, omega, share = 1000.0, 2.0 * pi * frequency, 0.6
    spring = Specimen(0.0, 0.0, share * mass * omega**2)
    structure = oscillator(frequency, 0.05, spring)
    k, c, K = structure.stiffness[0, 0], structure.damping[0, 0], spring.stiffness
    squares = np.roots([mass**2, c**2 - 2.0 * mass * k, k**2 - K**2])
    w = np.sqrt(squares[squares > 0.0].max())
    right = np.arctan2(c * w, mass * w**2 - k) / w
    found, at = critical_delay(structure, spring)
    assert found == pytest.approx(right, rel=1e-6)
    assert at == pytest.approx(w / (2.0 * pi), rel=1e-6)


@pytest.mark.parametrize("share", [0.005, 0.03])
def test_no_delay_of_a_light_specimen_is_critical(share: float) -> None:
    """Its force is less than that of the damping, at every frequency: 2 D (1 - D²)^0.5 of the structure's spring."""
    spring = Specimen(0.0, 0.0, share * 1000.0 * (2.0 * pi * 2.0) ** 2)
    assert critical_delay(oscillator(2.0, 0.05, spring), spring)[0] == inf


def test_any_delay_of_a_specimen_that_is_heavier_than_the_structure_is_critical() -> None:
    """With a delay of one sample, each vibration of the specimen returns larger: its mass is 1.5 times the other."""
    heavy = Specimen(600.0, 100.0, 1e4)
    assert critical_delay(oscillator(2.0, 0.05, heavy), heavy) == (0.0, inf)


@pytest.mark.parametrize("damping", [0.0, -0.01])
def test_a_structure_that_is_not_damped_has_no_delay_to_spare(damping: float) -> None:
    specimen = Specimen(10.0, 0.0, 5e4)
    found, at = critical_delay(oscillator(2.0, damping, specimen), specimen)
    assert found == 0.0
    assert at == pytest.approx(2.0, rel=1e-3)
