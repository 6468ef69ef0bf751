"""No module imports itself through others, not even within functions: each can be read and changed on its own."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp


def cycle_in(imports: dict[str, set[str]]) -> str:
    """A cycle of a graph of imports, as a text; empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return " <- ".join(error.args[1])
    return ""


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("hilserver", exclude_type_checking_imports=True)
    found = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(found) > 100
    assert cycle_in(found) == ""


def test_a_cycle_is_found() -> None:
    cycle = cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert set(cycle.split(" <- ")) == {"a", "b", "c"}
