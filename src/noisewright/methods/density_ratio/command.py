"""``noisewright density_ratio --h5ad F --condition C --out G.h5ad``: score a file of cells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisewright.reports.command import parse_command, say
from noisewright.types import InputError

__all__ = ["Command", "chosen_pair", "main", "number_or_auto"]


@dataclass(frozen=True)
class Command:
    """Write how much likelier each cell's state is under one condition into an h5ad file."""

    h5ad: Path
    """Cells, an AnnData file."""
    condition: str
    """Column of obs with the condition of each cell."""
    out: Path
    """Where the scored cells go, an .h5ad file."""
    numerator: str | None = None
    """Condition in the numerator; needed with more than two."""
    denominator: str | None = None
    """Condition in the denominator; needed with more than two."""
    rep: str = "X_pca"
    """Coordinates: a key of obsm, or X."""
    n_dims: int = 20
    """Leading coordinates that are used."""
    groupby: str | None = None
    """Column of obs to sum the effect up by."""
    sample: str | None = None
    """Column of obs with the sample of each cell, for intervals over samples."""
    key: str = "log_density_ratio"
    """Name of the result in obs and uns."""
    sigma_min: float = 0.1
    """Blur, in units of the coordinates' common scale."""
    blur: str = "auto"
    """Blur of the ratio in the same units, or auto: what predicts the conditions of new cells."""
    hidden: tuple[int, ...] = (128, 128, 128)
    """Width of each block of the network."""
    steps: int = 1000
    """Optimizer steps of each model."""
    lr: float = 1e-3
    """Learning rate."""
    cv: int = 5
    """Folds: each cell is scored by a model that has not seen it."""
    n_steps: int = 20
    """Steps of the solver."""
    device: str = "auto"
    """cpu, cuda, ..."""
    seed: int = 0
    """Seed of everything random."""


def main(args: list[str]) -> int:
    """Run the command.

    Args:
        args: What follows ``noisewright density_ratio``.

    Returns:
        Exit code 0.

    Raises:
        InputError: If the file, a column or a setting cannot work.
        SystemExit: With code 2 for flags that do not exist, 0 after ``--help``.
    """
    command = parse_command(Command, args, "density_ratio")
    if command.out.suffix.lower() != ".h5ad":
        raise InputError(f"--out {command.out}: give the name of an .h5ad file")

    from noisewright.data.cells import describe_cells, read_cells
    from noisewright.methods.density_ratio.cells import CellStateRatio

    cells = read_cells(command.h5ad)
    say(describe_cells(cells, str(command.h5ad)))
    try:
        a, b = chosen_pair(cells, command.condition, command.numerator, command.denominator)
        model = CellStateRatio(
            cells,
            command.condition,
            rep=command.rep,
            n_dims=command.n_dims,
            sigma_min=command.sigma_min,
            blur=number_or_auto(command.blur),
            hidden=command.hidden,
            steps=command.steps,
            lr=command.lr,
            cv=command.cv,
            device=command.device,
            random_state=command.seed,
        )
        if command.groupby is not None and command.groupby not in cells.obs:
            raise KeyError(f"obs has no {command.groupby!r}")
        r = model.fit().score(a, b, command.key, n_steps=command.n_steps)
        say(f"log p({a}) / p({b}), nats: mean {r.mean():+.3f}, from {r.min():.2f} to {r.max():.2f}")
        if command.groupby is not None:
            effect = model.treatment_effect(a, b, command.groupby, command.sample)
            say(effect.to_string(float_format=lambda value: f"{value:.3f}"))
    except (KeyError, TypeError) as error:
        raise InputError(str(error.args[0])) from error
    _write(cells, command.out)
    say(str(command.out))
    return 0


def chosen_pair(cells: Any, key: str, numerator: str | None, denominator: str | None) -> tuple:
    """Return the two conditions as they stand in the column, which may hold numbers.

    Raises:
        KeyError: If the column or a condition does not exist.
        InputError: If the choice is not clear.
    """
    if key not in cells.obs:
        raise KeyError(f"obs has no {key!r}; there are {', '.join(map(str, cells.obs.columns))}")
    known = {str(value): value for value in sorted(set(cells.obs[key].dropna()), key=str)}
    if numerator is None and denominator is None and len(known) == 2:
        denominator, numerator = known
    if numerator is None or denominator is None:
        raise InputError(
            f"{key!r} holds {len(known)} conditions ({', '.join(list(known)[:10])}); "
            "give --numerator and --denominator"
        )
    for name in (numerator, denominator):
        if name not in known:
            raise KeyError(f"{key!r} holds no {name!r}; known: {', '.join(list(known)[:10])}")
    return known[numerator], known[denominator]


def number_or_auto(text: str) -> float | str:
    """Return a number, or ``"auto"``.

    Raises:
        InputError: If it is neither.

    Example:
        >>> number_or_auto("0.3"), number_or_auto("auto")
        (0.3, 'auto')
    """
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--blur must be a number or auto, got {text!r}") from None


def _write(cells: Any, path: Path) -> None:
    """Write beside the file and move it into place, so that a reader never sees a part."""
    import os
    import tempfile
    import warnings

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        part = Path(folder) / "part.h5ad"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on what the file held before
            cells.write_h5ad(part)
        os.replace(part, path)
