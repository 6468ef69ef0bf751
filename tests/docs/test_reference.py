"""The reference pages are complete: options, messages, keys of every file, components; and no link leads nowhere.

What there is to be found is looked up in the program by other ways than those by which the pages are made.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from os.path import normpath
from pathlib import Path
from typing import Annotated, Any, get_args
from urllib.parse import urlsplit

import generate
import pytest
import yaml  # type: ignore[import-untyped]
from markdown.extensions.toc import slugify  # type: ignore[import-untyped]
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from reference_pages.components import validation
from reference_pages.fields import example_of
from typer.main import get_command
from typer.testing import CliRunner

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import NodeStart, Solver
from hilserver.cli import program as application
from hilserver.compiler.circuit_code import SWITCH
from hilserver.compiler.loading import LEVEL_VARIABLE
from hilserver.components.base import Fluid
from hilserver.driver import installed_drivers
from hilserver.mechanics import model as mechanics
from hilserver.protocol import description
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import COMMANDS
from hilserver.protocol.topics import Topics
from hilserver.realtime.rig_setup import REHEARSAL_VARIABLE
from hilserver.rig.calibration import Calibration
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.cycle import CycleSettings
from hilserver.rig.scale import Scale
from hilserver.rig.settings import RigSettings
from hilserver.sequences import model as sequences
from hilserver.service.forking import OF_SERVICE_MANAGER
from hilserver.studies.catalogue import CatalogueFile, CatalogueValve
from hilserver.studies.figures import FigureSettings
from hilserver.studies.measured import LogColumns
from hilserver.studies.settings import StudySettings
from hilserver.studies.sweep_figures import SweepSettings
from hilserver.units import Quantity

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@cache
def pages() -> dict[str, str]:
    """The generated pages. (Not when the tests are collected, which each of pytest's workers does.)"""
    return generate.pages()


def section(page: str, heading: str) -> str:
    """What stands below a heading, up to the next one of its level."""
    level = heading.partition(" ")[0]
    below = page.partition(f"\n{heading}\n")[2]
    assert below, f"no section: {heading}"
    return re.split(rf"\n#{{2,{len(level)}}} ", below)[0]


@cache
def written() -> dict[str, str]:
    """The pages of the site that are not generated: path below docs/ -> Markdown."""
    found = {path.relative_to(DOCS).as_posix(): generate.to_reference(path.read_text()) for path in DOCS.rglob("*.md")}
    return {**found, **generate.repository_pages()}


@cache
def site() -> dict[str, str]:
    """All pages of the site: path below docs/ -> Markdown."""
    return {**written(), **pages()}


def without_code(markdown: str) -> str:
    return re.sub(r"^( *)```.*?^\1```$", "", markdown, flags=re.M | re.S)


# --- commands --------------------------------------------------------------------------------------------------------


def said_by_help(*words: str) -> str:
    """What the program itself prints."""
    result = CliRunner().invoke(application(), [*words, "--help"], env={"COLUMNS": "250", "TERM": "dumb"})
    assert result.exit_code == 0
    return re.sub(r"\x1b\[[\d;]*m", "", result.output)


def commands_in(text: str) -> list[str]:
    return re.findall(r"^│ ([a-z]\w*)\s", text.partition("Commands")[2], re.M)


@cache
def program() -> Any:
    """All commands; to build them takes a while."""
    return get_command(application())


def commands() -> Iterator[tuple[str, ...]]:
    for name, command in program().commands.items():
        yield from ((name, inner) for inner in getattr(command, "commands", ()))
        if not hasattr(command, "commands"):
            yield (name,)


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_every_option_of_a_command_is_on_its_page(command: tuple[str, ...]) -> None:
    options = set(re.findall(r"(?<=[\s,])--?[a-z][\w-]*", said_by_help(*command).partition("Options")[2]))
    heading = f"{'#' * (len(command) + 1)} `hilserver {' '.join(command)}`"
    there = section(pages()["reference/commands.md"], heading)
    missing = {option for option in options if f"`{option}`" not in there}
    assert missing <= {"-h", "--help"}


def test_the_list_of_commands_is_that_of_help() -> None:
    assert commands_in(said_by_help()) == list(program().commands)
    assert commands_in(said_by_help("log")) == list(program().commands["log"].commands)
    assert {"run", "demo", "check", "switch", "send", "log check"} <= {" ".join(command) for command in commands()}


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that a line names, and the words behind its name."""
    found = program()
    while words and hasattr(found, "commands") and not words[0].startswith("-"):
        found, words = found.commands[words[0]], words[1:]
    return found, words


def lines_of(page: str) -> Iterator[str]:
    """What is typed into a terminal: lines of sh blocks, those with a $ of others."""
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.M | re.S):
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("$ ") or language == "sh":
                yield line.removeprefix("$ ")


def typed(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Commands of hilserver in the blocks of pages: page, and what stands behind hilserver."""
    for name, page in texts.items():
        for line in lines_of(page):
            for part in re.split(r"\s(?:&&|\|\|?|>)\s|;", line):
                if found := re.search(r"(?:^|\s|/)hilserver (?!/)(.+)", part):
                    yield name, found[1]


@pytest.mark.parametrize(("page", "line"), sorted(set(typed(written()))))
def test_a_command_on_a_page_can_be_typed(page: str, line: str) -> None:
    """With its arguments and options: those that the documentation's own tests do not carry out as well."""
    command, words = command_of(shlex.split(line, comments=True))
    command.make_context(command.name, words)  # raises what a user would see


def named(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Commands within the text of pages, with the options that stand there."""
    for name, page in texts.items():
        for text in re.findall(r"(?<!`)`hilserver ([^`\n]+)`", without_code(page)):
            yield name, text


@pytest.mark.parametrize(("page", "text"), sorted(set(named(written()))))
def test_a_command_in_the_text_exists(page: str, text: str) -> None:
    command, words = command_of(text.removeprefix("COMMAND ").split())
    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    assert {word for word in words if re.match(r"--?\w", word)} <= options | {"--help"}


def test_commands_on_generated_pages_exist() -> None:
    in_blocks, in_texts = set(typed(pages())), set(named(pages()))
    for page, line in in_blocks:
        test_a_command_on_a_page_can_be_typed(page, line)
    for page, text in in_texts:
        test_a_command_in_the_text_exists(page, text)
    assert in_texts


def test_the_page_of_every_component_names_its_tests() -> None:
    without = {name for name, kind in standard_library().types.items() if "`test_" not in validation(kind)}
    assert not without
    assert "proportional" in validation(standard_library().types["proportional_valve_4_3"])


def test_every_variable_of_the_environment_is_on_the_page() -> None:
    """Those that stand in the source where the environment is read."""
    there = section(pages()["reference/commands.md"], "## Environment")
    found = {*OF_SERVICE_MANAGER, LEVEL_VARIABLE, REHEARSAL_VARIABLE, SWITCH}
    for file in (*ROOT.glob("hilserver/**/*.py"), *ROOT.glob("drivers/**/*.py")):
        for near in re.findall(r"(?:environ|getenv|envvar)\b(?:.*\n){2}", file.read_text()):
            found |= set(re.findall(r'"([A-Z]+_[A-Z_]+|PATH)"', near))
    assert {"HILSERVER_BROKER", "XDG_CACHE_HOME", "PATH"} <= found
    assert {name for name in found if f"`{name}`" not in there} == set()


def test_exit_codes_of_every_command_are_explained() -> None:
    there = section(pages()["reference/commands.md"], "## Exit codes")
    found = {file.stem for file in ROOT.glob("hilserver/cli/*.py") if "Exit(" in file.read_text()}
    assert {"replay", "test", "doctor"} <= found
    assert {name for name in found if f"`hilserver {name}`" not in there} == set()


def test_every_target_of_make_is_on_the_page() -> None:
    said = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"^(make [a-z-]+) ", said, re.M)
    assert {"make demo", "make panel", "make install"} <= set(targets)
    there = section(pages()["reference/commands.md"], "## make")
    assert [target for target in targets if f"`{target}`" not in there] == []


def test_targets_of_make_on_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    found = {line.split()[1] for page in site().values() for line in lines_of(page) if line.startswith("make ")}
    found |= {target for page in site().values() for target in re.findall(r"`make ([a-z-]+)`", page)}
    assert {"demo", "install", "docs"} <= found <= targets


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_on_the_mqtt_page(name: str) -> None:
    page = pages()["reference/mqtt.md"]
    there = section(page, f"### `command/{name}`")
    assert f"`hil/<rig>/command/{name}`" in there
    for key in COMMANDS[name].model_fields:
        assert f"| `{key}` |" in there + section(page, "## Commands")


def test_every_topic_and_key_is_on_the_mqtt_page() -> None:
    page = pages()["reference/mqtt.md"]
    for topic in Topics("<rig>").published:
        assert f"| `{topic}` |" in page
    for topic, schema in description.schemas().items():
        if "/" not in topic:
            there = section(page, f"## `{topic}`")
            for owner in (schema, *schema.get("$defs", {}).values()):
                for key in owner.get("properties", ()):
                    assert re.search(rf"^\| `([\w.<>\[\]]+\.)?{key}` \|", there, re.M), f"{topic}: {key}"


def test_every_key_of_a_message_is_described() -> None:
    assert not re.findall(r"^\| `.*\|\s*\|$", pages()["reference/mqtt.md"].partition("## The login file")[0], re.M)


# --- configuration files ---------------------------------------------------------------------------------------------


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """All models that a type holds, itself included, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation is not Quantity:
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_in(field.annotation)
    for part in get_args(annotation):
        yield from models_in(part)


FILES: list[tuple[str, type[BaseModel]]] = [
    ("rig-file", RigSettings),
    *(("rig-file", driver.Config) for driver in installed_drivers().values()),
    ("circuit-file", Fluid),
    ("circuit-file", Solver),
    ("circuit-file", NodeStart),
    ("cycle-file", CycleSettings),
    ("mechanism-file", mechanics.Body),
    *(("mechanism-file", kind) for kind in (*mechanics.JOINTS.values(), *mechanics.ACTUATORS.values())),
    ("sequence-file", sequences.SequenceFile),
    ("sequence-file", sequences.StepTiming),
    ("calibration-file", Calibration),
    ("study-file", StudySettings),
    ("study-file", FigureSettings),
    ("study-file", SweepSettings),
    ("study-file", LogColumns),
    ("study-file", CatalogueFile),
    ("study-file", CatalogueValve),
    ("mqtt", BrokerAddress),
]


@pytest.mark.parametrize(("page", "model"), FILES, ids=lambda part: getattr(part, "__name__", part))
def test_every_key_of_a_file_is_on_its_page(page: str, model: type[BaseModel]) -> None:
    text = pages()[f"reference/{page}.md"]
    for owner in models_in(model):
        for key in owner.model_fields:
            assert re.search(rf"^\| `([\w.<>]+\.)?{key}` \|", text, re.M), f"{owner.__name__}.{key}"


def test_every_key_of_a_file_has_its_form_and_its_meaning() -> None:
    """No empty cell in the columns key, example, default and meaning."""
    for page in sorted({f"reference/{name}.md" for name, _ in FILES} - {"reference/mqtt.md"}):
        rows = re.findall(r"^\| (`[\w.<>\[\]]+`) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", pages()[page], re.M)
        assert rows
        for key, kind, _, _, text in rows:
            assert kind.strip(), f"{page}: {key}: how is it written?"
            assert text.strip(), f"{page}: {key}: what is it?"


def values_of(field: FieldInfo) -> list[Any]:
    """The values in the cell *example* of a key: none where it only names a kind, such as text."""
    parts = example_of(field).split(" or ")
    return [tomllib.loads(f"value = {part[1:-1]}")["value"] for part in parts if re.fullmatch("`[^`]*`", part)]


@pytest.mark.parametrize(("page", "model"), FILES, ids=lambda part: getattr(part, "__name__", part))
def test_examples_of_a_key_are_accepted_by_the_key(page: str, model: type[BaseModel]) -> None:
    for owner in models_in(model):
        for key, field in owner.model_fields.items():
            kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
            validator = TypeAdapter(kind)
            for value in values_of(field):
                try:
                    validator.validate_python(value)
                except ValidationError as error:
                    pytest.fail(f"{page}: {owner.__name__}.{key} refuses its example: {error}")


@pytest.mark.parametrize(
    ("model", "complete"),
    [
        (ChannelSettings, {"device": "daq", "source": "ai0", "scale": {"raw": [0, 10], "value": ["0 bar", "250 bar"]}}),
        (
            Scale,
            {
                "raw": {"value": ["0 bar", "250 bar"]},
                "value": {"raw": [0, 10]},
                "polynomial": {"unit": "bar"},
                "range": {"polynomial": [0, 25], "unit": "bar"},
            },
        ),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_examples_are_accepted_beside_the_other_keys(model: type[BaseModel], complete: dict[str, Any]) -> None:
    """Where a model compares its keys; ``complete``: the others that it requires, of a Scale by key."""
    for key, field in model.model_fields.items():
        others = complete.get(key, {}) if model is Scale else {} if key == "value" else complete
        for value in values_of(field) if key != "shunt" else ():
            model.model_validate({**others, key: value})


@pytest.mark.parametrize("kind", standard_library().types)
def test_every_component_has_its_page_and_is_in_the_index(kind: str) -> None:
    page = without_code(pages()[f"reference/components/{kind}.md"])
    assert f"({kind}.md) | `{kind}` |" in pages()["reference/components/index.md"]
    assert re.findall(r"^#+ ", page, re.M).count("# ") == 1
    headings = re.findall(r"^## .*$", page, re.M)
    assert len(set(headings)) == len(headings)
    for needed in ("## Example", "## Connections", "## Datasheet values", "## Equations as computed"):
        assert needed in headings


# --- links -----------------------------------------------------------------------------------------------------------


def anchors(markdown: str) -> set[str]:
    """Of the headings, as the site makes them."""
    found = []
    for heading in re.findall(r"^#+ (.*)$", without_code(markdown), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        found.append(slugify(re.sub(r"<[^>]*>(?![^`]*`)", "", text), "-"))
    return {*found, *(f"{name}_{k}" for name in found for k in range(1, found.count(name)))}


def links(markdown: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", without_code(markdown))


def test_every_link_on_a_generated_page_resolves() -> None:
    for page in pages():
        test_every_link_on_a_page_resolves(page)


@pytest.mark.parametrize("page", sorted(written()))
def test_every_link_on_a_page_resolves(page: str) -> None:
    for link in links(site()[page]):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = normpath(Path(page).parent / path) if path else page
        target = f"{target}/index.md" if path.endswith("/") else target
        if target in site():
            assert not anchor or anchor in anchors(site()[target]), f"{page}: {link}"
        elif re.fullmatch(r"images/(circuits|components)/\w+\.\w+", target):  # made with the site
            source = ROOT / "config/circuits" if "circuits" in target else DOCS / "examples"
            assert (source / f"{Path(target).stem}.toml").is_file(), f"{page}: {link}"
        else:
            assert (DOCS / target).is_file(), f"{page}: {link}"


WRITTEN = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    ROOT / "config/README.md",
    *DOCS.rglob("*.md"),
]


@pytest.mark.parametrize("file", sorted(path.relative_to(ROOT).as_posix() for path in WRITTEN))
def test_every_link_in_the_repository_resolves(file: str) -> None:
    """As they are seen without the site."""
    for link in links((ROOT / file).read_text()):
        path, _, anchor = link.partition("#")
        target = (ROOT / file).parent / path if path else ROOT / file
        assert re.match(r"https://", link) or target.exists(), f"{file}: {link}"
        assert not anchor or anchor in anchors(target.read_text()), f"{file}: {link}"


def test_external_links_are_few_and_well_formed() -> None:
    """Nothing else has to stay where it is; examples at 127.0.0.1 stand in code."""
    found = {link for page in site().values() for link in links(page) if re.match(r"\w+:", link)}
    assert {urlsplit(link).scheme for link in found} == {"https"}
    assert {urlsplit(link).netloc for link in found} == {
        "keepachangelog.com", "semver.org", "reveng.sourceforge.io", "plotjuggler.io", "www.apache.org",
        "fmi-standard.org",
    }  # fmt: skip


def test_files_named_on_pages_exist() -> None:
    made = set(re.findall(r"<!-- file: (\S+) -->", "".join(site().values()))) | {"config/rigs/lab.toml"}
    for page, text in site().items():
        if page.startswith(("decisions/", "changelog")):  # they tell of files that were, or never came to be
            continue
        for file in re.findall(r"`((?:hilserver|drivers|tests|config|docs|systemd)/[\w./-]+)`", without_code(text)):
            assert file in made or (ROOT / file).exists(), f"{page}: {file}"


# --- navigation ------------------------------------------------------------------------------------------------------


def entries(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from entries(inner)


def test_every_page_is_in_the_navigation() -> None:
    nav = list(entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert len(set(nav)) == len(nav)
    folders = tuple(entry for entry in nav if entry.endswith("/"))
    assert {page for page in site() if page not in nav and not page.startswith(folders)} == set()
    assert {entry for entry in nav if not entry.endswith("/")} <= set(site())
