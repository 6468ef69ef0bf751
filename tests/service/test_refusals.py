"""Why the loop refuses a command, in a sentence."""

from __future__ import annotations

import pytest
from rig_bench import Bench, bench_rig

from hilserver.protocol.commands import Arm, Start
from hilserver.rig.end_of_running import columns_of, ending_now
from hilserver.service.refusals import refusal_text
from hilserver.tick.codes import Mode, ResultCode


@pytest.mark.parametrize(("action", "named"), [("trip", ["high"]), ("ramp", ["high"]), ("hold", []), ("warn", [])])
def test_the_limits_that_would_end_it_are_named(action: str, named: list[str]) -> None:
    bench = Bench(bench_rig({"limits": {"high": {"channel": "p_A", "max": "50 bar", "action": action}}}))
    bench.raw |= {"p_A": 4.9, "p_S": 8.0}
    bench.run_to(Mode.SAFE)
    assert ending_now(bench.rig, columns_of(bench.rig, bench.row[None]), 0) == []
    bench.raw["p_A"] = 5.1
    bench.tick()
    assert ending_now(bench.rig, columns_of(bench.rig, bench.row[None]), 0) == named


def test_the_text_of_a_refusal() -> None:
    text = refusal_text(Start(), ResultCode.LIMIT_ACTIVE, "ARMED", ["high", "x_low"])
    assert text == "a violated limit would end it immediately; remove the cause first (violated: high, x_low)."
    assert refusal_text(Arm(), ResultCode.WRONG_MODE, "FAULT", ["high"]).endswith("the mode is FAULT).")
