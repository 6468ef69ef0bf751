"""A MkDocs hook that generates the reference pages from the classes, models and commands they describe.

None of the generated pages is committed. Equations (``math`` fences, ``.. math::`` in docstrings) become SVG, so that
the pages need no script and nothing from the network.
"""

from __future__ import annotations

import ast
import functools
import html
import importlib
import inspect
import json
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
from annotated_types import Ge, Gt, Interval, Le, Lt, MaxLen, MinLen
from markdown.extensions.toc import slugify  # type: ignore[import-untyped]
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hilserver.circuit.library import RECORDED, Library, Role, standard_library
from hilserver.circuit.model import NodeStart, Solver
from hilserver.components.base import Component, Fluid
from hilserver.drawing.schematic import picture as schematic
from hilserver.driver import installed_drivers
from hilserver.mechanics import model as mechanics
from hilserver.protocol import commands, topics
from hilserver.protocol.address import BrokerAddress
from hilserver.report.document import Picture
from hilserver.rig.calibration import Calibration
from hilserver.rig.cycle import CycleInput, CycleSettings
from hilserver.rig.settings import RigSettings
from hilserver.sequences.model import Expectation, Fault, SequenceFile, StepTiming
from hilserver.simulation.circuit_run import plot, run_circuit_file
from hilserver.tick import codes
from hilserver.tick.bridge.ladder import Strategy
from hilserver.tick.row import column_reference
from hilserver.toml import read_toml
from hilserver.units import PlainNumber, Quantity, Unit

Json = dict[str, Any]

DOCS = Path(__file__).parent
ROOT = DOCS.parent
EXAMPLES = DOCS / "examples"


# --- what MkDocs calls -----------------------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand the navigation: an entry that ends in / stands for all pages of that folder."""
    config.nav = _expanded(config.nav)
    return config


def _expanded(entry: Any) -> Any:
    if isinstance(entry, list):
        return [_expanded(part) for part in entry]
    if isinstance(entry, dict):
        return {title: _expanded(part) for title, part in entry.items()}
    if not entry.endswith("/"):
        return entry
    there = {path.relative_to(DOCS).as_posix() for path in (DOCS / entry).glob("*.md")}
    return sorted(
        {page for page in (*pages(), *repository_pages(), *there) if page.startswith(entry)}, key=_index_first
    )


def _index_first(page: str) -> tuple[bool, str]:
    return not page.endswith("/index.md"), page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the pages from other folders of the repository."""
    made: dict[str, str | bytes] = {**pages(), **repository_pages(), **example_schematics(), **circuit_plots()}
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Draw the equations of a page; lead links to sources to their pages, and links to folders to their indexes."""
    markdown = to_reference(markdown)
    markdown = re.sub(r"\]\(([\w./-]+/)\)", r"](\1index.md)", markdown)
    return re.sub(r"^```math\n(.*?)^```$", lambda found: equation(found[1]), markdown, flags=re.M | re.S)


SOURCES = {
    "circuit/model.py": "circuit-file.md",
    "mechanics/model.py": "mechanism-file.md",
    "rig/settings.py": "rig-file.md",
    "tick/row.py": "log.md",
}
"""The modules that declare the keys of a file, and the page generated from each."""


def to_reference(markdown: str) -> str:
    """Replace links to source files by links to the reference pages generated from them.

    In the repository itself, which contains no reference pages, the same links lead to the source files.
    """

    def page(found: re.Match[str]) -> str:
        component = re.fullmatch(r"(components/\w*)(\.py)?", found[1])
        return f"](reference/{component[1] + ('.md' if component[2] else '') if component else SOURCES[found[1]]})"

    return re.sub(r"\]\(\.\./hilserver/([\w/.]+)\)", page, markdown)


def pages() -> dict[str, str]:
    """All generated pages: path below docs/ -> Markdown."""
    library = standard_library()
    components = {f"reference/components/{name}.md": component_page(name, library) for name in library.types}
    return {
        "reference/components/index.md": component_index(library),
        **components,
        "reference/rig-file.md": rig_file_page(),
        "reference/circuit-file.md": circuit_file_page(),
        "reference/cycle-file.md": cycle_file_page(),
        "reference/mechanism-file.md": mechanism_file_page(),
        "reference/calibration-file.md": calibration_file_page(),
        "reference/sequence-file.md": sequence_file_page(),
        "reference/commands.md": commands_page(),
        "reference/mqtt.md": mqtt_page(),
        "reference/log.md": log_page(),
    }


def repository_pages() -> dict[str, str]:
    """README, changelog and security page with their links adapted to the site; the list of decisions."""
    readme = (ROOT / "README.md").read_text().replace("](docs/", "](").replace("](CHANGELOG.md)", "](changelog.md)")
    readme = readme.replace("](SECURITY.md)", "](security.md)").replace("](config/README.md)", "](circuits.md)")
    decisions = sorted((DOCS / "decisions").glob("*.md"))
    titles = [(path.name, path.read_text().split("\n")[0].removeprefix("# ")) for path in decisions]
    lines = ["# Decisions", "", "Design decisions that could be questioned, and the reasons for them.", ""]
    return {
        "index.md": readme.replace("[Apache-2.0](LICENSE)", "Apache-2.0"),
        "circuits.md": circuits_page(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "]("),
        "security.md": (ROOT / "SECURITY.md").read_text().replace("](docs/", "]("),
        "decisions/index.md": "\n".join([*lines, *(f"- [{title}]({name})" for name, title in titles)]),
    }


# --- example circuits -------------------------------------------------------------------------------------------------


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


# --- equations -------------------------------------------------------------------------------------------------------


MATHTEXT = {"frac": r"\dfrac", "tfrac": r"\frac", "le": r"\leq", "ge": r"\geq"}
"""LaTeX commands that matplotlib's mathtext lacks -> their mathtext equivalents."""


def equation(latex: str, size: float = 17.0) -> str:
    """A displayed equation as inline SVG in the colour of the text, with its LaTeX as the accessible label."""
    source = " ".join(latex.split())
    text = re.sub(r"\\(t?frac|le|ge)\b", lambda found: MATHTEXT[found[1]], source)
    path = TextPath((0, 0), f"${text}$", size=size, prop=FontProperties(math_fontfamily="stix"))
    (left, bottom), (right, top) = path.vertices.min(axis=0), path.vertices.max(axis=0)
    width, height = right - left + 2, top - bottom + 2
    return (
        f'<div class="equation"><svg role="img" aria-label="{html.escape(source)}" xmlns="http://www.w3.org/2000/svg" '
        f'width="{width:.1f}" height="{height:.1f}" viewBox="{left - 1:.1f} {-top - 1:.1f} {width:.1f} {height:.1f}" '
        f'fill="currentColor"><path d="{svg_path(path)}"/></svg></div>'
    )


def svg_path(path: TextPath) -> str:
    """The outline of a text as the data of an SVG path (y downwards)."""
    letters = {path.MOVETO: "M", path.LINETO: "L", path.CURVE3: "Q", path.CURVE4: "C"}
    parts = []
    for points, code in path.iter_segments(simplify=False):
        flipped = np.asarray(points).reshape(-1, 2) * (1.0, -1.0)
        parts.append("Z" if code == path.CLOSEPOLY else letters[code] + " ".join(f"{v:.2f}" for v in flipped.ravel()))
    return "".join(parts)


def docstring(thing: object) -> str:
    """A docstring as Markdown."""
    lines = (inspect.getdoc(thing) or "").split("\n")
    text, inside = [], False
    for line in lines:
        if line.startswith(".. math::"):
            inside = True
            text += ["```math", line.removeprefix(".. math::")]
        elif inside and not line.strip():
            inside = False
            text += ["```", ""]
        else:
            text.append(line)
    joined = "\n".join([*text, "```"] if inside else text)
    joined = re.sub(r":\w+:`~?\.?([^`]+)`", r"`\1`", joined)
    return re.sub(r"(?<!`)``([^`]+)``(?!`)", r"`\1`", joined)


def with_sources(text: str) -> str:
    """The text of a component's page with links to the sections of the theory and to its sources."""
    theory = (DOCS / "theory.md").read_text()
    sections = {head.partition(".")[0]: slugify(head, "-") for head in re.findall(r"^## (\d\. .*)$", theory, re.M)}
    text = re.sub(r"theory §(\d)", lambda found: f"[{found[0]}](../../theory.md#{sections[found[1]]})", text)
    for source in re.findall(r"^\| \[(.+?)\] \|", theory, re.M):
        text = text.replace(f"[{source}]", f"[{source}](../../theory.md)")
    return text


# --- components ------------------------------------------------------------------------------------------------------


def component_index(library: Library) -> str:
    """All component types with their symbols."""
    rows = [
        (
            f'<span class="symbol small">{symbol(kind)}</span>',
            f"[{title(name)}]({name}.md)",
            f"`{name}`",
            cell(first_sentence(kind)),
        )
        for name, kind in library.types.items()
    ]
    intro = (
        "Each page is generated from the class: its equations, its ports, its datasheet values, and the source of "
        "its kernels, which are the equations as computed. Symbols follow ISO 1219-1.\n\n"
        "Pressures are gauge pressures. A flow is positive into a node, a force positive in the direction of "
        "increasing position."
    )
    return "\n\n".join(["# Components", intro, table(("symbol", "component", "`type`", "what it is"), rows)])


def component_page(name: str, library: Library) -> str:
    """The page of one component type."""
    kind = library.types[name]
    parts = [f"# {title(name)}", f'<div class="symbol">{symbol(kind)}</div>', with_sources(docstring(kind))]
    values = sorted(datasheet_fields(kind), key=lambda row: row[0] == "`description`")  # common to all: last
    parts += ["## Connections", connections(kind), "## Datasheet values", table(COLUMNS, values)]
    drawing = f"![Schematic of the example](../../images/components/{name}.svg)"
    parts += ["## Example", "A minimal complete circuit with this component:", drawing, fence("toml", example(name))]
    if kind.states:
        parts += ["## States", states(kind)]
    parts += ["## Logged values", logged(kind, library)]
    parts += ["## Validation", validation(kind)]
    parts += ["## Equations as computed", kernel_text(kind)]
    return "\n\n".join(parts) + "\n"


def title(name: str) -> str:
    """``proportional_valve_4_3`` -> ``Proportional valve 4/3``."""
    return re.sub(r"(\d) (\d)$", r"\1/\2", name.replace("_", " ")).capitalize()


def first_sentence(kind: type[Component]) -> str:
    """The first sentence of the class docstring."""
    text = docstring(kind).split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=\.) (?=[A-Z])", text)[0]


def symbol(kind: type[Component]) -> str:
    """The symbol of a component type: an SVG beside its module."""
    package = kind.__module__.rpartition(".")[0]
    return package_files(package).joinpath("symbols", f"{kind.type_name}.svg").read_text().strip()


def example(name: str) -> str:
    """The example circuit of a component type."""
    return (EXAMPLES / f"{name}.toml").read_text().strip()


def connections(kind: type[Component]) -> str:
    """Ports and signals, and how they are written."""
    rows = []
    for what, ports in (("hydraulic", kind.hydraulic), ("mechanical", kind.mechanical), ("shaft", kind.rotational)):
        rows += [(f"`{port}`", what, f'`ports = {{ {port} = "<node>" }}`') for port in ports]
    for port in kind.inputs:
        otherwise = f"; {kind.input_defaults[port]:g} if not given" if port in kind.input_defaults else ""
        rows.append((f"`{port}`", "signal in", f'`{port} = "<signal>"`, or a number{otherwise}'))
    rows += [(f"`{port}`", "signal out", f'`{port} = "<signal>"`') for port in kind.outputs]
    return table(("port", "kind", "connected by"), rows)


def states(kind: type[Component]) -> str:
    """The states of the component."""

    def shown(value: float | str) -> str:
        return f"`{value}`" if isinstance(value, str) else {np.inf: "", -np.inf: ""}.get(value, f"{value:g}")

    rows = [(f"`{s.name}`", s.unit, shown(s.initial), shown(s.lower), shown(s.upper)) for s in kind.states]
    text = "Limits are hard: the engine stops the state there. Names are parameters of the kernel."
    return table(("state", "unit", "initial value", "lower limit", "upper limit"), rows) + "\n\n" + text


def logged(kind: type[Component], library: Library) -> str:
    """The values of the component in telemetry and log."""
    units = {
        Role.FLOW: "m³/s, into the node",
        Role.FORCE: "N, on the node",
        Role.TORQUE: "N·m, on the shaft",
        Role.OBSERVABLE: "SI",
    }
    rows = [(f"`<name>.{s.name}`", s.unit) for s in kind.states]
    for contract in library.contracts_of(kind):
        rows += [(f"`<name>.{term.word}`", units[term.role]) for term in contract.results if term.role in RECORDED]
    nodes = "In addition, for each node: `<node>.p` (Pa, gauge), or `<node>.x` and `<node>.v` (m, m/s)."
    return (table(("value", "unit"), rows) + "\n\n" if rows else "No values of its own. ") + nodes


def kernel_text(kind: type[Component]) -> str:
    """The source of all kernels of a component."""
    sources = [re.sub(r"^@.*\n", "", inspect.getsource(kernel.function)).strip() for kernel in kind.kernels]
    return fence("python", "\n\n".join(sources))


def validation(kind: type[Component]) -> str:
    """The tests that name this component, otherwise those whose circuits contain it; each with its reference."""
    names = {kind.__name__, kind.type_name, *(kernel.function.__name__ for kernel in kind.kernels)}
    by_name = [row for words, row in all_tests() if names & words]
    in_circuits = [row for words, row in all_tests() if any(f'"{kind.type_name}"' in word for word in words)]
    return table(("what is tested", "against", "in"), by_name or in_circuits)


@functools.cache
def all_tests() -> list[tuple[set[str], tuple[str, str, str]]]:
    """Of every test: the words in it; and its name, the first paragraph of its docstring, its file."""
    found = []
    for file in sorted((ROOT / "tests").glob("test_*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                said = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
                found.append(
                    (_words(node), (node.name.removeprefix("test_").replace("_", " "), said, f"`{file.name}`"))
                )
    return found


def _words(node: ast.AST) -> set[str]:
    """Identifiers and whole string constants below a node."""
    words = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return words | {p.value for p in ast.walk(node) if isinstance(p, ast.Constant) and isinstance(p.value, str)}


# --- configuration files ---------------------------------------------------------------------------------------------


def rig_file_page() -> str:
    """Reference of the rig file."""
    parts = ["# Rig file", docstring_of_values(), "## Top level", field_table(flat_fields(RigSettings))]
    for name, field in RigSettings.model_fields.items():
        model = model_in(field.annotation)
        if model is None:
            continue
        many = get_origin(field.annotation) is dict
        parts += [f"## `[{name}{'.<name>' if many else ''}]`", docstring(model), field_table(datasheet_fields(model))]
    for name, driver in installed_drivers().items():
        heading = f'## `[devices.<name>]` with `driver = "{name}"`'
        parts += [heading, docstring(driver.Config), field_table(datasheet_fields(driver.Config))]
    return "\n\n".join(parts) + "\n"


def circuit_file_page() -> str:
    """Reference of the circuit file."""
    top = [
        ("`description`", "text", "", "", "free text"),
        ("`[fluid]`", "table", "", "", "the oil"),
        ("`[solver]`", "table", "", "", "how the circuit is integrated"),
        ("`[components.<name>]`", "tables", "", "", "the components: [reference](components/index.md)"),
        ("`[nodes.<name>]`", "tables", "", "", "initial values of nodes"),
        ("`[mechanisms.<name>]`", "tables", "", "", "bodies and joints that move mechanical nodes"),
    ]
    text = """\
A component has `type`, `ports` (port → node), its signals (a key with the name of the port and, as its value, the name
of a signal or a number), `description`, and the datasheet values of its type. Naming a node or a signal creates it.
`rig.A` is the port `A` of the rig file: its pressure is measured. A signal that no component writes is an input of the
rig. Every hydraulic node needs a component with a volume, every mechanical node one with a mass; `hilserver check`
names those that have none."""
    parts = ["# Circuit file", docstring_of_values(), "## Top level", table(COLUMNS, top)]
    parts += ["## `[components.<name>]`", text]
    for name, model in (("fluid", Fluid), ("solver", Solver), ("nodes.<name>", NodeStart)):
        parts += [f"## `[{name}]`", docstring(model), field_table(datasheet_fields(model))]
    mechanism = [
        ("`file`", "file name", "–", "", "[mechanism file](mechanism-file.md), in the folder of the circuit file, in a "
         "folder below it, or in `../mechanisms`"),
        ("`definition`", "tables", "–", "", "the contents of the file, instead of `file`"),
        ("`nodes`", "texts by name", "–", "", "actuator → node that it moves; default: the name of the actuator"),
    ]  # fmt: skip
    parts += ["## `[mechanisms.<name>]`", "A mechanism in the circuit.", table(COLUMNS, mechanism)]
    return "\n\n".join(parts) + "\n"


def cycle_file_page() -> str:
    """Reference of the work cycle file."""
    return "\n\n".join(
        [
            "# Work cycle file",
            docstring(CycleSettings),
            docstring_of_values(),
            field_table(datasheet_fields(CycleSettings)),
        ]
    )


def mechanism_file_page() -> str:
    """Reference of the mechanism file."""
    top = [
        ("`description`", "text", "–", "", "free text"),
        ("`method`", written(mechanics.Method), "–", "", "coordinates of the bodies (in a plane; the default there) "
         "or of the joints"),
        ("`gravity`", '[`"0 m/s^2"`, …]', "–", "", "default: 9.81 m/s² downward along the last axis of the drawing"),
        ("`[bodies.<name>]`", "tables", "**required**", "", "rigid bodies"),
        ("`[joints.<name>]`", "tables", "–", "", "connections of two bodies; `type` is one of those below"),
        ("`[actuators.<name>]`", "tables", "–", "", "elements that a circuit drives; `type` is one of those below"),
    ]  # fmt: skip
    parts = ["# Mechanism file", docstring(mechanics), docstring_of_values(), "## Top level", table(COLUMNS, top)]
    parts += ["## `[bodies.<name>]`", docstring(mechanics.Body), field_table(datasheet_fields(mechanics.Body))]
    kinds = (("joints", "revolute", mechanics.JOINTS), ("actuators", "linear", mechanics.ACTUATORS))
    for folder, usual, models in kinds:
        for name, model in models.items():
            also = "; the default" if name == usual else ""
            parts += [f'## `[{folder}.<name>]` with `type = "{name}"`{also}', docstring(model)]
            parts += [field_table(datasheet_fields(model))]
    return "\n\n".join(parts) + "\n"


def calibration_file_page() -> str:
    """Reference of the calibration file."""
    text = """\
A list of entries per channel, oldest first: `[[p_S]]` is an entry of channel `p_S`.
[`hilserver calibrate`](../calibration.md) appends to it and removes nothing. The last polynomial of a channel and the
last tare after it apply."""
    return "\n\n".join(["# Calibration file", text, docstring(Calibration), field_table(datasheet_fields(Calibration))])


def sequence_file_page() -> str:
    """Reference of the test sequence file."""
    parts = ["# Test sequence file", docstring(SequenceFile), docstring_of_values(), "## Top level"]
    parts.append(field_table(flat_fields(SequenceFile)))
    of_a_step = (
        "A command of [MQTT](../mqtt.md#commands): `send` is its name; besides these keys it has those of the command."
    )
    parts += ["## `[[step]]`", of_a_step, field_table(flat_fields(StepTiming))]
    for name, model in (("fault", Fault), ("expect", Expectation)):
        parts += [f"## `[[{name}]]`", docstring(model), field_table(flat_fields(model))]
    parts += ["## `[inputs.<name>]`", docstring(CycleInput), field_table(datasheet_fields(CycleInput))]
    return "\n\n".join(parts) + "\n"


def docstring_of_values() -> str:
    """How values are written."""
    return (
        'Values with a unit are texts: `"40 l/min"`, `"35 bar"`, `"30 Hz"`. Any unit of the same kind is accepted. '
        "Pressures are gauge pressures. Limits in the column *allowed* are in SI units. Keys without a default must be "
        "given; unknown keys are errors."
    )


# --- tables of pydantic models ---------------------------------------------------------------------------------------

ANY_UNIT = {"quantity": "250 bar", "difference": "5 bar", "quantity_per_second": "5000 bar/s"}
"""Examples of quantities of any kind, by the function that reads them."""
COLUMNS = ("key", "example", "default", "allowed", "meaning")
Row = tuple[str, ...]


def datasheet_fields(model: type[BaseModel], prefix: str = "") -> Iterator[Row]:
    """A row per key, those of nested tables as ``table.key``."""
    for name, field in model.model_fields.items():
        yield field_row(prefix + name, field)
        inner = model_in(field.annotation)
        if inner is not None:
            many = get_origin(field.annotation) is dict
            yield from datasheet_fields(inner, f"{prefix}{name}.{'<name>.' if many else ''}")


def flat_fields(model: type[BaseModel]) -> Iterator[Row]:
    """A row per key, without the keys of nested tables."""
    return (field_row(name, field) for name, field in model.model_fields.items())


def field_row(key: str, field: FieldInfo) -> Row:
    """Key, how it is written, default, allowed range, description."""
    model = model_in(field.annotation)
    text = field.description or (docstring(model).split("\n")[0] if model else "")
    return (f"`{key}`", example_of(field), default(field), allowed(field), cell(text))


def field_table(rows: Iterator[Row]) -> str:
    """The rows as a table."""
    return table(COLUMNS, list(rows))


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The table that a key holds (``Dither``, ``Leakage | None``, ``dict[str, ChannelSettings]``), None for a value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation is not Quantity:
        return annotation
    if get_origin(annotation) is tuple:
        return None
    return next((model for part in get_args(annotation) if (model := model_in(part))), None)


def example_of(field: FieldInfo) -> str:
    """An example of the key's own, else its default where this is a quantity other than 0, else one of its kind."""
    if field.examples:
        return f"`{json.dumps(field.examples[0], ensure_ascii=False)}`"
    of_a_unit = any(isinstance(mark, Unit) for mark in field.metadata)
    if of_a_unit and isinstance(field.default, str) and float(field.default.split()[0]) != 0.0:
        return f"`{json.dumps(field.default)}`"
    return written(field.annotation, field.metadata)


def written(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> str:
    """An example of a value as written in a file."""
    for mark in metadata:
        if isinstance(mark, Unit):
            return f'`"{mark.example}"`'
        if isinstance(mark, PlainNumber):
            return "number"
        if example := ANY_UNIT.get(getattr(getattr(mark, "func", None), "__name__", "")):
            return f'`"{example}"`'
    arguments = get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return written(arguments[0], annotation.__metadata__)
    if get_origin(annotation) is Literal:
        return " or ".join(f'`"{value}"`' if isinstance(value, str) else f"`{value}`" for value in arguments)
    if get_origin(annotation) is tuple:
        inner = [written(part) for part in arguments if part is not Ellipsis]
        return "[" + ", ".join(inner) + (", …]" if Ellipsis in arguments else "]")
    if get_origin(annotation) is dict:
        return "tables" if arguments[1] is not str else "texts by name"
    if model_in(annotation):
        return "table"
    if arguments:
        return written(next(part for part in arguments if part is not type(None)))
    return {bool: "`true` or `false`", int: "whole number", str: "text", Path: "file name", float: "number"}.get(
        annotation, ""
    )


def default(field: FieldInfo) -> str:
    """A default as written in a file."""
    if field.is_required():
        return "**required**"
    value = field.default
    if field.default_factory is not None or value is None or value in ("", ()):
        return "–"
    if isinstance(value, bool | str):
        return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{json.dumps(value)}`"
    return "`" + str(list(value) if isinstance(value, tuple) else value) + "`"


def allowed(field: FieldInfo) -> str:
    """The allowed range, SI."""
    found = []
    for mark in field.metadata:
        marks = list(mark) if isinstance(mark, Interval) else [mark]
        for bound in marks:
            for kind, sign, attribute in ((Gt, ">", "gt"), (Ge, "≥", "ge"), (Lt, "<", "lt"), (Le, "≤", "le")):
                if isinstance(bound, kind):
                    found.append(f"{sign} {getattr(bound, attribute):g}")
            if isinstance(bound, MinLen) and bound.min_length:
                found.append("not empty")
            if isinstance(bound, MaxLen):
                found.append(f"at most {bound.max_length}")
    return ", ".join(found)


# --- commands --------------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Reference of the command line, from the program itself."""
    from typer.main import get_command

    program: Any = get_command(importlib.import_module("hilserver.cli").app)
    parts = ["# Commands", f"{program.help}", "`hilserver COMMAND --help` prints the same in the terminal."]
    for name, command in program.commands.items():
        if hasattr(command, "commands"):
            parts += [f"## `hilserver {name}`", command.help]
            for inner, subcommand in command.commands.items():
                parts += [f"### `hilserver {name} {inner}`", command_text(f"{name} {inner}", subcommand)]
        else:
            parts += [f"## `hilserver {name}`", command_text(name, command)]
    parts += [
        "## Exit codes",
        *EXIT_CODES,
        "## Environment",
        "The variables of a service are set by systemd.",
        table(("variable", "meaning"), ENVIRONMENT),
    ]
    targets = re.findall(r"^([a-z-]+):.*?## (.*)$", (ROOT / "Makefile").read_text(), re.M)
    parts += [
        "## make",
        "These targets work in a checkout; `.venv` is set up first where it is needed.",
    ]
    parts += [table(("target", "effect"), [(f"`make {target}`", cell(text)) for target, text in targets])]
    return "\n\n".join(parts) + "\n"


FINDINGS = {
    "bench": "with `--tolerance`, something takes longer than before",
    "calibrate": "nothing was stored, because you declined",
    "channels": "with `--once`, a device does not answer",
    "demo": "as `hilserver run`",
    "doctor": "the rig can run, but less well than it could; 2: it cannot run on this machine with these settings",
    "log": "`log check` found damage",
    "replay": "values differ by more than the tolerance",
    "run": "the loop died; after Ctrl-C or SIGTERM the exit code is 0",
    "safe": "the safe values could not be written to a device",
    "status": "the server is offline",
    "test": "an expectation was not met",
}
"""Command -> meaning of its exit code 1."""
EXIT_CODES = (
    "0: done. 2: the request cannot be carried out, and standard error states why: a wrong option, a configuration "
    "with errors, a command that the server refused, no server. 1: the command did its work and found something, or "
    "a request for confirmation was declined:",
    "\n".join(f"- `hilserver {command}`: {meaning}" for command, meaning in FINDINGS.items()),
)
ENVIRONMENT = (
    ("`HILSERVER_BROKER`", "the broker, for commands to a running server: like their option `--broker`"),
    ("`XDG_CACHE_HOME`", "compiled programs are stored in its folder `hilserver/`; default: `~/.cache`"),
    ("`XDG_RUNTIME_DIR`", "running servers register in its folder `hilserver/`, where commands find them"),
    ("`PATH`", "search path for mosquitto, besides `/usr/sbin`"),
    ("`NICEGUI_STORAGE_PATH`", "folder of the panel's framework; the panel stores nothing there"),
    ("`CACHE_DIRECTORY`", "of a service: compiled programs"),
    ("`LOGS_DIRECTORY`", "of a service: recordings, unless the rig file names a folder"),
    ("`RUNTIME_DIRECTORY`", "of a service: registration of running servers"),
    ("`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`", "of a service: notification of systemd"),
    ("`JOURNAL_STREAM`", "of a service: messages are printed without a time, because the journal adds it"),
)


def command_text(name: str, command: Any) -> str:
    """Usage, what it does, arguments and options of one command."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join(f"{p.name.upper()}..." if p.nargs == -1 else p.name.upper() for p in arguments)
    text = re.sub(r"(?m)^\s+", "", inspect.cleandoc(command.help or "").replace("\n\n", "\0")).replace("\0", "\n\n")
    rows = [(f"`{p.name.upper()}`", cell(p.help or ""), "**required**" if p.required else "–") for p in arguments]
    for option in command.params:
        if option not in arguments:
            names = ", ".join(f"`{word}`" for word in (*option.opts, *option.secondary_opts))
            none = option.default is None or option.default is False
            also = f"; or in `{option.envvar}`" if option.envvar else ""
            rows.append((names, cell(option.help or "") + also, "–" if none else f"`{option.default}`"))
    return "\n\n".join(
        [fence("text", f"hilserver {name} [OPTIONS] {usage}".strip()), text, table(("", "meaning", "default"), rows)]
    )


# --- MQTT -------------------------------------------------------------------------------------------------------------


def log_page() -> str:
    """Reference of the log's columns, from the records of the row."""
    intro = """\
[Recording and replay](../recording.md) explains how a log is made and read. These are the columns of every log; `*`
stands for a name of the rig file (a channel, a valve, …), `<k>` for a number of ticks. Values are in SI units, gauge
pressures; *SI* stands for the unit of the channel, *raw* for that of the device."""
    rows = [
        (f"`{cell(name)}`".replace("&lt;", "<"), found.unit, cell(found.description))
        for name, found in column_reference()
    ]
    parts = ["# Columns of the log", intro, table(("column", "unit", "meaning"), rows)]
    enums = (codes.Mode, codes.FaultCode, codes.ResultCode, codes.Saturation, Strategy)
    for meanings in enums:
        rows = [(str(int(m)), f"`{m.name}`", cell(getattr(m, "text", ""))) for m in meanings]
        name = meanings.__name__.removesuffix("Code").lower()
        parts += [f"## Values of `{name}`", table(("number", "name", "meaning"), rows)]
    return "\n\n".join(parts) + "\n"


def mqtt_page() -> str:
    """Reference of the MQTT protocol, from the schemas that the server itself publishes."""
    described = topics.describe("<rig>", "", channels={}, inputs={}, valves={})
    schemas = topics.schemas()
    intro = """\
[MQTT](../mqtt.md) explains how to use these messages, what is refused and who may do what. Every payload is one JSON
object in UTF-8; only `availability` is plain text. A number that is not finite is written as `null`. Readers ignore
keys that they do not know; commands with unknown keys are refused."""
    rows = [
        (f"`{cell(info.topic)}`".replace("&lt;", "<"), "yes" if info.retained else "no", cell(info.description))
        for info in described.topics.values()
    ]
    parts = ["# MQTT topics and messages", intro, "## Topics", table(("topic", "retained", "content"), rows)]
    for name in described.topics:
        if name in schemas:
            rows = [(key, kind, what) for key, kind, _, what in message_keys(schemas[name], schemas[name])]
            parts += [f"## `{name}`", schemas[name]["description"], table(("key", "value", "meaning"), rows)]
    head = ("key", "value", "default", "meaning")
    every = list(message_keys(commands.Command.model_json_schema(), {}))
    parts += ["## Commands", "Each command has its own topic and may contain these keys:", table(head, every)]
    for name, command in described.commands.items():
        schema = schemas[f"command/{name}"]
        own = [row for row in message_keys(schema, schema) if row not in every]
        parts += [f"### `command/{name}`", f"`{command.topic}`", schema["description"]]
        parts += [table(head, own) if own else "No keys of its own: `{}`."]
    login = ("`rig`", "text", "–", "", "name of the rig, if the login is for one rig only")
    parts += ["## The login file", docstring(BrokerAddress)]
    parts += ["A TOML file for `--broker` and `HILSERVER_BROKER`. Paths in it are relative to it."]
    parts += [table(COLUMNS, [login, *flat_fields(BrokerAddress)])]
    return "\n\n".join(parts) + "\n"


def message_keys(schema: Json, whole: Json, prefix: str = "") -> Iterator[Row]:
    """Key, kind of value, default and description of each key of a JSON Schema, those of inner objects after theirs."""
    for key, value in schema.get("properties", {}).items():
        inner, step = inner_object(value, whole)
        default = "–" if value.get("default") in (None, "", [], {}) else f"`{json.dumps(value['default'])}`"
        if key in schema.get("required", ()):
            default = "**required**"
        text = value.get("description") or (inner or {}).get("description", "")
        yield f"`{prefix}{key}`", json_kind(value), default, cell(text)
        if inner is not None:
            yield from message_keys(inner, whole, f"{prefix}{key}{step}")


def inner_object(value: Json, whole: Json) -> tuple[Json | None, str]:
    """The schema of the object that a key holds, where it has keys of its own; the step to it: one, by name, a list."""
    for part in value.get("anyOf", [value]):
        steps = ((part, "."), (part.get("additionalProperties"), ".<name>."), (part.get("items"), "[]."))
        for found, step in steps:
            if isinstance(found, dict) and "$ref" in found:
                return whole["$defs"][found["$ref"].rpartition("/")[2]], step
    return None, ""


def json_kind(value: Json) -> str:
    """The kind of a JSON value, in words."""
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(json_kind(part) for part in value["anyOf"]))
    if "enum" in value:
        return " or ".join(f'`"{word}"`' for word in value["enum"])
    kind = value.get("type")
    if kind == "array":
        return f"list: {json_kind(value['items'])}"
    if kind == "object":
        more = value.get("additionalProperties")
        return f"object, by name: {json_kind(more)}" if isinstance(more, dict) and more else "object"
    if value.get("$ref", "").endswith("/JsonValue"):
        return "any value"
    words = {"string": "text", "integer": "whole number", "boolean": "`true` or `false`", "null": "`null`"}
    ends = [f"{value[end]:g}" for end in ("minimum", "maximum") if end in value]
    if kind == "number":
        return "number" + (f", {' … '.join(ends)}" if ends else "")
    return words.get(str(kind), "object" if "$ref" in value else "any value")


def write_schemas() -> None:
    """Write the JSON Schema of every message into docs/schemas/; run this after a change of a message."""
    for name, text in topics.schema_files().items():
        file = DOCS / "schemas" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


# --- Markdown --------------------------------------------------------------------------------------------------------


def table(head: tuple[str, ...], rows: Sequence[Row]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(text: str) -> str:
    """Text escaped for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def fence(language: str, text: str) -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```"


if __name__ == "__main__":
    write_schemas()
