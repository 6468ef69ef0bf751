"""Tables of actuators that can't be right: each message names the place, the value, and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from frame_bench import FRAME
from service_harness import CONFIG

from hilserver.errors import ConfigurationError
from hilserver.rig.build import load_rig
from hilserver.rig.notes import notes

SERVO, PARTS, GIVEN = "actuators.table.servo.", "actuators.table.uncertainty.", "specimen_stiffness = 0.042"
RANGE = 'range = ["-50 mm", "50 mm"]'
WRONG = [
    (GIVEN, "specimen_stiffness = 0.7", f"{PARTS}specimen_stiffness: 0.7 is too much to control it; at most 0.5"),
    ('force_decay = "3.3 1/s"', "", f"{PARTS}force_decay: a fraction of 0 is no uncertainty; give the value itself"),
    (GIVEN, "specimen_stifness = 0.1", "or 'specimen_damping'. Did you mean specimen_stiffness?"),
    (GIVEN, "stiffness = 0.1", "or 'specimen_damping'. Did you mean oil_stiffness or specimen_stiffness?"),
    (GIVEN, "colour = 0.1", "'specimen_stiffness' or 'specimen_damping'."),
    ('"prediction"', '"predicton"', "'prediction' or 'manual'. Did you mean prediction?"),
    ('"prediction"', '"pi_lead"', "'prediction' or 'manual'. Did you mean adaptive_lead?"),
    ("raw = [-10, 10]\nrange", "raw = [10, 10]\nrange", "actuators.table.raw: the outputs at both ends of the range"),
    ("max_error", 'safe = "60 mm"\nmax_error', "actuators.table.safe: 60 mm is outside of the range, -50 mm … 50 mm"),
    ('"2 mm"', '"101 mm"', "actuators.table.max_error: 101 mm is more than the whole range, 100 mm, so that the"),
    ('"4.2297e6 N/m"', '"4.2297 N/m"', f"{SERVO}oil_stiffness: 4.2297 N/m is softer than the oil of any actuator"),
    (
        RANGE,
        'range = ["10 mm", "50 mm"]\nsafe = "20 mm"',
        "actuators.table.range: 10 mm … 50 mm does not contain the initial position of node rig.table, 0 mm. Change ",
    ),
    (
        RANGE,
        f'{RANGE}\noffset = "-60 mm"',
        "actuators.table.range: -50 mm … 50 mm does not contain the initial position of node rig.table, 0 mm, with the "
        "offset -60 mm. Change its position in the circuit, the offset or the range.",
    ),
]


@pytest.mark.parametrize(("right", "wrong", "said"), WRONG, ids=[f"{k} {case[1]}" for k, case in enumerate(WRONG)])
def test_what_can_not_be_is_refused_at_its_key(right: str, wrong: str, said: str, tmp_path: Path) -> None:
    text = FRAME.read_text().replace('"../', f'"{CONFIG}/')
    assert text.count(right) == 1
    file = tmp_path / "frame.toml"
    file.write_text(text.replace(right, wrong))
    with pytest.raises(ConfigurationError) as refused:
        load_rig(file)
    (problem,) = str(refused.value).splitlines()
    assert said in problem


def test_the_line_is_that_of_the_value(tmp_path: Path) -> None:
    file = tmp_path / "frame.toml"
    file.write_text(FRAME.read_text().replace('"../', f'"{CONFIG}/').replace(GIVEN, "specimen_stiffness = 0.7"))
    line = 1 + file.read_text().splitlines().index("specimen_stiffness = 0.7")
    with pytest.raises(ConfigurationError) as refused:
        load_rig(file)
    assert str(refused.value).startswith(f"{file}:{line}: {PARTS}specimen_stiffness: 0.7 is")


@pytest.mark.parametrize(
    ("right", "changed", "said"),
    [
        (
            'max_error = "2 mm"',
            'max_error = "2 mm"\ndelay = "0.4 ms"',
            "actuators.table.delay: the delay 0.4 ms counts as 0.488 ms, in whole ticks of 0.244 ms: the rest makes",
        ),
        ('max_error = "2 mm"', 'max_error = "2 mm"\ndelay = "0.5 ms"', ""),
    ],
)
def test_a_delay_between_ticks_is_a_note(right: str, changed: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "frame.toml"
    text = FRAME.read_text().replace('"../', f'"{CONFIG}/')
    assert text.count(right) == 1
    file.write_text(text.replace(right, changed))
    found = [note for note in notes(load_rig(file)) if "whole ticks" in note]
    assert [note.startswith(said) for note in found] == ([True] if said else [])
