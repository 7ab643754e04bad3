"""Pages that are made from the tree: the front page, one page a room, one page an API package.

mkdocs calls :func:`on_config` and :func:`on_files`; the tests call :func:`generated`. Run as a
script, it writes the table of methods into README.md again, and the results of the newest
acceptance run into each room's README::

    python docs/hooks/pages.py
"""

from __future__ import annotations

import ast
import html
import importlib.util
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noisewright import methods
from noisewright.reports.claims import load_claims
from noisewright.types import Room

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

PACKAGES = (
    "paths",
    "solvers",
    "steering",
    "nets",
    "training",
    "adapters",
    "data",
    "metrics",
    "reports",
    "testing",
    "types",
    "random",
    "storage",
    "parallel",
)
"""What the reference has a page for, in the order of reading."""

TABLE = re.compile(r"(<!-- methods: .*?-->\n).*?(<!-- /methods -->)", re.DOTALL)
RESULT = re.compile(r"(<!-- result: .*?-->\n).*?(<!-- /result -->)", re.DOTALL)
LINK = re.compile(r"(\]\(|\bsrc=\"|\bsrcset=\"|\bhref=\")([^)\s\"#]*)(#[^)\s\"]*)?(?=[)\"])")
OUTSIDE = re.compile(r"^([a-z]+:|//|$)")


# --- names and places --------------------------------------------------------------------------


def rooms() -> dict[str, Room]:
    """Return the rooms that can be loaded, by name."""
    return {name: room for name, room in methods.rooms().items() if isinstance(room, Room)}


def readme_of(name: str) -> Path:
    """Return where the README of a room lies."""
    return ROOT / "src" / "noisewright" / "methods" / name / "README.md"


def packages() -> list[str]:
    """Return the packages and modules of the engine that are there and have something public."""
    found = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(f"noisewright.{name}")
        if spec is not None and spec.origin is not None:
            found.append(name)
    return found


def page_of(target: Path) -> str | None:
    """Return the page of the site that shows a file of the tree, or None if none does."""
    fixed = {
        ROOT / "README.md": "index.md",
        ROOT / "CHANGELOG.md": "changelog.md",
        ROOT / "CONTRIBUTING.md": "contributing.md",
    }
    if target in fixed:
        return fixed[target]
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    if target.name == "README.md" and target.parent.name in rooms():
        return f"methods/{target.parent.name}.md"
    return None


def relocate(text: str, source: Path, page: str) -> str:
    """Return Markdown whose relative links hold on the site.

    A link to a file that the site does not show loses its address and keeps its words.

    Args:
        text: Content of ``source``.
        source: The file in the tree.
        page: Where the site shows it, relative to its root.
    """

    def moved(match: re.Match[str]) -> str:
        before, address, anchor = match[1], match[2], match[3] or ""
        if OUTSIDE.match(address):
            return match[0]
        shown = page_of((source.parent / address).resolve())
        if shown is None:
            return match[0] if not before.startswith("](") else f"{before}GONE"
        here = os.path.relpath(shown, Path(page).parent)
        # Raw HTML is not translated by mkdocs, and a page lies one folder deeper than its source.
        if not before.startswith("](") and page != "index.md":
            here = f"../{here}"
        return f"{before}{here}{anchor}"

    return re.sub(r"\[([^\]]+)\]\(GONE\)", r"\1", LINK.sub(moved, text))


# --- the table of methods ----------------------------------------------------------------------


def measured(name: str) -> str:
    """Return a room's headline number: its first claim in ``docs/results``, with its verdict."""
    result = DOCS / "results" / f"{name}.json"
    if not result.is_file():
        return "not measured yet"
    content = json.loads(result.read_text(encoding="utf-8"))
    first = load_claims(readme_of(name).parent / "claims.toml")[0].key
    claim = next((one for one in content["claims"] if one["key"] == first), None)
    if claim is None or claim["value"] is None:
        return f"[not measured](docs/results/{name}.json)"
    spread = f" ± {claim['std']:.2g}" if claim["std"] else ""
    bar = f"{claim['relation']} {claim['target']:g}"
    return (
        f"[{claim['value']:.3g}{spread}](docs/results/{name}.json), "
        f"bar {bar}: {claim['verdict']} (`{first}`)"
    )


def methods_table() -> str:
    """Return the table of methods for README.md, a row a room."""
    lines = [
        "| method | what it does | field | measured | page |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, room in rooms().items():
        page = f"[read](src/noisewright/methods/{name}/README.md)"
        lines.append(f"| `{name}` | {room.title} | {room.field} | {measured(name)} | {page} |")
    return "\n".join(lines) + "\n"


def with_table(readme: str) -> str:
    """Return README.md with the table as it should be."""
    return TABLE.sub(lambda match: match[1] + methods_table() + match[2], readme)


def _number(value: float | None, std: float | None = None) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" + (f" ± {std:.2g}" if std else "")


def result_block(name: str) -> str:
    """Return what a room's README says of its newest acceptance run: finding, picture, claims."""
    file = DOCS / "results" / f"{name}.json"
    if not file.is_file():
        return "Not measured yet.\n"
    content = json.loads(file.read_text(encoding="utf-8"))
    words = {c.key: c.text for c in load_claims(readme_of(name).parent / "claims.toml")}
    lines = [f"**{content['finding']}.**", ""]
    if (DOCS / "results" / f"{name}.png").is_file():
        lines += [f"![Lead picture of the run](../../../../docs/results/{name}.png)", ""]
    lines += ["| claim | measured | bar | verdict |", "| --- | ---: | ---: | --- |"]
    for claim in content["claims"]:
        bar = f"{claim['relation']} {claim['target']:g}"
        if claim["relation"] == "within":
            bar = f"{claim['target']:g} ± {claim['tolerance']:g}"
        value = _number(claim["value"], claim["std"])
        text = words.get(claim["key"], claim["text"]).replace("|", "\\|")
        text = f"{text} (`{claim['key']}`)"
        lines.append(f"| {text} | {value} | {bar} | {claim['verdict']} |")
    seeds = ", ".join(map(str, content["seeds"]))
    lines += [
        "",
        f"Seeds {seeds}; {content['seconds'] / 60:.0f} minutes; `{content['command']}` at "
        f"{(content['commit'] or 'unknown')[:10]}. All values: "
        f"[{name}.json](../../../../docs/results/{name}.json).",
    ]
    return "\n".join(lines) + "\n"


def with_result(readme: str, name: str) -> str:
    """Return a room's README with its result block as it should be."""
    return RESULT.sub(lambda match: match[1] + result_block(name) + match[2], readme)


# --- pages -------------------------------------------------------------------------------------


def _copied(source: Path) -> Callable[[str], str]:
    return lambda page: relocate(source.read_text(encoding="utf-8"), source, page)


def _room_page(name: str, room: Room) -> Callable[[str], str]:
    def page(address: str) -> str:
        source = readme_of(name)
        text = source.read_text(encoding="utf-8") if source.is_file() else f"# {name}\n"
        title, _, body = relocate(text, source, address).partition("\n")
        needs = f"`noisewright[{','.join(room.extras)}]`" if room.extras else "nothing more"
        facts = (
            f"\n*{room.paper}*\n\n"
            f"**Field** {room.field} · **data** {room.data} · **needs** {needs} · "
            f"**run** `noisewright run {name}` · [its names](../api/methods/{name}.md)\n"
        )
        own = ", ".join(f"`noisewright {command}`" for command in room.commands)
        return title + "\n" + facts + (f"\nCommands of its own: {own}\n" if own else "") + body

    return page


def _methods_index(page: str) -> str:
    table = relocate(methods_table(), ROOT / "README.md", page)
    return (
        "# Methods\n\nA method lives in a *room*, a folder with its code, its baselines, its "
        "experiment and its claims. The number is the first claim of the room in its newest "
        f"acceptance run.\n\n{table}"
    )


def _reexported(module: str) -> list[str]:
    """Return where the lazily loaded names of a package are defined, as its stub file says."""
    stub = ROOT / "src" / Path(*module.split(".")) / "__init__.pyi"
    if not stub.is_file():
        return []
    imports = [
        node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)
    ]
    return [
        f"{module if node.level else ''}.{node.module}.{name.name}".strip(".")
        for node in imports
        for name in node.names
    ]


def _reference(module: str) -> Callable[[str], str]:
    def page(_: str) -> str:
        head = f"# {module}\n\n::: {module}\n"
        names = _reexported(module)
        if not names:
            return head
        shown = "    options:\n      show_root_heading: true\n      show_root_toc_entry: true\n"
        return "\n".join([head, *(f"::: {name}\n{shown}" for name in names)])

    return page


def generated() -> dict[str, str]:
    """Return the content of every page that is made, by its address below ``docs/``."""
    makers: dict[str, Callable[[str], str]] = {
        "index.md": _copied(ROOT / "README.md"),
        "changelog.md": _copied(ROOT / "CHANGELOG.md"),
        "contributing.md": _copied(ROOT / "CONTRIBUTING.md"),
        "methods/index.md": _methods_index,
    }
    for name, room in rooms().items():
        makers[f"methods/{name}.md"] = _room_page(name, room)
        makers[f"api/methods/{name}.md"] = _reference(room.module)
    for name in packages():
        makers[f"api/{name}.md"] = _reference(f"noisewright.{name}")
    return {address: make(address) for address, make in makers.items()}


# --- what mkdocs calls -------------------------------------------------------------------------


def on_config(config: Any) -> Any:
    """Fill Methods and Reference in the navigation; leave out what is not there."""
    filled = {
        "Methods": ["methods/index.md", *({n: f"methods/{n}.md"} for n in rooms())],
        "Reference": [
            *({f"noisewright.{n}": f"api/{n}.md"} for n in packages()),
            {"rooms": [{n: f"api/methods/{n}.md"} for n in rooms()]},
        ],
    }
    kept = []
    for entry in config["nav"]:
        ((title, content),) = entry.items()
        if title in filled:
            kept.append({title: filled[title]})
        elif (DOCS / content).is_file() or content in generated():
            kept.append(entry)
    config["nav"] = kept
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the made pages."""
    from mkdocs.structure.files import File

    for address, content in generated().items():
        files.append(File.generated(config, address, content=content))
    return files


MATH = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers show without a script."""
    from latex2mathml.converter import convert

    def mathml(match: re.Match[str]) -> str:
        display = "block" if match[1] == "div" else "inline"
        return convert(html.unescape(match[2]).strip(), display=display)

    return MATH.sub(mathml, content)


def write() -> None:
    """Bring the made parts of README.md and of each room's README up to date."""
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8")), encoding="utf-8")
    for name in rooms():
        page = readme_of(name)
        page.write_text(with_result(page.read_text(encoding="utf-8"), name), encoding="utf-8")


if __name__ == "__main__":
    write()
