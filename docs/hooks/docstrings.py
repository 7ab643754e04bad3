"""Docstrings of the source, which are reStructuredText where they refer or count, as Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

BLOCK = re.compile(r"^( *)\.\. math:: ?(.*)\n((?:\n|\1 +.*(?:\n|\Z))*)", re.MULTILINE)
INLINE = re.compile(r":math:`([^`]*)`", re.DOTALL)
REFERENCE = re.compile(r":(?:class|func|meth|mod|attr|data):`(~?)([\w.]+)`")
LITERAL = re.compile(r"(?<=\S)::$", re.MULTILINE)
EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
RULE = re.compile(r"^=+(?: +=+)+$")


def _formula(match: re.Match[str]) -> str:
    indent = match[1]
    lines = [match[2], *match[3].splitlines()]
    body = f"\n{indent}".join(line.strip() for line in lines if line.strip())
    return f"\n{indent}$$\n{indent}{body}\n{indent}$$\n\n"


def _reference(match: re.Match[str]) -> str:
    name = match[2]
    shown = name.rpartition(".")[2] if match[1] else name
    if not name.startswith("noisewright."):
        return f"`{shown}`"
    return f'<autoref identifier="{name}" optional>`{shown}`</autoref>'


def _tables(text: str) -> str:
    """Turn simple tables of two columns into Markdown's."""
    lines, kept, inside, cut = text.split("\n"), [], False, 0
    for line in lines:
        if RULE.match(line):
            if not inside:
                cut = line.index(" ")
                kept += ["", "| | |", "| --- | --- |"]
            inside = not inside
        elif inside and line[:cut].strip():
            kept.append(f"| {line[:cut].strip()} | {line[cut:].strip()} |")
        elif inside:
            kept[-1] = f"{kept[-1][:-2]} {line.strip()} |"
        else:
            kept.append(line)
    return "\n".join(kept)


def markdown(text: str) -> str:
    """Return a docstring as Markdown.

    Args:
        text: Its content, without the indentation of the code.
    """
    text = BLOCK.sub(_formula, text)
    text = INLINE.sub(lambda match: f"${' '.join(match[1].split())}$", text)
    text = REFERENCE.sub(_reference, text)
    text = EXAMPLE.sub("Examples:", text)  # the plural is a section, the singular a remark
    return _tables(LITERAL.sub(":", text))


class Docstrings(griffe.Extension):
    """Translates every docstring as it is collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
