"""What holds for every test."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command_line import Command, command_line
from fake_nidaqmx import FakeNi
from hypothesis import settings

if TYPE_CHECKING:
    from modbus_bench import TcpBench
    from ni_bench import Opened

# A shared machine steals time: no deadline per example.
# The same examples in every run: a failure in CI is the same failure here.
settings.register_profile("hilserver", deadline=None, derandomize=True)
settings.load_profile("hilserver")


# As the command line does for itself. Threads of BLAS that wait for each other cost other tests their processor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
# Several servers run beside each other here, and none of them has a processor for its own. One test switches this on.
os.environ["HILSERVER_REHEARSAL"] = "off"
assert "numpy" not in sys.modules  # which reads it when it is imported

# Neither do the thousands of tests that pytest collects leave garbage.
gc.set_threshold(50_000)

# A shell without job control starts background commands with SIGINT ignored, and every child inherits this.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Length and faults of the soak test, number of machines for the independent reference, pictures of the panel.

    (test_soak.py, test_independent_reference.py, test_panel.py)
    """
    parser.addoption("--soak", default="60 s", help='length of the soak tests, like "2 h", of each a third')
    parser.addoption("--chaos", default=None, help="length of faults at random times, otherwise a third of --soak")
    parser.addoption("--soak-seed", type=int, default=1, help="another order of its faults")
    parser.addoption("--soak-steps", default=None, help="of a chaos run that has failed, as it printed them")
    parser.addoption("--soak-report", default=None, help="file that its report is appended to")
    parser.addoption("--machines", type=int, default=25, help="number of machines in test_independent_reference.py")
    parser.addoption("--program", action="store_true", help="compile the program before the first test, or wait for it")
    parser.addoption("--screenshots", action="store_true", help="write the docs' pictures of the panel")


LONGEST = (
    "docs/test_offline_commands.py",
    "service/test_soak.py",
    "docs/test_driving_commands.py",
    "tick/test_port_family.py",
    "identify/test_actuator_identification.py",
    "panel/test_panel.py",
    "identify/test_design.py",
    "fidelity/test_machines.py",
    "identify/test_identify.py",
    "identify/test_motors.py",
    "panel/test_hold_to_run.py",
    "circuit/test_ready_circuits.py",
    "identify/test_proportionality.py",
    "tick/test_stiff_restrictions.py",
    "panel/test_safe_hands.py",
    "tick/test_learning.py",
    "tick/test_bridge_lowering.py",
    "tick/test_bridge_parts.py",
    "hybrid/test_benchmark.py",
    "panel/test_panel_and_others.py",
    "virtual_commissioning/test_trial.py",
    "identify/test_speed_limit.py",
    "identify/test_machine.py",
    "realtime/test_worker.py",
    "studies/test_studies_of_rigs.py",
    "cli/test_cli_offline.py",
    "service/test_terminal.py",
    "studies/test_cluster.py",
    "simulation/test_change_points.py",
    "identify/test_chamber_model.py",
    "commissioning/test_driving.py",
    "studies/test_sizing.py",
    "studies/test_studies.py",
    "fidelity/test_fidelity.py",
    "service/test_service.py",
    "viewer/test_viewer_page.py",
    "drivers/test_driver_modbus.py",
    "commissioning/test_deployment.py",
    "fidelity/test_vary.py",
    "sequences/test_ci_workflow.py",
    "project/test_project.py",
    "docs/test_live_commands.py",
    "identify/test_lateness.py",
    "studies/test_studies_of_sequences.py",
    "compiler/test_sealed_cache.py",
    "service/test_margin_monitor.py",
    "fmu/test_fmu_parameters.py",
    "circuit/test_random_circuits.py",
    "identify/test_servo_tuning.py",
    "docs/test_measuring_commands.py",
    "identify/test_excitation.py",
    "tick/test_hazards.py",
    "sequences/test_commands_together.py",
    "service/test_confirmed_outputs.py",
    "simulation/test_independent_reference.py",
    "fidelity/test_simulate.py",
    "drawing/test_labels.py",
    "service/test_operator_link.py",
    "identify/test_uncertainty.py",
    "fmu/test_fmu_same_bits.py",
    "service/test_lost_processes.py",
    "drivers/test_driver_ni.py",
    "studies/test_fits.py",
    "components/test_components_library.py",
    "record/test_recorder.py",
    "tick/test_robustness.py",
    "editor/test_rig_page.py",
    "service/test_notify.py",
    "simulation/test_replay.py",
    "client/test_imports.py",
    "service/test_actuators_in_a_run.py",
    "record/test_damaged_logs.py",
)
"""The modules that begin first, all of more than 25 s on two processors: from the longest on, those in real time, which
mostly wait, in turn with others that compute. All that wait at once would disturb one another, and leave the processors
idle; a long one that begins last keeps one processor busy alone.
"""


class WrittenDoctests:
    """Modules without an example are not searched for one: each of pytest's workers would import them, and look."""

    @staticmethod
    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        found = yield
        return [each for each in found if type(each).__name__ != "DoctestModule" or ">>>" in file_path.read_text()]


def pytest_configure(config: pytest.Config) -> None:
    """Also for modules outside of this folder, to which the hooks of this file do not apply."""
    config.pluginmanager.register(WrittenDoctests())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest modules first, then those with slow tests: one that begins late keeps the other workers waiting."""
    rank = {f"tests/{module}": number for number, module in enumerate(LONGEST)}
    module_of = {item: item.nodeid.partition("::")[0] for item in items}  # item.location would look for its line
    slow = {module for item, module in module_of.items() if item.get_closest_marker("slow")}
    items.sort(key=lambda item: rank.get(module_of[item], len(rank) + (module_of[item] not in slow)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Wait until the program is there, which another process may be compiling while tests are collected."""
    from hilserver.compiler.loading import is_built
    from hilserver.compiler.programs import standard_program

    if standard_program.cache_info().currsize:
        raise pytest.UsageError("a test module loads the compiled program when it is imported: load it in its tests.")

    if session.config.getoption("--program") and not is_built():
        from hilserver.compiler.storing import build_once

        build_once()


def surroundings() -> dict[str, Any]:
    """What tests could leave behind for others in this process."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    numba = sys.modules.get("numba")
    return {"environment": variables, "folder": Path.cwd(), "cache": numba and numba.config.CACHE_DIR}


@pytest.fixture(scope="module", autouse=True)
def _surroundings_are_left_as_they_were() -> Iterator[None]:
    """Tests come in any order: what one changes for all is an error of its own module, not of the next one."""
    before = surroundings()
    yield
    after = surroundings()
    if before["cache"] is None:  # numba had not been loaded
        after["cache"] = None
    assert after == before


@pytest.fixture(scope="module", autouse=True)
def _short_pauses_of_the_garbage_collector() -> Iterator[None]:
    """What is left of a module stays: the collector need not look at it again, which takes a second in the end.

    For that long, everything in this process would stand still: simulated devices, clients, browsers.
    """
    yield
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let a last collection find what was never closed.

    What it leaves is passed over by the dozen of collections with which pytest and Python end, a second each.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def _fake_ni_driver(tmp_path_factory: pytest.TempPathFactory) -> FakeNi:
    """One per process: nidaqmx loads its library once."""
    return FakeNi(tmp_path_factory.mktemp("nidaqmx"))


@pytest.fixture
def fake_ni(_fake_ni_driver: FakeNi, monkeypatch: pytest.MonkeyPatch) -> FakeNi:
    """The fake of NI's driver, its devices as new; processes that are started find it."""
    for name, value in _fake_ni_driver.environment.items():
        monkeypatch.setenv(name, value)
    _fake_ni_driver.reset()
    return _fake_ni_driver


@pytest.fixture
def opened(fake_ni: FakeNi) -> Iterator[Opened]:
    """Makes NI drivers at the fake, opened with just the settings that a test wants."""
    from ni_bench import opening

    with opening() as make:
        yield make


@pytest.fixture(scope="module")
def at_network() -> Iterator[TcpBench]:
    """A Modbus device, one process for all tests of a module over TCP."""
    from modbus_bench import TcpBench

    with closing(TcpBench()) as bench:
        yield bench


@pytest.fixture
def tcp(at_network: TcpBench) -> TcpBench:
    """The same, as just switched on."""
    at_network.server.do("anew")
    return at_network


@pytest.fixture
def hilserver(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command of the command line in this process."""
    return command_line(monkeypatch, capsys)
