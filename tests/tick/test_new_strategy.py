"""A strategy of a new kind is one entry of the table: all that uses strategies finds it there.

In a copy of the package, with a module for the new kind and the entry, and nothing else changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KIND = '''"""A strategy of a new kind: fully open towards the virtual flow."""
from hilserver.tick.bridge import kinds
from hilserver.tick.row import valve_state
from hilserver.numerics.compilable import compilable


@compilable
def bang_command(effects, plan, row, work, valve, elapsed, dt):
    return 1.0 if valve_state(plan, row, valve).flow_virtual > 0.0 else -1.0


@compilable
def prepare_bang(q, command, b, v):
    b.opening = 0.5


BANG = kinds.Kind("bang", bang_command, prepare_bang)
'''
IMPORT = "from hilserver.tick.bridge.bang import BANG\n"
ENTRY = '    bang = 11, BANG, 0, "fully open towards the flow"\n'
SECOND, LAST = "from hilserver.tick.bridge.effects", "    flow_servo = 10"
"""Lines of the table before and after which the two stand."""
SEEN = """
from typing import get_args
from hilserver.fidelity.results import VARIANTS, highest_strategy
from hilserver.rig import available_strategies, settings
from hilserver.rig.plan import first_row
from hilserver.service.strategies import offered_strategies
from hilserver.tick.bridge.strategies import Strategy, follows, strategy_command
from hilserver.tick.codes import ResultCode
from hilserver.tick.commands import change_strategy
from hilserver.tick.row import valve_state
from reference_pages.messages import log_page
from rig_bench import bench_rig

assert "bang" in get_args(settings.StrategyName)
rig = bench_rig({"valves": {"main": {"bridge": {"strategy": "bang"}}}})
assert rig.settings.valves["main"].bridge.strategy == "bang"
assert "bang" in available_strategies.possible(rig.settings)
assert "bang" in offered_strategies(rig, "main")
assert VARIANTS["bang"] == "fully open towards the flow"
assert highest_strategy({"inverse_lag": 0, "bang": 0}) == "bang"
assert "| 11 | `bang` | fully open towards the flow |" in log_page()
row = first_row(rig.layout, rig.plan, rig.packed)
b = valve_state(rig.plan, row, 0)
assert b.strategy == Strategy.bang and follows(b.strategy)
for flow, command in ((1e-4, 1.0), (-1e-4, -1.0)):
    b.flow_virtual = flow
    assert strategy_command(rig.plan, row, row, 0, 1e-3, 1e-3) == command
assert change_strategy(rig.plan, row, 0, float(Strategy.manual)) == ResultCode.DONE
assert b.strategy == Strategy.manual and b.opening != 0.5
assert change_strategy(rig.plan, row, 0, float(Strategy.bang)) == ResultCode.DONE
assert b.strategy == Strategy.bang and b.opening == 0.5
assert change_strategy(rig.plan, row, 0, 12.0) == ResultCode.BAD_VALUE
print("all of it")
"""


def test_all_that_uses_strategies_finds_a_new_one(tmp_path: Path) -> None:
    """Configuration, choice by rig, texts, reference page, dispatch, and the take-over when it is selected."""
    shutil.copytree(ROOT / "hilserver", tmp_path / "hilserver", ignore=shutil.ignore_patterns("__pycache__", "built"))
    table = tmp_path / "hilserver/tick/bridge/strategies.py"
    (tmp_path / "hilserver/tick/bridge/bang.py").write_text(KIND)
    lines = table.read_text().replace(SECOND, IMPORT + SECOND, 1).splitlines(keepends=True)
    (last,) = (number for number, line in enumerate(lines) if line.startswith(LAST))
    table.write_text("".join([*lines[: last + 1], ENTRY, *lines[last + 1 :]]))
    path = os.pathsep.join(map(str, [tmp_path, ROOT / "docs", ROOT / "tests/support"]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SEEN], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "all of it\n"), done.stderr
