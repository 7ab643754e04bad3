"""``noisewright spectrum DIR``: the noise levels that matter for the pictures of a folder."""

from __future__ import annotations

import csv
import io
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import tyro

from noisewright.reports.command import parse_command
from noisewright.types import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from noisewright.methods.spectral_schedule.spectrum import Spectrum

__all__ = ["Command", "PictureSpectrum", "main", "measure"]

SHOWN = 40
"""Rows of the table; a longer folder is summed up, and listed in full by ``--csv``."""

AT_ONCE = 2**22
"""Pixels measured at once; pictures of one size that lie side by side share a pass."""

SMALLEST_SIDE = 8
EDM_STEPS, EDM_MIN, EDM_MAX = 10, 0.002, 80.0


@dataclass(frozen=True)
class Command:
    """Read off the useful noise levels of each picture in a folder."""

    folder: tyro.conf.Positional[Path]
    """Folder of pictures; sub-folders are read too."""
    csv: str | None = None
    """Also write one row per picture to this file; - writes them to the terminal, alone."""
    size: int | None = None
    """Cut squares and shrink them to this side first; by default each picture has its own size."""
    eps_max: float = 1e-2
    """Share of its power that the best linear denoiser still recovers at sigma_max."""
    eps_min: float = 1e-3
    """Share of its power that the best linear denoiser leaves at sigma_min."""
    window: bool = False
    """Fade the borders (Hann window), against leakage from edges that do not match."""


@dataclass(frozen=True)
class PictureSpectrum:
    """What was found for one picture.

    Attributes:
        file: Path below the folder.
        height: Pixels.
        width: Pixels.
        slope: Exponent of the power law.
        sqrt_s_1: Square root of the power at one cycle per picture.
        sqrt_s_k: Square root of the power on the highest ring.
        sigma_min: Cleanest useful noise level, in units of [-1, 1].
        sigma_max: Noisiest useful noise level.
        error_tight: Log-spectrum error of ten steps along its tight schedule (closed form).
        error_edm: The same along EDM's levels.
    """

    file: str
    height: int
    width: int
    slope: float
    sqrt_s_1: float
    sqrt_s_k: float
    sigma_min: float
    sigma_max: float
    error_tight: float
    error_edm: float


def main(args: list[str]) -> int:
    """Run the command.

    Args:
        args: What follows ``noisewright spectrum``.

    Returns:
        Exit code 0.

    Raises:
        InputError: If the folder or a setting cannot work.
        SystemExit: With code 2 for flags that do not exist, 0 after ``--help``.
    """
    command = parse_command(Command, args, "spectrum")
    found, dropped = measure(command)
    if command.csv == "-":
        sys.stdout.write(csv_text(found))
        _summarise(found, dropped, to_errors=True)
        return 0
    _show(found)
    _summarise(found, dropped)
    if command.csv is not None:
        from noisewright.storage import write_atomic

        sys.stdout.write(f"{write_atomic(command.csv, csv_text(found))}\n")
    return 0


def measure(command: Command) -> tuple[list[PictureSpectrum], dict[str, int]]:
    """Return what was found for each picture, and how many were left out for which reason.

    Raises:
        InputError: If the folder is missing or empty, a setting is out of range, or no picture
            can be measured.
    """
    from noisewright.data.folder import SUFFIXES, picture_files

    folder = command.folder
    for name, share in (("--eps-max", command.eps_max), ("--eps-min", command.eps_min)):
        if not 0 < share < 1:
            raise InputError(f"{name} {share} must lie inside (0, 1)")
    if command.size is not None and command.size < SMALLEST_SIDE:
        raise InputError(f"--size {command.size} must be at least {SMALLEST_SIDE}")
    if command.csv not in (None, "-") and Path(command.csv).is_dir():
        raise InputError(f"--csv {command.csv} is a folder; give the name of a file")
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give a folder of {', '.join(SUFFIXES)} files")
    files = list(picture_files(folder))
    if not files:
        raise InputError(f"{folder} holds no pictures; accepted are {', '.join(SUFFIXES)} files")
    dropped: dict[str, int] = {}
    reasons: list[str] = []
    found = [
        row
        for chunk in _chunks(_pictures(files, command, dropped, reasons))
        for row in _measured(chunk, command, dropped, reasons)
    ]
    if not found:
        told = ", ".join(f"{count} {why}" for why, count in dropped.items())
        raise InputError(
            f"none of the {len(files)} pictures in {folder} can be measured: {told}; "
            f"for instance {reasons[0]}"
        )
    return found, dropped


Named = tuple[str, "Tensor"]


def _pictures(
    files: list[Path], command: Command, dropped: dict[str, int], reasons: list[str]
) -> Iterator[Named]:
    """Yield (name, pixels) of every picture that can be measured."""
    from noisewright.data.decode import decode_picture, to_tensor
    from noisewright.data.folder import shrunk_square

    smallest = command.size or SMALLEST_SIDE
    for path in files:
        name = str(path.relative_to(command.folder))
        try:
            picture = decode_picture(path)
        except InputError as error:
            _drop("unreadable", str(error), dropped, reasons)
            continue
        if min(picture.size) < smallest:
            _drop(f"smaller than {smallest} pixels", name, dropped, reasons)
            continue
        pixels = to_tensor(shrunk_square(picture, command.size) if command.size else picture)
        if bool((pixels == pixels[:, :1, :1]).all()):
            _drop("of a single colour", name, dropped, reasons)
            continue
        yield name, pixels


def _drop(why: str, example: str, dropped: dict[str, int], reasons: list[str]) -> None:
    dropped[why] = dropped.get(why, 0) + 1
    reasons.append(f"{example} ({why})" if why != "unreadable" else example)


def _chunks(pictures: Iterator[Named]) -> Iterator[list[Named]]:
    """Gather neighbours of one size, up to a number of pixels."""
    chunk: list[Named] = []
    for name, pixels in pictures:
        full = (len(chunk) + 1) * pixels[0].numel() > AT_ONCE
        if chunk and (full or pixels.shape != chunk[0][1].shape):
            yield chunk
            chunk = []
        chunk.append((name, pixels))
    if chunk:
        yield chunk


def _measured(
    chunk: list[Named], command: Command, dropped: dict[str, int], reasons: list[str]
) -> list[PictureSpectrum]:
    """Return the rows of a chunk; a picture without a useful range is left out by itself."""
    import torch

    from noisewright.methods.spectral_schedule.spectrum import rapsd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # padding: the table shows what it does to the levels
        spectrum = rapsd(torch.stack([pixels for _, pixels in chunk]), command.window)
    names = [name for name, _ in chunk]
    try:
        return _rows(names, spectrum, command)
    except InputError as error:
        if len(chunk) == 1:
            _drop("without a useful range", f"{names[0]}: {error}", dropped, reasons)
            return []
    return [row for one in chunk for row in _measured([one], command, dropped, reasons)]


def _rows(names: Sequence[str], spectrum: Spectrum, command: Command) -> list[PictureSpectrum]:
    from noisewright.methods.spectral_schedule.tight import TightSchedule
    from noisewright.methods.spectral_schedule.transfer import transfer_error
    from noisewright.paths import EDMSchedule, GaussianPath
    from noisewright.solvers import karras_times

    low, high = spectrum.noise_bounds(command.eps_max, command.eps_min)
    schedule = TightSchedule(spectrum, eps_max=command.eps_max, eps_min=command.eps_min)
    tight = schedule.sigmas(EDM_STEPS)
    edm = EDM_MAX * karras_times(GaussianPath(EDMSchedule(EDM_MAX)), EDM_STEPS, sigma_min=EDM_MIN)
    columns = (
        spectrum.slope,
        spectrum.power[:, 1].sqrt(),
        spectrum.power[:, -1].sqrt(),
        low,
        high,
        transfer_error(tight, spectrum)["log_spectrum"],
        transfer_error(edm, spectrum)["log_spectrum"],
    )
    values = zip(*(column.tolist() for column in columns), strict=True)
    return [
        PictureSpectrum(name, *spectrum.size, *row) for name, row in zip(names, values, strict=True)
    ]


def csv_text(found: Sequence[PictureSpectrum]) -> str:
    """Return one row per picture under a row of names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(PictureSpectrum)])
    for row in found:
        writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in astuple(row)])
    return text.getvalue()


def _show(found: Sequence[PictureSpectrum]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("file", overflow="fold")
    for head in ("size", "slope", "√S(1)", "√S(K)", "σ min", "σ max"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in found[:SHOWN]:
        table.add_row(escape(row.file), f"{row.height}×{row.width}", *_cells(row))
    if len(found) > SHOWN:
        table.add_row(f"[dim]... and {len(found) - SHOWN} more; --csv lists them all[/]")
    table.add_section()
    middle = [
        median([getattr(row, field.name) for row in found]) for field in fields(PictureSpectrum)[3:]
    ]
    table.add_row("[bold]median[/]", "", *_cells(PictureSpectrum("", 0, 0, *middle)))
    width = None if sys.stdout.isatty() else 120
    Console(highlight=False, width=width).print(table)


def _cells(row: PictureSpectrum) -> list[str]:
    levels = (row.sqrt_s_1, row.sqrt_s_k, row.sigma_min, row.sigma_max)
    return [f"{row.slope:.2f}", *(f"{level:.3g}" for level in levels)]


def _summarise(
    found: Sequence[PictureSpectrum], dropped: dict[str, int], *, to_errors: bool = False
) -> None:
    """Print what was left out, and which levels to use."""
    stream = sys.stderr if to_errors else sys.stdout
    if dropped:
        told = ", ".join(f"{count} {why}" for why, count in dropped.items())
        stream.write(f"left out: {told}\n")
    stream.write(recommendation(found) + "\n")


def recommendation(found: Sequence[PictureSpectrum]) -> str:
    """Return which levels to use for all pictures, and what that gains over EDM's."""
    low = math.exp(sum(math.log(row.sigma_min) for row in found) / len(found))
    high = math.exp(sum(math.log(row.sigma_max) for row in found) / len(found))
    octaves, usual = math.log2(high / low), math.log2(EDM_MAX / EDM_MIN)
    tight, edm = (
        median(getattr(row, f"error_{name}") for row in found) for name in ("tight", "edm")
    )
    better = "better" if tight < edm else "no better"
    sizes = {(row.height, row.width) for row in found}
    mixed = " (sizes differ: levels grow with the side, better one range per size)"
    return (
        f"one range for all: sigma {low:.3g} to {high:.3g}, spacing mixed with beta 0.75"
        f"{mixed if len(sizes) > 1 else ''}\n"
        f"that is {octaves:.1f} octaves where EDM's {EDM_MIN} to {EDM_MAX:.0f} has {usual:.1f}; "
        f"{EDM_STEPS} steps along each picture's own levels: log-spectrum error {tight:.2f} "
        f"against EDM's {edm:.2f} (closed form, median; {better})"
    )
