"""The page of the example circuits, and their pictures."""

from __future__ import annotations

import functools
import re

from hilserver.circuit.library import standard_library
from hilserver.drawing.schematic import picture as schematic
from hilserver.report.document import Picture
from hilserver.simulation.circuit_report import plot
from hilserver.simulation.circuit_run import run_circuit_file
from hilserver.toml import read_toml
from reference_pages.markdown import fence
from reference_pages.places import EXAMPLES, ROOT

SIMULATED = re.compile(r"^```sh\nhilserver simulate config/circuits/(\w+)\.toml .*\n```$", re.M)
"""The command that plots a circuit."""
PICTURES = (("schematic", "svg"), ("plot", "png"))


def circuits_page() -> str:
    """config/README.md with schematic, plot and file of each circuit after its command."""

    def shown(found: re.Match[str]) -> str:
        file = (ROOT / f"config/circuits/{found[1]}.toml").read_text().strip()
        pictures = "\n\n".join(f"![{found[1]}: {what}](images/circuits/{found[1]}.{end})" for what, end in PICTURES)
        return f"{found[0]}\n\n{pictures}\n\n{fence('toml', file)}"

    return SIMULATED.sub(shown, (ROOT / "config/README.md").read_text())


def example_schematics() -> dict[str, str]:
    """Schematics of the components' examples: path below docs/ -> SVG."""
    return {f"images/components/{file.stem}.svg": schematic(read_toml(file)) for file in EXAMPLES.glob("*.toml")}


@functools.cache
def circuit_plots() -> dict[str, bytes]:
    """Schematics of the example circuits, and plots over their work cycles: path below docs/ -> SVG, PNG."""
    plots = {}
    for name in SIMULATED.findall((ROOT / "config/README.md").read_text()):
        circuit, cycle = (ROOT / f"config/{kind}/{name}.toml" for kind in ("circuits", "cycles"))
        run = run_circuit_file(circuit, standard_library(), cycle)
        plots[f"images/circuits/{name}.svg"] = schematic(run.circuit.source).encode()
        plots[f"images/circuits/{name}.png"] = Picture(name, plot(run), "").png()
    return plots
