"""``modelDescription.xml``: what an FMU says about itself, in FMI 2.0 and FMI 3.0."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from hilserver.fmu.variables import Causality, Variable
from hilserver.units import dimensional, shown_unit

FMI_2, FMI_3 = "2.0", "3.0"
VERSIONS = (FMI_2, FMI_3)
DECLARATION = b'<?xml version="1.0" encoding="UTF-8"?>\n'


@dataclass(frozen=True)
class Model:
    """What the description is about: ``identifier`` names the shared library; ``tick``: s; ``duration``: s."""

    name: str
    identifier: str
    token: str
    description: str
    tool: str
    tick: float
    duration: float
    variables: Sequence[Variable]


ATTRIBUTES = {
    Causality.TIME: ("independent", "continuous", None),
    Causality.INPUT: ("input", "continuous", None),
    Causality.OUTPUT: ("output", "continuous", "calculated"),
    Causality.TUNABLE: ("parameter", "tunable", "exact"),
    Causality.FIXED: ("parameter", "fixed", "exact"),
    Causality.CONSTANT: ("local", "constant", "exact"),
    Causality.DERIVATIVE: ("local", "continuous", "calculated"),
}
"""Causality, variability and kind of the initial value of a variable."""


def model_description(model: Model, version: str) -> bytes:
    """The file for this version of FMI."""
    newer = version == FMI_3
    about = {
        "fmiVersion": version,
        "modelName": model.name,
        "instantiationToken" if newer else "guid": model.token,
        "description": model.description,
        "generationTool": model.tool,
        "variableNamingConvention": "flat",
    }
    root = ET.Element("fmiModelDescription", about)
    state = "FMUState" if newer else "FMUstate"
    offered = ("canHandleVariableCommunicationStepSize", f"canGetAndSet{state}", f"canSerialize{state}")
    kinds = ("ModelExchange", "CoSimulation") if _derivatives(model.variables) else ("CoSimulation",)
    for kind in kinds:
        useful = offered if kind == "CoSimulation" else offered[1:]
        ET.SubElement(root, kind, {"modelIdentifier": model.identifier} | dict.fromkeys(useful, "true"))
    _units(root, model.variables)
    ET.SubElement(ET.SubElement(root, "LogCategories"), "Category", name="logStatusError", description="errors")
    experiment = {"startTime": "0", "stopTime": f"{model.duration:g}", "stepSize": repr(model.tick)}
    ET.SubElement(root, "DefaultExperiment", experiment)
    listed, structure = ET.SubElement(root, "ModelVariables"), ET.SubElement(root, "ModelStructure")
    (_list_3 if newer else _list_2)(model.variables, listed, structure)
    ET.indent(root)
    text: str = ET.tostring(root, encoding="unicode")
    return DECLARATION + text.encode() + b"\n"


def _derivatives(variables: Sequence[Variable]) -> dict[int, int]:
    """Place among the variables of each derivative, and of its state."""
    places = {variable.name: place for place, variable in enumerate(variables)}
    return {place: places[each.state] for place, each in enumerate(variables) if each.kind is Causality.DERIVATIVE}


def _list_2(variables: Sequence[Variable], listed: ET.Element, structure: ET.Element) -> None:
    """The variables in FMI 2.0, which counts them from 1."""
    derivatives = {place: {"derivative": str(state + 1)} for place, state in _derivatives(variables).items()}
    for place, variable in enumerate(variables):
        one = ET.SubElement(listed, "ScalarVariable", _attributes(variable, place))
        ET.SubElement(one, "Real", _unit(variable) | _values(variable) | derivatives.get(place, {}))
    outputs = [place for place, each in enumerate(variables) if each.kind is Causality.OUTPUT]
    parts = {"Outputs": outputs, "Derivatives": [*derivatives], "InitialUnknowns": [*outputs, *derivatives]}
    for part, places in parts.items():
        entries = ET.SubElement(structure, part) if places else structure
        for place in places:
            ET.SubElement(entries, "Unknown", index=str(place + 1))


def _list_3(variables: Sequence[Variable], listed: ET.Element, structure: ET.Element) -> None:
    """The variables in FMI 3.0, where their value references stand for them."""
    derivatives = {place: {"derivative": str(state)} for place, state in _derivatives(variables).items()}
    for place, variable in enumerate(variables):
        given = _attributes(variable, place) | _unit(variable) | _values(variable) | derivatives.get(place, {})
        ET.SubElement(listed, "Float64", given)
    outputs = [place for place, each in enumerate(variables) if each.kind is Causality.OUTPUT]
    unknown = [*outputs, *derivatives]
    for part, places in {
        "Output": outputs,
        "ContinuousStateDerivative": derivatives,
        "InitialUnknown": unknown,
    }.items():
        for place in places:
            ET.SubElement(structure, part, valueReference=str(place))


def _attributes(variable: Variable, reference: int) -> dict[str, str]:
    causality, variability, initial = ATTRIBUTES[variable.kind]
    found = {
        "name": variable.name,
        "valueReference": str(reference),
        "description": variable.description,
        "causality": causality,
        "variability": variability,
    }
    return found if initial is None else found | {"initial": initial}


def _values(variable: Variable) -> dict[str, str]:
    """Start value and range; a calculated variable has none."""
    if variable.kind in (Causality.TIME, Causality.OUTPUT, Causality.DERIVATIVE):
        return {}
    limits = {"min": variable.lower, "max": variable.upper}
    return {"start": repr(variable.start)} | {name: repr(x) for name, x in limits.items() if abs(x) < inf}


def _unit(variable: Variable) -> dict[str, str]:
    if not variable.unit:
        return {}
    shown, _ = shown_unit(variable.unit)
    return {"unit": variable.unit} | ({"displayUnit": shown} if shown != variable.unit else {})


_BASE_UNITS = ("kg", "m", "s", "A", "K")


def _units(root: ET.Element, variables: Iterable[Variable]) -> None:
    """The SI units that occur, as products of base units, and those in which they are shown."""
    definitions = ET.SubElement(root, "UnitDefinitions")
    for unit in sorted({variable.unit for variable in variables if variable.unit}):
        one = ET.SubElement(definitions, "Unit", name=unit)
        if (base := base_units(unit)) is not None:
            ET.SubElement(one, "BaseUnit", {name: str(power) for name, power in base.items()})
        shown, factor = shown_unit(unit)
        if shown != unit:
            ET.SubElement(one, "DisplayUnit", name=shown, factor=repr(factor))


def base_units(unit: str) -> Mapping[str, int] | None:
    """The power of each base unit; None where one is not a whole number, which FMI does not know.

    >>> base_units("Pa"), base_units("rad"), base_units("m^3/(s*sqrt(Pa))")
    ({'kg': 1, 'm': -1, 's': -2}, {'rad': 1}, None)
    """
    if unit in ("rad", "rad/s"):
        return {"rad": 1} if unit == "rad" else {"rad": 1, "s": -1}
    try:
        _, powers = dimensional(f"1 {unit}")
    except ValueError:
        return None
    if not all(float(power).is_integer() for power in powers.values()):
        return None
    return {name: int(powers[name]) for name in _BASE_UNITS if powers.get(name)}
