"""The questions of ``hilserver new``: what must be known of a rig, each with a default and a rule for its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel, Field, StrictInt, ValidationError, create_model

from hilserver.commissioning.usual_values import (
    HIGHEST_F3,
    usual_damping,
    usual_mass,
    usual_pressure_limit,
    usual_pressure_range,
    usual_rod,
    usual_virtual_flow,
)
from hilserver.components.base import Datasheet
from hilserver.components.shared.edges import Leakage, NominalFlow
from hilserver.driver import SlowDriverConfig, driver_named
from hilserver.errors import ConfigurationError, Problem, did_you_mean, problems_of, shown
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.settings import RigSettings, SimulationSettings, ValveSettings
from hilserver.units import Flow, Length, Number, Pressure

Catalogue = Mapping[str, Mapping[str, str]]
"""Valves by name: answers to the questions about a valve, as far as the datasheet states them, and their ``source``."""
OWN = "own"
ANSWER = "answer"
"""Name of the only field of the model that judges an answer."""
TABLE = "answers"
"""The table of a file of answers."""
ANSWERED, ASSUMED, FOLDER = "answered", "assumed", "name of the folder"
"""Origins of answers: by the user, by default, and from the folder to be created."""
NONE = "none"
"""The answer if there is no such thing."""
DRIVERS = {
    "simulated": "no hardware yet: machine and card are simulated",
    "ni": "a National Instruments card (NI-DAQmx)",
    "modbus": "a coupler or controller on Modbus TCP",
}
"""Drivers with questions of their own, and what they are for."""
VALVES = {
    "one": "one servo valve, whose ports A and B are both connected to the cylinder",
    "two": "two servo valves, one for each port of the cylinder",
}
SIGNALS = {"voltage": "0 to 10 V, flow -10 to 10 V", "current": "4 to 20 mA at a current input"}
COMMANDS = {
    "bipolar": "bipolar, 0 at null: -10 to 10 V, or -10 to 10 mA from an amplifier driven by such an output",
    "live_zero": "4 to 20 mA, 12 mA at null",
}
"""Command signals of servo valves."""
CURRENT = (0.004, 0.020)
"""Live zero: output at command -1 and +1, A."""
PER = {"edge": "across one edge, P to A", "loop": "across both, P to A and B to T, with A connected to B"}


class OwnAnswers(Datasheet):
    """Answers that are not settings themselves: ranges from 0 to them, and outputs from minus to plus of them."""

    pressure_range: Pressure = Field(gt=0)
    tank_range: Pressure = Field(gt=0)
    pressure_limit: Pressure = Field(gt=0)
    flow_range: Flow = Field(gt=0)
    position_range: Length = Field(gt=0)
    virtual_flow: Flow = Field(gt=0)
    virtual_pressure: Pressure = Field(gt=0)
    volts: Number = Field(gt=0, le=10)
    counts: StrictInt = Field(gt=0, le=32767)
    register_: StrictInt = Field(ge=0, le=65535)


@dataclass
class Answers:
    """Answers by the keys of their questions, as texts, with the origin of each.

    ``catalogue``: the valves to choose from. ``value`` gives an answer as its rule does: SI, a number, or a text.
    """

    catalogue: Catalogue
    texts: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """By key, the file that contains the answer."""

    def __getitem__(self, key: str) -> str:
        return self.texts[key]

    def value(self, key: str) -> Any:
        """The value of an answer. Raises ConfigurationError where it is not allowed."""
        return QUESTIONS[key].read(self.texts[key], self)

    def put(self, key: str, text: str, origin: str) -> None:
        """Take an answer that its rule allows. Raises ConfigurationError."""
        QUESTIONS[key].read(text, self)
        self.texts[key], self.origins[key] = text, origin

    def settle(self, question: Question, given: Answers) -> bool:
        """Take the answer that is given, or what the catalogue states; whether there is one. Raises
        ConfigurationError.
        """
        key, valve = question.key, self.texts.get("servo_valve", OWN)
        if key in given.texts:
            self.put(key, given[key], given.origins[key])
        elif (stated := self.catalogue.get(valve, {}).get(key)) is not None:
            self.put(key, stated, f"datasheet of {valve}")
        return key in self.texts

    @property
    def channels(self) -> tuple[str, ...]:
        """The measured channels."""
        return ("p_A", "p_B", "p_S", "p_T", "x", *(() if self.texts.get("flow_range") == NONE else ("Q_A",)))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs of the servo valves."""
        return ("valve",) if self["servo_valves"] == "one" else ("valve_A", "valve_B")


Rule = Callable[[str, Answers], Any]


@dataclass(frozen=True)
class Question:
    """One question. ``read``: the value of an answer; raises ConfigurationError, ValidationError or ValueError."""

    key: str
    text: str
    default: Callable[[Answers], str]
    rule: Rule
    when: Callable[[Answers], bool] = lambda _: True
    choices: Callable[[Answers], Mapping[str, str]] = lambda _: {}

    def read(self, text: str, answers: Answers) -> Any:
        """The value of an answer. Raises ConfigurationError with the reason where it is not allowed."""
        try:
            return self.rule(text, answers)
        except ValidationError as error:
            found = problems_of(error, {self.key: text, ANSWER: text})
            raise ConfigurationError(Problem(each.message, self.key) for each in found) from None
        except ValueError as error:
            raise ConfigurationError([Problem(str(error), self.key)]) from None


def open_questions(answers: Answers) -> Iterator[Question]:
    """The questions in their order, without those that earlier answers make unnecessary.

    Whoever takes one answers it (`Answers.put`) before the next.
    """
    for question in QUESTIONS.values():
        if question.when(answers):
            yield question


def completed(answers: Answers) -> Answers:
    """The answers with the default of every other question. Raises ConfigurationError."""
    found = Answers(answers.catalogue)
    try:
        for question in open_questions(found):
            if not found.settle(question, answers):
                found.put(question.key, question.default(found), ASSUMED)
        if needless := answers.texts.keys() - found.texts.keys():
            raise ConfigurationError(Problem("is not asked here, given the other answers.", key) for key in needless)
    except ConfigurationError as error:
        raise ConfigurationError(_in_file(each, answers.files) for each in error.problems) from None
    return found


def _in_file(problem: Problem, files: Mapping[str, str]) -> Problem:
    """The problem of an answer, with its place in the file that contains it."""
    if problem.key not in files:
        return problem
    return replace(problem, key=f"{TABLE}.{problem.key}", file=files[problem.key])


def given_answers(given: Mapping[str, Any], catalogue: Catalogue, file: str = "") -> Answers:
    """Answers of a file or of options, not yet judged. Raises ConfigurationError for unknown keys and tables."""
    files = dict.fromkeys(given, file) if file else {}
    problems = [
        Problem(f"is not a question.{did_you_mean(key, QUESTIONS)}", key) for key in given if key not in QUESTIONS
    ]
    problems += [
        Problem(f"{shown(value)} is neither a text nor a number.", key)
        for key, value in given.items()
        if isinstance(value, bool) or not isinstance(value, str | int | float)
    ]
    if problems:
        raise ConfigurationError(_in_file(each, files) for each in problems)
    texts = {key: str(value) for key, value in given.items()}
    return Answers(catalogue, texts, dict.fromkeys(texts, ANSWERED), files)


# --- rules -----------------------------------------------------------------------------------------------------------


def _of(model: type[BaseModel], key: str, number: bool = False) -> Rule:
    """The rule of a setting."""

    def rule(text: str, answers: Answers) -> Any:
        info = model.model_fields[key]
        field: Any = (info.annotation, info)
        alone: Any = create_model("Answer", __base__=Datasheet, **{ANSWER: field})
        return alone.model_validate({ANSWER: _number(text) if number else text}).model_dump()[ANSWER]

    return rule


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{shown(text)} is not a number.") from None


def _one_of(text: str, answers: Answers, choices: Mapping[str, str]) -> str:
    if text not in choices:
        raise ValueError(f"{shown(text)} is not possible here.{did_you_mean(text, choices)}")
    return text


def _choice(choices: Mapping[str, str]) -> dict[str, Any]:
    return {"rule": lambda text, answers: _one_of(text, answers, choices), "choices": lambda answers: choices}


def _valves(answers: Answers) -> dict[str, str]:
    return {OWN: "your own valve, with the values of its datasheet"} | {
        name: ", ".join(f"{key} {text}" for key, text in valve.items() if key != "source")
        for name, valve in answers.catalogue.items()
    }


def _servo_valve(text: str, answers: Answers) -> str:
    return _one_of(text, answers, _valves(answers))


def _or_none(rule: Rule) -> Rule:
    return lambda text, answers: None if text == NONE else rule(text, answers)


def _f3(text: str, answers: Answers) -> float:
    f3, f90 = float(_of(ValveSettings, "f90")(text, answers)), answers.value("f90")
    if not f3 < HIGHEST_F3 * f90:
        raise ValueError(
            f"{shown(text)} is too far above f90 ({answers['f90']}): no second-order spool has both frequencies."
        )
    return f3


def _range_of(key: str, covers: str) -> Rule:
    """The rule of a sensor's range: it must cover another answer."""

    def rule(text: str, answers: Answers) -> float:
        value = float(_of(OwnAnswers, key)(text, answers))
        if value < answers.value(covers):
            raise ValueError(f"{shown(text)} does not cover {covers} ({answers[covers]}).")
        return value

    return rule


def _pressure_limit(text: str, answers: Answers) -> float:
    value = float(_of(OwnAnswers, "pressure_limit")(text, answers))
    if value > answers.value("pressure_range"):
        raise ValueError(
            f"{shown(text)} is beyond the range of the sensors ({answers['pressure_range']}): it would never trip."
        )
    return value


def _device(text: str, answers: Answers) -> str:
    if "/" in text:
        raise ValueError(f"{shown(text)}: name only the card, without a terminal.")
    return str(_of(driver_named(answers["driver"]).Config, "device")(text, answers))


def _host(text: str, answers: Answers) -> str:
    if text.count(":") == 1:
        raise ValueError(f"{shown(text)}: omit the port. If it is not 502, set tcp.port in rig.toml afterwards.")
    config: Any = driver_named("modbus").Config.model_validate({"tcp": {"host": text}})
    return str(config.tcp.host)


def _place(key: str, group: Literal["inputs", "outputs"]) -> Rule:
    """The rule of a terminal of an NI card, or of a register."""

    def rule(text: str, answers: Answers) -> str | int:
        if answers["driver"] == "modbus":
            register = int(_of(OwnAnswers, "register_", number=True)(text, answers))
            others = (key for key in CONNECTIONS if key.startswith("valve") == (group == "outputs"))
            for other in (f"at_{key}" for key in others):
                if other in answers.texts and other != key and _number(answers[other]) == register:
                    raise ValueError(f"register {register} is already used by {other}.")
            return register
        config = driver_named("ni").Config
        config.model_validate({"device": answers["device"], group: {"it": {"channel": text}}})
        if not text.lower().rpartition("/")[2].startswith("ai" if group == "inputs" else "ao"):
            raise ValueError(f"{shown(text)} is not an analog {group[:-1]}: ai0, ai1 … are inputs, ao0, ao1 … outputs.")
        return text

    return rule


def _full(text: str, answers: Answers) -> float:
    return float(_of(OwnAnswers, "volts" if answers["driver"] == "ni" else "counts", number=True)(text, answers))


# --- defaults --------------------------------------------------------------------------------------------------------


def _always(text: str) -> Callable[[Answers], str]:
    return lambda answers: text


def _by_driver(ni: str, modbus: str) -> Callable[[Answers], str]:
    return lambda answers: ni if answers["driver"] == "ni" else modbus


def _driven_by(*drivers: str) -> Callable[[Answers], bool]:
    return lambda answers: answers["driver"] in drivers


# --- the questions ---------------------------------------------------------------------------------------------------


def _about_the_valve() -> Iterator[Question]:
    yield Question("name", "Name of the rig: letters, digits, - and _.", _always("rig"), _of(RigSettings, "name"))
    text = "One servo valve for both ports of the cylinder, or one for each? A single one can't control both pressures."
    yield Question("servo_valves", text, _always("one"), **_choice(VALVES))
    text = "Which servo valve is it? Compare the values of a catalogue with your valve's datasheet."
    yield Question("servo_valve", text, _always(OWN), _servo_valve, choices=_valves)
    text = "Nominal flow at full command, in l/min."
    yield Question("flow", text, _always("60 l/min"), _of(NominalFlow, "flow"))
    text = "Pressure drop at which the datasheet states this flow, in bar: often 35 or 5 per edge, 70 or 10 per loop."
    yield Question("drop", text, _always("35 bar"), _of(NominalFlow, "drop"))
    text = "What this drop is measured over."
    yield Question("per", text, _always("edge"), **_choice(PER))
    text = "Frequency at which the spool lags by 90°, in Hz (Bode plot of the datasheet)."
    yield Question("f90", text, _always("80 Hz"), _of(ValveSettings, "f90"))
    text = "Frequency at which the spool's amplitude has fallen by 3 dB, in Hz; none if unknown."
    yield Question("f3", text, _always(NONE), _or_none(_f3), lambda answers: answers["servo_valve"] == OWN)
    text = "Damping ratio of the spool, without a unit: 0.6 to 1 for servo valves; the default fits f3, if known."
    yield Question("damping", text, usual_damping, _of(ValveSettings, "damping", number=True))
    text = "Leakage of the whole valve from P to T at null, in l/min; 0 l/min if unknown."
    yield Question("leakage", text, _always("1.2 l/min"), _of(Leakage, "flow"))
    text = "Pressure drop from P to T at which the datasheet states the leakage, in bar."
    yield Question("leakage_drop", text, _always("140 bar"), _of(Leakage, "drop"))
    text = "Overlap: spool travel before an edge opens, as a fraction of the full stroke; usually 0 for servo valves."
    yield Question("overlap", text, _always("0"), _of(ValveSettings, "overlap", number=True))


def _about_the_machine() -> Iterator[Question]:
    yield Question("bore", "Diameter of the cylinder's piston, in mm.", _always("63 mm"), _of(CylinderSettings, "bore"))
    text = "Diameter of the piston rod, in mm."
    yield Question("rod_diameter", text, usual_rod, _of(CylinderSettings, "rod_diameter"))
    yield Question("stroke", "Stroke of the cylinder, in mm.", _always("1 m"), _of(CylinderSettings, "stroke"))
    text = "Dead volume on each side, in litres: hoses, manifold, and the cylinder at its end stop."
    yield Question("dead_volume", text, _always("0.5 l"), _of(CylinderSettings, "dead_volume_A"))
    text = "Real supply pressure at the servo valve, in bar."
    yield Question("supply_pressure", text, _always("140 bar"), _of(SimulationSettings, "supply_pressure"))
    text = "Moving mass including the load, in kg; the rod lifts it vertically."
    yield Question("mass", text, usual_mass, _of(CylinderSettings, "mass"))


def _about_the_virtual() -> Iterator[Question]:
    text = "Nominal flow of the virtual 4/3 valve at 35 bar per edge, in l/min: less than that of the real valve."
    yield Question("virtual_flow", text, usual_virtual_flow, _of(OwnAnswers, "virtual_flow"))
    text = "Pressure of the virtual pump, in bar. With one valve it should equal the real supply."
    yield Question("virtual_pressure", text, lambda a: a["supply_pressure"], _of(OwnAnswers, "virtual_pressure"))


def _about_the_sensors() -> Iterator[Question]:
    text = "Range of the pressure sensors at A, B and the supply, in bar, from 0 to this value."
    rule = _range_of("pressure_range", "supply_pressure")
    yield Question("pressure_range", text, usual_pressure_range, rule)
    text = "Range of the pressure sensor at the tank port, in bar, from 0 to this value."
    yield Question("tank_range", text, lambda a: a["pressure_range"], _of(OwnAnswers, "tank_range"))
    text = "Pressure at A or B at which the rig trips, in bar; at most what cylinder and hoses withstand."
    yield Question("pressure_limit", text, usual_pressure_limit, _pressure_limit)
    text = "Range of the position sensor, in mm, from 0 (retracted) to this value."
    yield Question("position_range", text, lambda a: a["stroke"], _range_of("position_range", "stroke"))
    text = "Range of the flow sensor at port A, in l/min, from minus to plus this value; none if there is none."
    yield Question("flow_range", text, _always(NONE), _or_none(_of(OwnAnswers, "flow_range")))


CONNECTIONS = {
    "p_A": ("pressure sensor at port A", 0),
    "p_B": ("pressure sensor at port B", 1),
    "p_S": ("supply pressure sensor", 2),
    "p_T": ("tank pressure sensor", 3),
    "x": ("position sensor", 4),
    "Q_A": ("flow sensor at port A", 5),
    "valve": ("servo valve", 0),
    "valve_A": ("servo valve at port A", 0),
    "valve_B": ("servo valve at port B", 1),
}
"""What can be connected, and the number of the terminal or register by default."""


def _about_the_card() -> Iterator[Question]:
    text = "What the sensors are connected to. For any other card, answer simulated and replace [devices] afterwards."
    yield Question("driver", text, _always("simulated"), **_choice(DRIVERS))
    text = "Name of the card in the NI software; hilserver channels lists the cards found."
    yield Question("device", text, _always("Dev1"), _device, _driven_by("ni"))
    yield Question(
        "host", "Address of the coupler on the network.", _always("192.168.0.20"), _host, _driven_by("modbus")
    )
    text = "How often the coupler is read and written, in Hz; each read or write takes about 1 ms."
    yield Question("rate", text, _always("200 Hz"), _of(SlowDriverConfig, "rate"), _driven_by("modbus"))
    text = "Output signal of the sensors; if one differs, change its lines in rig.toml afterwards."
    yield Question("signal", text, _always("voltage"), when=_driven_by("ni"), **_choice(SIGNALS))
    text = "Register value of a sensor at the upper end of its range, a whole number; zero is 0."
    rule = _of(OwnAnswers, "counts", number=True)
    yield Question("counts", text, _always("27648"), rule, _driven_by("modbus"))
    for key, (what, number) in CONNECTIONS.items():
        is_output = key.startswith("valve")
        terminal, register = (f"ao{number}", "holding") if is_output else (f"ai{number}", "input")
        text = f"Where the {what} is connected: terminal of the card, or {register} register, from 0, on Modbus."
        rule = _place(f"at_{key}", "outputs" if is_output else "inputs")
        yield Question(f"at_{key}", text, _by_driver(terminal, str(number)), rule, _connected(key))
    text = "Command signal of the servo valve at the output of the card or coupler."
    yield Question("valve_signal", text, _always("bipolar"), when=_driven_by("ni", "modbus"), **_choice(COMMANDS))
    text = "Output at full command, in V or as a register value; the range begins at minus this, for 4 to 20 mA at 0."
    yield Question("valve_full", text, _by_driver("10", "27648"), _full, _has_scaled_output)


def _has_scaled_output(answers: Answers) -> bool:
    """Whether the output at full command has to be known."""
    return answers["driver"] != "simulated" and not has_current_output(answers)


def has_current_output(answers: Answers) -> bool:
    """Whether the card itself gives the valve a current with a live zero, in A."""
    return answers["driver"] == "ni" and answers["valve_signal"] == "live_zero"


def _connected(key: str) -> Callable[[Answers], bool]:
    return lambda a: a["driver"] != "simulated" and key in (*a.channels, *a.outputs)


QUESTIONS: Mapping[str, Question] = {
    question.key: question
    for part in (_about_the_valve, _about_the_machine, _about_the_virtual, _about_the_sensors, _about_the_card)
    for question in part()
}
"""All questions by their keys, in their order."""
