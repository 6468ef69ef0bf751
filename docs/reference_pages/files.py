"""The reference pages of the configuration files."""

from __future__ import annotations

from typing import get_origin

from hilserver.circuit.model import NodeStart, Solver
from hilserver.components.base import Fluid
from hilserver.driver import installed_drivers
from hilserver.mechanics import model as mechanics
from hilserver.rig.calibration import Calibration
from hilserver.rig.cycle import CycleInput, CycleSettings
from hilserver.rig.settings import RigSettings
from hilserver.sequences.model import Expectation, Fault, SequenceFile, StepTiming
from hilserver.studies.catalogue import CatalogueFile, CatalogueValve
from hilserver.studies.figures import REDUCTIONS, SPECIAL, FigureSettings
from hilserver.studies.measured import LogColumn, LogColumns
from hilserver.studies.settings import StudySettings
from hilserver.studies.studied_replay import ReplaySettings
from hilserver.studies.sweep_figures import SweepSettings
from reference_pages.docstrings import docstring
from reference_pages.fields import COLUMNS, datasheet_fields, field_table, flat_fields, model_in, written
from reference_pages.markdown import table


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
        ("`library`", "list of file names", "", "", "Python files with components: [write a component]"
         "(../write-a-component.md)"),
        ("`[parameters]`", "table", "", "", "values by name, used in the file as `\"=name\"`: "
         "[parameters](../datasheets.md#parameters)"),
        ("`[fluid]`", "table", "", "", "the oil"),
        ("`[solver]`", "table", "", "", "how the circuit is integrated"),
        ("`[components.<name>]`", "tables", "", "", "the components: [reference](components/index.md)"),
        ("`[nodes.<name>]`", "tables", "", "", "initial values of nodes"),
        ("`[mechanisms.<name>]`", "tables", "", "", "bodies and joints that move mechanical nodes"),
        ("`ports`", "list of texts", "", "", "only in the file of a sub-circuit: its nodes and signals that the "
         "circuit around it connects"),
    ]  # fmt: skip
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
        ("`parameters`", "values by name", "–", "", "values in place of those in the file's own `[parameters]`"),
        ("`nodes`", "texts by name", "–", "", "actuator → node that it moves; default: the name of the actuator"),
    ]  # fmt: skip
    part = [
        ("`file`", "file name", "–", "", "circuit file with `ports`, in the folder of the circuit file or below it"),
        ("`definition`", "tables", "–", "", "the contents of the file, instead of `file`"),
        ("`ports`", "texts by name", "**required**", "", "port of the sub-circuit → node or signal (or a number, for a "
         "signal); all of them"),
        ("`parameters`", "values by name", "–", "", "values in place of those in the file's own `[parameters]`"),
    ]  # fmt: skip
    about = """\
A [sub-circuit](../datasheets.md#sub-circuits) in the circuit. It has no `[fluid]` and `[solver]` of its own; its
component `valve` and its node `A` have the names `<name>.valve` and `<name>.A` in the circuit."""
    parts += ['## `[components.<name>]` with `type = "subcircuit"`', about, table(COLUMNS, part)]
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
        ("`[parameters]`", "table", "–", "", "values by name, used in the file as `\"=name\"`"),
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


def study_file_page() -> str:
    """Reference of the study file, of the catalogue of valves, and of the file of columns."""
    reductions = ", ".join(f"`{name}`" for name in REDUCTIONS)
    special = ", ".join(f"`{name}`" for name in SPECIAL)
    varied = """\
A tolerance by the key of a quantity, such as `"relief.opening_pressure"`, of a rig or a log
`"circuit.relief.opening_pressure"`: `"± 5 %"` of the value in the file, `"150 bar ± 5 bar"`,
`{ from = "25 Hz", to = "40 Hz", distribution = "normal" }` or `{ steps = ["25 Hz", "40 Hz"] }`; see
[tolerances](../studies.md#tolerances). Or a list to choose from, of [component
types](../studies.md#component-types) or, for `strategy`, of strategies of the bridge."""
    figures = f'The text `"max(supply.p)"`, or a table. Reductions: {reductions}; of '
    figures += f"rigs, test sequences and logs also {special}. See [figures](../studies.md#figures)."
    sizing = "Real valves to choose from, for [`hilserver size`](../size.md)."
    columns = "Which columns of a log are which quantities of the circuit, for [`hilserver fit`](../fit.md)."
    parts = ["# Study file", docstring(StudySettings), docstring_of_values(), field_table(flat_fields(StudySettings))]
    parts += ["## `replay`", docstring(ReplaySettings), field_table(datasheet_fields(ReplaySettings))]
    parts += ["## `[sweep]`", docstring(SweepSettings), field_table(datasheet_fields(SweepSettings))]
    parts += ["## `[vary]`", varied, "## `[figures]`", figures, field_table(datasheet_fields(FigureSettings))]
    parts += ["## Catalogue of valves", sizing, field_table(flat_fields(CatalogueFile))]
    parts += ["### `[valves.<name>]`", docstring(CatalogueValve), field_table(datasheet_fields(CatalogueValve))]
    parts += ["## File of columns", columns, field_table(flat_fields(LogColumns))]
    parts += ["### `[columns.<name>]`", docstring(LogColumn), field_table(datasheet_fields(LogColumn))]
    return "\n\n".join(parts) + "\n"


def docstring_of_values() -> str:
    """How values are written."""
    return (
        'Values with a unit are texts: `"40 l/min"`, `"35 bar"`, `"30 Hz"`. Any unit of the same kind is accepted. '
        "Pressures are gauge pressures. Limits in the column *allowed* are in SI units. Keys without a default must be "
        "given; unknown keys are errors."
    )
