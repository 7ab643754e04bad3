"""The scoreboard: one page with every room, its verdicts, its numbers and a thumbnail.

It is made from run folders and from committed result files (``docs/results/<name>.json``), and it
has a row for every room, also for those that nobody has run.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from noisewright.reports.claims import judge, load_claims
from noisewright.reports.html import counts, environment, seeds_text
from noisewright.reports.rooms import room_folder
from noisewright.storage import write_atomic
from noisewright.types import InputError, Room

__all__ = ["publish_result", "render_scoreboard"]

_THUMB = 480  # pixels wide, twice what is shown


def _thumbnail(path: Path) -> bytes | None:
    """Return a small PNG of a picture; None if it is absent or unreadable."""
    if not path.is_file():
        return None
    from PIL import Image

    try:
        with Image.open(path) as image:
            small = image.convert("RGB")
            small.thumbnail((_THUMB, _THUMB))
            buffer = io.BytesIO()
            small.save(buffer, format="PNG", optimize=True)
    except OSError:
        return None
    return buffer.getvalue()


def _uri(path: Path) -> str:
    content = _thumbnail(path)
    return "data:image/png;base64," + base64.b64encode(content).decode() if content else ""


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error})") from None
    if not isinstance(content, dict) or not {"method", "seeds", "values"} <= content.keys():
        raise InputError(f"{path} is no result: method, seeds and values are missing")
    return content


def _from_run(folder: Path) -> dict[str, Any]:
    metrics = _read(folder / "metrics.json")
    report = folder / "report.json"
    about = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
    first = [f["name"] for f in about.get("figures", [])[:1]]
    picture = folder / "figures" / (first[0] if first else "none")
    claims = folder / "claims.json"
    return metrics | {
        "finding": about.get("finding", ""),
        "stored_claims": json.loads(claims.read_text(encoding="utf-8")) if claims.is_file() else [],
        "about": about.get("room"),
        "link": folder / "report.html",
        "light": _uri(picture.with_name(picture.name + ".png")),
        "dark": _uri(picture.with_name(picture.name + "-dark.png")),
        "time": (folder / "metrics.json").stat().st_mtime,
    }


def _from_file(path: Path) -> dict[str, Any]:
    content = _read(path)
    return content | {
        "stored_claims": content.get("claims", []),
        "finding": content.get("finding", ""),
        "about": content.get("room"),
        "link": None,
        "light": _uri(path.with_suffix(".png")),
        "dark": _uri(path.with_name(path.stem + "-dark.png")),
        "time": path.stat().st_mtime,
    }


def _results(places: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield results of files, run folders, and folders of either."""
    for place in places:
        if place.is_file():
            yield _from_file(place)
        elif (place / "metrics.json").is_file():
            yield _from_run(place)
        elif place.is_dir():
            yield from (_from_run(m.parent) for m in sorted(place.glob("*/metrics.json")))
            yield from (_from_file(f) for f in sorted(place.glob("*.json")))
        else:
            raise InputError(f"{place} does not exist; give run folders or files of results")


def _best(results: Iterator[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return one result per room: full before quick, then more seeds, then newer."""
    best: dict[str, dict[str, Any]] = {}

    def rank(one: Mapping[str, Any]) -> tuple[bool, int, float]:
        return not one.get("quick", False), len(one["seeds"]), one["time"]

    for result in results:
        name = result["method"]
        if name not in best or rank(result) > rank(best[name]):
            best[name] = result
    return best


def _judged(result: Mapping[str, Any], room: Room | None) -> list[dict[str, Any]]:
    """Return claims as the run judged them, or judged now from a bare result file."""
    if result["stored_claims"] or room is None:
        return list(result["stored_claims"])
    try:
        claims = load_claims(room_folder(room) / "claims.toml")
    except InputError:
        return []
    entries = result["values"].items()
    means = {k: float("nan") if v["mean"] is None else v["mean"] for k, v in entries}
    spreads = {k: v["std"] for k, v in entries if v.get("std")}
    quick = bool(result.get("quick"))
    return [one.as_dict() for one in judge(claims, means, spreads=spreads, quick=quick)]


def _link(path: Path | None, beside: Path) -> str:
    return "" if path is None or not path.is_file() else os.path.relpath(path, beside)


def _row(
    name: str, room: Room | None, result: dict[str, Any] | None, error: str, beside: Path
) -> dict[str, Any]:
    about = (result or {}).get("about") or {}
    row: dict[str, Any] = {
        "name": name,
        "title": room.title if room else about.get("title", ""),
        "paper": room.paper if room else about.get("paper", ""),
        "field": (room.field if room else about.get("field")) or "other",
        "error": error,
        "run": None,
    }
    if result is not None:
        claims = _judged(result, room)
        tally = counts(claims)
        order = {"falls short": 0, "holds": 1, "not measured": 2}
        measured = sorted(claims, key=lambda c: (order[c["verdict"]], c["source"] != "paper"))
        row["run"] = {
            **{k: result[k] for k in ("finding", "light", "dark")},
            "quick": bool(result.get("quick")),
            "seeds": seeds_text(result["seeds"]),
            "seconds": result.get("seconds", 0.0),
            "link": _link(result["link"], beside),
            "counts": tally,
            "share": tally["holds"] / max(1, len(claims)),
            "claims": measured,
        }
    return row


def render_scoreboard(
    places: Sequence[str | Path],
    rooms: Mapping[str, Room | Exception],
    *,
    beside: str | Path = ".",
) -> str:
    """Return the page.

    Args:
        places: Run folders, result files, or folders that hold such.
        rooms: The registry: every room gets a row.
        beside: Folder that the page will be in; links to reports are relative to it.

    Raises:
        InputError: If a place does not exist or holds a damaged result.
    """
    best = _best(_results([Path(p) for p in places]))
    rows = []
    for name in sorted({*rooms, *best}):
        room = rooms.get(name)
        error = str(room) if isinstance(room, Exception) else ""
        known = room if isinstance(room, Room) else None
        rows.append(_row(name, known, best.get(name), error, Path(beside)))
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda r: (r["field"], r["name"])):
        groups.setdefault(row["field"], []).append(row)
    done = [row["run"] for row in rows if row["run"]]
    total = {v: sum(run["counts"][v] for run in done) for v in counts([])}
    template = environment().get_template("scoreboard.html.jinja")
    return template.render(groups=groups, total=total, rooms=len(rows), done=len(done))


def publish_result(folder: Path, target: Path) -> Path:
    """Write ``<name>.json`` and small pictures for ``docs/results`` from a finished run.

    Args:
        folder: The run folder.
        target: Gets ``<name>.json`` (the metrics with command, commit, finding and verdicts),
            ``<name>.png`` and ``<name>-dark.png``.

    Raises:
        InputError: If the folder is not a finished run, or it was a quick one.
    """
    from noisewright.reports.html import read_run

    run = read_run(folder)
    metrics = run["metrics"]
    if metrics["quick"]:
        raise InputError(f"{folder} is a quick run; publish an acceptance run (--seeds 3)")
    content = metrics | {
        "command": run["report"]["command"],
        "commit": run["environment"]["commit"],
        "finding": run["report"]["finding"],
        "claims": run["claims"],
        "room": run["report"]["room"],
    }
    name = metrics["method"]
    for figure in run["report"]["figures"][:1]:
        for suffix in ("", "-dark"):
            picture = _thumbnail(folder / "figures" / f"{figure['name']}{suffix}.png")
            if picture is not None:
                write_atomic(target / f"{name}{suffix}.png", picture)
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return write_atomic(target / f"{name}.json", text)
