"""A MkDocs hook that adds the reference pages, which are generated from the classes, models and commands they describe.

None of the generated pages is committed.
"""

from __future__ import annotations

import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from reference_pages.circuits import circuit_plots, circuits_page, example_schematics
from reference_pages.command_line import commands_page
from reference_pages.components import component_index, component_page
from reference_pages.equations import equation
from reference_pages.files import (
    calibration_file_page,
    circuit_file_page,
    cycle_file_page,
    mechanism_file_page,
    rig_file_page,
    sequence_file_page,
    study_file_page,
)
from reference_pages.messages import log_page, mqtt_page
from reference_pages.places import DOCS, ROOT

from hilserver.circuit.library import standard_library
from hilserver.protocol import description


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
    "protocol/commands.py": "mqtt.md",
    "protocol/published.py": "mqtt.md",
    "rig/settings.py": "rig-file.md",
    "sequences/model.py": "sequence-file.md",
    "studies/settings.py": "study-file.md",
    "tick/row.py": "log.md",
}
"""The modules that declare the keys of a file or of a message, and the page generated from each."""


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
        "reference/study-file.md": study_file_page(),
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


def write_schemas() -> None:
    """Write the JSON Schema of every message into docs/schemas/; run this after a change of a message."""
    for name, text in description.schema_files().items():
        file = DOCS / "schemas" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_schemas()
