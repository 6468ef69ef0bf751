"""Problems in the editor name the line of the file as it is edited, saved or not."""

from __future__ import annotations

from pathlib import Path

from circuit_text import IN_SERIES
from editor_bench import BASE, document

from hilserver.editor.checks import check
from hilserver.editor.edits import RemoveComponent, SetValue

INNER = f'ports = ["P", "T"]\n\n{IN_SERIES}'
LEG = '\n[components.leg]\ntype = "subcircuit"\nfile = "leg.toml"\nports = { P = "supply", T = "tank" }\n'


def test_a_problem_has_the_line_of_the_text_that_is_edited() -> None:
    one = document("# a comment\n\n" + BASE)
    one.make(SetValue(("components", "pump", "speed"), "1450 bar"))
    [found] = check(one).findings
    line = 1 + one.text.splitlines().index('speed = "1450 bar"')
    assert (found.line, found.part, found.key) == (line, "pump", "speed")
    assert found.sentence.startswith(f'line {line}: pump.speed: "1450 bar" has the wrong unit')
    one.text = "\ufeff" + one.text
    assert [each.line for each in check(one).findings] == [line]


def test_a_node_that_lost_its_volume_has_the_line_of_a_port_at_it() -> None:
    one = document(BASE)
    one.make(RemoveComponent("line"))
    [found] = check(one).findings
    assert (found.node, found.line) == (
        "supply",
        1 + one.text.splitlines().index('ports = { P = "supply", T = "tank" }'),
    )


def test_a_problem_in_a_sub_circuit_names_its_file_and_line_there(tmp_path: Path) -> None:
    (tmp_path / "leg.toml").write_text(INNER)
    [found] = check(document(BASE + LEG, tmp_path)).findings
    assert (found.part, found.line, found.file) == ("leg", 0, str(tmp_path / "leg.toml"))
    assert found.sentence.startswith(
        f'{tmp_path}/leg.toml:5: components.first.ports.B: node "leg.between" has no volume'
    )
