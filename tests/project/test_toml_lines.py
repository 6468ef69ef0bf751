"""Lines of keys in TOML texts, judged by tomllib: an edit at the place of a key changes its value, and nothing else."""

from __future__ import annotations

import copy
import functools
import json
import os
import pickle
import random
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hilserver.toml_lines
from hilserver.errors import ConfigurationError, Problem, dotted, with_lines
from hilserver.toml import parse_toml
from hilserver.toml_lines import TomlPlace, line_of, places

ROOT = Path(__file__).parents[2]
KEYS = ("a", "b", "a_1", "-", "7", "a b", "a.b", 'q"', "q'", "[0]", "é", "\\", "\t", "#", "=")
SCALARS = (
    *("1", "-1_000.5e3", "true", "inf", "0x1F", "1979-05-27", "1979-05-27 07:32:00", "1979-05-27T07:32:00Z"),
    *('""', '"a # ] } = \\" \\\\"', "''", "'a # ] } \\'", '""""""', '"""x""y"""""', "''''''", "'''x''y'''''"),
    *('"""\nb = 1 # no\n[a]\n\\""" \\\n"""', "'''\na = [1,\n\\'''"),
)


class Writer:
    """Writes random TOML in all ways that the language has for the same data."""

    def __init__(self, choices: random.Random) -> None:
        self.choices = choices

    def document(self) -> str:
        return self.choices.choice(["\n", "\r\n"]).join(self.table("", 3))

    def keys(self, count: int) -> list[str]:
        """Different keys, as written."""
        return [self.key(key) for key in self.choices.sample(KEYS, count)]

    def key(self, key: str) -> str:
        styles = [json.dumps(key, ensure_ascii=False), json.dumps(key)]
        styles += [key] * 3 if re.fullmatch("[A-Za-z0-9_-]+", key) else []
        styles += [f"'{key}'"] if "'" not in key else []
        return self.choices.choice(styles)

    def table(self, path: str, depth: int) -> list[str]:
        """The lines of a table, with its sub-tables below it; ``path`` as in its header, with a dot at the end."""
        pairs, tables = list[str](), list[str]()
        for key in self.keys(self.choices.randint(0, 4)):
            kind = self.choices.choice(["pair", "pair", "dotted", "table", "tables", "implicit"]) if depth else "pair"
            if kind == "pair":
                pairs += [*self.between(), f"{self.spaced(key)}={self.space()}{self.value(depth)}{self.comment()}"]
            elif kind == "dotted":
                pairs += [f"{key}{self.space()}.{inner} = {self.value(1)}" for inner in self.keys(2)]
            elif kind == "tables":
                for _ in range(self.choices.randint(1, 3)):
                    tables += [
                        f"{self.space()}[[{path}{key}]]{self.comment()}",
                        *self.table(f"{path}{key}.", depth - 1),
                    ]
            else:
                inner = f"{key} . {self.keys(1)[0]}" if kind == "implicit" else key
                tables += [f"[{self.space()}{path}{inner} ]{self.comment()}", *self.table(f"{path}{inner}.", depth - 1)]
        return [*pairs, *self.between(), *tables]

    def value(self, depth: int) -> str:
        kind = self.choices.choice(["scalar", "scalar", "list", "table"]) if depth else "scalar"
        if kind == "list":
            between = self.choice_of_breaks()
            parts = [f"{between}{self.value(depth - 1)}" for _ in range(self.choices.randint(0, 3))]
            return f"[{','.join(parts)}{',' if parts and self.choices.random() < 0.3 else ''}{between}]"
        if kind == "table":
            pairs = [f"{self.spaced(key)}= {self.value(depth - 1)}" for key in self.keys(self.choices.randint(0, 3))]
            return f"{{{self.space()}{','.join(pairs)}{self.space()}}}"
        return self.choices.choice(SCALARS)

    def choice_of_breaks(self) -> str:
        return self.choices.choice(["", " ", "\n", "\r\n\t", " # a = [1]\n # ]\n"])

    def space(self) -> str:
        return self.choices.choice(["", "", " ", "\t "])

    def spaced(self, key: str) -> str:
        return f"{self.space()}{key}{self.space()}"

    def comment(self) -> str:
        return self.choices.choice(["", "", " # b = 2", "#"])

    def between(self) -> list[str]:
        return self.choices.choice([[], [], ["  "], ["# [a]", ""]])


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """All keys and elements of a document with their values."""
    if path:
        yield path, value
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from paths(entry, (*path, key))


def place_at(whole: TomlPlace, path: tuple[str | int, ...]) -> TomlPlace:
    return functools.reduce(lambda place, part: place.parts[part], path, whole)


def edited(data: Any, path: tuple[str | int, ...], value: object) -> Any:
    """The data with another value at this path."""
    changed = copy.deepcopy(data)
    table = changed
    for part in path[:-1]:
        table = table[part]
    table[path[-1]] = value
    return changed


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_an_edit_at_the_place_of_a_value_changes_this_value_only(choices: random.Random) -> None:
    text = Writer(choices).document()
    data, whole = tomllib.loads(text), places(text)
    known = [dotted(path) for path, _ in paths(data)]
    for path, value in paths(data):
        place, key = place_at(whole, path), dotted(path)
        if known.count(key) == 1:  # else two keys with dots or brackets in them are written the same
            assert line_of(text, key) == text[: place.start].count("\n") + 1
        if text[place.start : place.end].startswith("[") and not isinstance(value, list):  # the header of a table
            lines = text.split("\n")
            lines.insert(line_of(text, key) if known.count(key) == 1 else text[: place.end].count("\n") + 1, "new = 8")
            assert tomllib.loads("\n".join(lines)) == edited(data, (*path, "new"), 8), (text, path)
        elif place.end > place.start and not text.startswith("[[", place.start):
            changed = text[: place.start] + '"edited"' + text[place.end :]
            assert tomllib.loads(changed) == edited(data, path, "edited"), (text, path)


def test_random_documents_are_written_in_all_ways() -> None:
    """The property above is about headers, lists of tables, dotted and quoted keys, strings of several lines."""
    texts = [Writer(random.Random(seed)).document() for seed in range(100)]
    for style in (r"^\[ ?\S", r"^\s?\[\[", r"\S ?\.\S+ = ", r"\{.*=", "'''.*\n", '""".*\n', r"\[\s*#", '^"', "\r\n"):
        assert sum(bool(re.search(style, text, re.MULTILINE)) for text in texts) > 10, style


def test_every_key_of_the_examples_is_found_on_its_line() -> None:
    files = sorted((ROOT / "config").rglob("*.toml"))
    assert len(files) > 30
    for file in files:
        text = file.read_text()
        lines, whole = text.split("\n"), places(text)
        for path, value in paths(tomllib.loads(text)):
            if isinstance(path[-1], str) and not isinstance(value, dict | list):
                line = lines[text.count("\n", 0, place_at(whole, path).start)]
                assert re.search(rf"\b{re.escape(path[-1])}\b", line), (file, path)


TEXT = """\
name = "lab"

[channels.p_A] # the head end
scale = { raw = [
    4,
    20 ], value = ["0 bar", "250 bar"] }

[vary]
"load.mass" = "± 5 %"

[[step]]
at = "1 s"
[[step]]
send = "arm"
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("name", 1),
        ("channels.p_A", 3),
        ("channels.p_A.scale", 4),
        ("channels.p_A.scale.raw[1]", 6),
        ("channels.p_A.scale.value[0]", 6),
        ("channels.p_A.device", 3),  # missing: its table
        ("channels.p_B", 3),  # where channels begin
        ("channels.p_B.scale", 0),  # not that of another channel
        ("channels.p_A.scale.raw[2].unit", 4),
        ("vary.load.mass", 9),
        ("vary.load", 8),
        ("step[0].at", 12),
        ("step[1].at", 13),
        ("step[2]", 11),
        ("step[2].at", 0),
        ("circuit", 0),
        ("nam", 0),
        ("names", 0),
        ("", 0),
    ],
)
def test_the_line_of_a_key(key: str, line: int) -> None:
    assert line_of(TEXT, key) == line


@pytest.mark.parametrize("text", ["a = ", "a = 1\na = 2", "[a]\n[a]", "\x00", "a = " + "[" * 5000, "", "# nothing"])
def test_a_text_without_lines(text: str) -> None:
    assert line_of(text, "a") == 0


def test_an_empty_key_is_not_taken_for_any_other() -> None:
    assert line_of('"" = 1\na = 2', "b") == 0


def test_a_key_of_very_many_parts_has_no_line() -> None:
    """It is valid TOML, and must not end the message with a RecursionError."""
    assert line_of(".".join("a" * 5000) + " = 1\nb = 2", "b") == 0


def test_a_file_is_read_once_for_many_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each of them: 10,000 problems took 26 s."""
    file, count, read = tmp_path / "cycle.toml", 1000, list[str]()

    def counted(text: str) -> TomlPlace:
        read.append(text)
        return places(text)

    monkeypatch.setattr(hilserver.toml_lines, "places", counted)
    file.write_text("points = [\n" + "".join(f"['{i} s', 1.0],\n" for i in range(count)) + "]")
    found = with_lines(Problem("is wrong.", f"points[{i}][0]", str(file)) for i in range(count))
    assert [problem.line for problem in found] == list(range(2, count + 2))
    assert len(read) == 1


def test_a_pipe_is_not_read_again(tmp_path: Path) -> None:
    """Nothing would come, for ever."""
    os.mkfifo(tmp_path / "rig.toml")
    assert with_lines([Problem("is wrong.", "a", str(tmp_path / "rig.toml"))])[0].line == 0


def test_problems_get_the_lines_of_their_files(tmp_path: Path) -> None:
    file = tmp_path / "rig.toml"
    file.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    (tmp_path / "table.csv").write_text("a = 1")
    (tmp_path / "other.toml").write_bytes(b"a = '\xff'")
    problems = [
        Problem("is wrong.", "channels.p_A.scale", str(file)),
        Problem("is wrong.", "a", str(file), 7),
        Problem("is wrong.", "a", str(tmp_path / "table.csv")),
        Problem("is wrong.", "a", str(tmp_path / "other.toml")),
        Problem("is wrong.", "a", str(tmp_path / "none.toml")),
        Problem("is wrong.", "a", f"{file} + {file}"),
        Problem("is wrong.", "name"),
    ]
    found = with_lines(problems)
    assert [problem.line for problem in found] == [4, 7, 0, 0, 0, 0, 0]
    assert str(found[0]) == f"{file}:4: channels.p_A.scale: is wrong."
    assert str(found[-1]) == "name: is wrong."


def test_an_error_names_the_lines_as_a_text(tmp_path: Path) -> None:
    """Of the file as it is, or as it is being edited; it survives being passed between processes."""
    file = tmp_path / "rig.toml"
    file.write_text(TEXT)
    error = ConfigurationError([Problem("is wrong.", "channels.p_A.scale", str(file)), Problem("is wrong.", "name")])
    assert str(error) == f"{file}:4: channels.p_A.scale: is wrong.\nname: is wrong."
    assert pickle.loads(pickle.dumps(error)).problems == error.problems
    [edited, _] = with_lines(error.problems, texts={str(file): f"\n\n{TEXT}"})
    assert edited.line == 6


def test_a_syntax_error_has_its_line() -> None:
    with pytest.raises(ConfigurationError, match=r"^rig\.toml:2: the file is not valid TOML: .*line 2") as caught:
        parse_toml(b"a = 1\nb = \n", "rig.toml")
    assert caught.value.problems[0].line == 2
