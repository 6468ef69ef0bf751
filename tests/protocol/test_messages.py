"""The messages of the protocol: what is read, what is refused and why, what is written."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from command_payloads import MALFORMED, VALID
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from message_schemas import SCHEMAS, flaws

from hilserver.protocol.commands import COMMANDS, Command, Jog, Switch
from hilserver.protocol.description import describe, schema_files, schemas
from hilserver.protocol.driven import Utilisation, ValveDescription
from hilserver.protocol.message import Published
from hilserver.protocol.parsing import PayloadError, leading_id, read_command
from hilserver.protocol.published import (
    Answer,
    ChannelDescription,
    DelayMargin,
    InputDescription,
    MarginStatus,
    ServerState,
    SpeedMargin,
    Telemetry,
    refusal,
)
from hilserver.protocol.topics import TOPICS, Topics


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_read(name: str) -> None:
    for values in VALID[name]:
        command = read_command(name, json.dumps({"id": "7", "expires": 2e9, **values}).encode())
        assert type(command) is COMMANDS[name]
        assert command.name == name
        assert command.id == "7"
        assert command.expires == 2e9
        assert {key: getattr(command, key) for key in values} == values


def test_there_are_many_malformed_payloads() -> None:
    assert len(MALFORMED) >= 150


@pytest.mark.parametrize(("name", "payload", "expected"), MALFORMED, ids=[str(i) for i in range(len(MALFORMED))])
def test_malformed_payload_is_refused_with_a_reason(name: str, payload: bytes, expected: str) -> None:
    with pytest.raises(PayloadError) as refused:
        read_command(name, payload)
    reason = str(refused.value)
    assert expected in reason
    assert 10 < len(reason) < 1000
    assert "\n" not in reason
    assert "Input should" not in reason, "pydantic's words are not for hydraulics engineers"
    refusal(name, refused.value.id, refused.value.problems, 0.0).payload()  # can be written as JSON


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(PayloadError) as refused:
        read_command("jog", b'{"id": "7", "valve": 3, "comand": 0.1}')
    assert refused.value.id == "7"
    assert [problem.partition(":")[0] for problem in refused.value.problems] == ["valve", "command", "comand"]


def test_problems_are_bounded() -> None:
    payload = b'{"component": "a", "set": {"a": [' + b"NaN," * 12_000 + b"1]}}"
    with pytest.raises(PayloadError) as refused:
        read_command("switch", payload)
    assert len(refused.value.problems) == 21
    assert refused.value.problems[-1] == "and 11980 more problems."


@given(st.sampled_from(sorted(COMMANDS)), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(name: str, payload: bytes) -> None:
    try:
        command = read_command(name, payload)
    except PayloadError as refused:
        refusal(name, refused.id, refused.problems, 0.0).payload()
    else:
        assert type(command) is COMMANDS[name]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_keys = sorted({key for model in COMMANDS.values() for key in model.model_fields})


@given(st.sampled_from(sorted(COMMANDS)), st.dictionaries(st.sampled_from(_keys), _json, max_size=4))
def test_accepted_commands_contain_finite_numbers_only(name: str, values: dict[str, Any]) -> None:
    try:
        command = read_command(name, json.dumps(values).encode())
    except PayloadError as refused:
        refusal(name, refused.id, refused.problems, 0.0).payload()
    else:
        json.dumps(command.model_dump(), allow_nan=False)


@pytest.mark.parametrize(
    ("payload", "id"),
    [
        (b'{"id": "7", "x', "7"),
        (b' { "id" : "seven" ', "seven"),
        (b'{"x": 1, "id": "7"', None),
        (b'{"id": 7', None),
        (b'{"id": "\xff"', None),
        (b'{"id": "' + b"x" * 65 + b'"', None),
        (b'{"id": "a\x07b"', None),
    ],
)
def test_id_of_a_payload_that_is_not_read(payload: bytes, id: str | None) -> None:
    assert leading_id(payload) == id


def test_a_command_makes_its_answer() -> None:
    command = Jog(id="7", valve="main", command=0.1)
    done = command.answer(time=2.0, tick=5, result={"command": 0.1})
    assert json.loads(done.payload()) == {
        "id": "7",
        "command": "jog",
        "ok": True,
        "reason": None,
        "problems": [],
        "result": {"command": 0.1},
        "tick": 5,
        "time": 2.0,
        "duplicate": False,
    }
    one = command.answer(time=2.0, problems=["the rig is not armed."])
    assert (one.ok, one.reason) == (False, "the rig is not armed.")
    two = command.answer(time=2.0, problems=["a.", "b."])
    assert (two.reason, two.problems) == ("2 problems: a.; b.", ("a.", "b."))


def test_numbers_that_are_not_finite_are_written_as_null() -> None:
    telemetry = Telemetry(t0=1.0, dt=0.01, channels={"p_A": (1e5, math.nan, math.inf)})
    assert json.loads(telemetry.payload())["channels"] == {"p_A": [1e5, None, None]}
    state = ServerState(mode="SAFE", tick=0, time=0.0, actual={"p_A": math.nan}, timing={"late": -math.inf})
    assert json.loads(state.payload())["actual"] == {"p_A": None}
    assert json.loads(state.payload())["timing"] == {"late": None}
    answer = Answer(id=None, command="arm", ok=True, time=0.0, result={"values": [math.nan]})
    assert json.loads(answer.payload())["result"] == {"values": [None]}


def test_a_reader_ignores_unknown_keys() -> None:
    assert ServerState.model_validate_json('{"mode": "SAFE", "tick": 1, "time": 2.0, "new": 3}').tick == 1


RENAMED = [
    (ServerState, "utilisation", "demand", {"main": Utilisation(flow_to_port=0.5)}),
    (SpeedMargin, "required", "asked", 2.0),
    (DelayMargin, "delay", "late", 0.001),
    (DelayMargin, "delay_with_tolerance", "late_off", 0.002),
    (MarginStatus, "calculated", "examined", True),
]


@pytest.mark.parametrize(("model", "key", "former", "value"), RENAMED)
def test_a_renamed_key_has_its_former_name_too(model: type[Published], key: str, former: str, value: Any) -> None:
    """Older clients read the former name, and present clients read it from older servers."""
    minimal: dict[type[Published], dict[str, Any]] = {
        ServerState: {"mode": "SAFE", "tick": 1, "time": 1.0},
        SpeedMargin: {"valve": "main", "required": 1.0, "spool": 1.0, "slew": 1.0, "margin": None},
        DelayMargin: {
            "strategy": "transform", "delay": 1.0, "delay_with_tolerance": 1.0, "critical": None, "frequency": 1.0,
            "margin": None, "at": None,
        },
        MarginStatus: {"calculated": False, "version": 1},
    }  # fmt: skip
    message = model.model_validate({**minimal[model], key: value})
    written = json.loads(message.payload())
    assert written[former] == written[key]
    assert model.model_validate_json(message.payload()) == message
    del written[key]
    assert model.model_validate(written) == message
    assert model.model_json_schema(mode="serialization")["properties"][former]["deprecated"] is True


def test_schema_of_every_message() -> None:
    found = schemas()
    published = {"description", "state", "circuit", "types", "margins", "telemetry", "event", "events", "answer"}
    assert set(found) == {f"command/{name}" for name in (*COMMANDS, "heartbeat")} | published
    for schema in found.values():
        json.dumps(schema, allow_nan=False)
        assert schema["type"] == "object"
        assert schema["description"]
    for name, model in COMMANDS.items():
        schema = found[f"command/{name}"]
        assert schema["additionalProperties"] is False
        assert set(schema["properties"]) == set(model.model_fields)
    assert found["command/jog"]["properties"]["command"]["minimum"] == -1
    assert found["command/switch"]["oneOf"] == [{"required": ["set"]}, {"required": ["type"]}]
    assert set(found["answer"]["properties"]) == set(Answer.model_fields)


def test_schema_files_are_those_of_the_messages() -> None:
    """A change of a message shows as a change of its file: write them anew with ``python docs/generate.py``."""
    folder = Path(__file__).parents[2] / "docs" / "schemas"
    kept = {str(file.relative_to(folder)): file.read_text(encoding="utf-8") for file in folder.rglob("*.json")}
    assert kept == schema_files()


def test_schemas_are_valid_and_accept_what_the_server_accepts() -> None:
    for name, schema in SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$schema"], name
    for name, payloads in VALID.items():
        for payload in payloads:
            assert flaws(f"command/{name}", {"id": "1", "expires": 1.8e9, **payload}) == []


@pytest.mark.parametrize(
    ("topic", "message", "where"),
    [
        ("command/jog", {"valve": "main", "command": 1.5}, "$.command"),
        ("command/jog", {"valve": "main"}, "$"),
        ("command/arm", {"now": True}, "$"),
        ("command/arm", {"id": ""}, "$.id"),
        ("command/set_input", {"input": "joystick", "value": "0.5"}, "$.value"),
        ("command/switch", {"component": "relief", "set": {"f45": 1}, "type": "fixed_pump"}, "$"),
        ("command/cycle", {"action": "pause"}, "$.action"),
        ("state", {"mode": "SAFE", "time": 1.0}, "$"),
        ("state", {"mode": "READY", "tick": 1, "time": 1.0}, "$.mode"),
        ("state", {"mode": "SAFE", "tick": 1, "time": 1.0, "strategies": {"main": 3}}, "$.strategies.main"),
        ("answer", {"id": None, "command": "arm", "ok": "yes", "time": 0.0}, "$.ok"),
    ],
)
def test_schemas_reject_invalid_messages(topic: str, message: dict[str, Any], where: str) -> None:
    assert any(text.startswith(f"{topic}: {where}: ") for text in flaws(topic, message)), flaws(topic, message)


def test_description_lists_commands_and_topics() -> None:
    description = describe(
        "lab",
        "1.2.3",
        channels={"p_A": ChannelDescription(unit="bar", kind="measured", description="pressure at port A")},
        inputs={"joystick": InputDescription(unit="", minimum=-1.0, maximum=1.0)},
        valves={"main": ValveDescription(strategies=("transform", "pid", "manual"), jog_limit=0.1)},
    )
    written = json.loads(description.payload())
    assert set(written["commands"]) == set(COMMANDS)
    assert written["commands"]["jog"]["topic"] == "hil/lab/command/jog"
    assert written["commands"]["jog"]["payload_schema"] == schemas()["command/jog"]
    assert written["commands"]["arm"]["description"].startswith("Allow the server to drive the real valve")
    retained = {name for name, topic in written["topics"].items() if topic["retained"]}
    assert retained == {"availability", "description", "state", "circuit", "types", "margins", "events"}
    assert written["topics"]["answer"]["topic"] == "hil/lab/answer"


def test_accounts_of_the_example_may_read_and_publish_every_topic() -> None:
    rules = (Path(__file__).parents[2] / "systemd/mosquitto/acl").read_text().splitlines()
    assert {rule for rule in rules if rule.startswith("pattern")} == {f"pattern read hil/+/{name}" for name in TOPICS}
    published = {rule for rule in rules if rule.startswith("topic write hil/lab")}
    assert published == {f"topic write hil/lab/{name}" for name in TOPICS}


@pytest.mark.parametrize("rig", ["", "a/b", "a+", "#", "a\x00b"])
def test_rig_names_that_are_not_allowed_in_a_topic_are_refused(rig: str) -> None:
    with pytest.raises(ValueError, match="can't be a rig's name"):
        Topics(rig)


def test_messages_can_not_be_changed() -> None:
    command: Command | Published
    for command, key in (
        (Switch(component="relief", set={"a": 1}), "component"),
        (refusal("arm", None, ["no."], 0.0), "ok"),
    ):
        with pytest.raises(ValueError, match="frozen"):
            setattr(command, key, "other")
