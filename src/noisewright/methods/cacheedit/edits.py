"""A language of edits whose right answer is known exactly: one operation on one cell of a picture.

A picture is cut into 4 x 4 cells. An instruction is (operation, row, column), written as three
tokens of a vocabulary of 16: six operations, four rows, four columns, two unused.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from noisewright.random import derive_seed
from noisewright.types import InputError

__all__ = [
    "CELLS",
    "NOTICED",
    "OPERATIONS",
    "VOCABULARY",
    "Pairs",
    "applied",
    "cell_mask",
    "conversations",
]

OPERATIONS = ("invert", "grey", "mirror", "red", "green", "blue")
CELLS = 4
VOCABULARY = 16

NOTICED = 0.1
"""Mean change of a cell's values, which span 2, that counts as an edit."""


def cell_mask(
    instructions: Int[Tensor, "batch 3"], height: int, width: int
) -> Bool[Tensor, "batch height width"]:
    """Return which places of a grid an instruction is about.

    Args:
        instructions: Operation, row and column.
        height: Rows of the grid, a multiple of 4: pixels, or tokens.
        width: Columns, likewise.

    Example:
        >>> cell_mask(torch.tensor([[0, 0, 3]]), 4, 4)[0].nonzero().tolist()
        [[0, 3]]
    """
    if height % CELLS or width % CELLS:
        raise InputError(f"a grid of {height} x {width} cannot be cut into {CELLS} x {CELLS} cells")
    row, column = (
        torch.arange(side, device=instructions.device) // (side // CELLS)
        for side in (height, width)
    )
    inside_row = instructions[:, 1, None] == row
    inside_column = instructions[:, 2, None] == column
    return inside_row[:, :, None] & inside_column[:, None, :]


def applied(
    pictures: Float[Tensor, "batch 3 height width"], instructions: Int[Tensor, "batch 3"]
) -> Float[Tensor, "batch 3 height width"]:
    """Return pictures after an instruction each, exactly.

    Args:
        pictures: In [-1, 1]; sides are multiples of 4.
        instructions: Operation (as in ``OPERATIONS``), row, column.

    Example:
        >>> picture = torch.full((1, 3, 4, 4), 0.5)
        >>> applied(picture, torch.tensor([[0, 1, 2]]))[0, 0]
        tensor([[ 0.5000,  0.5000,  0.5000,  0.5000],
                [ 0.5000,  0.5000, -0.5000,  0.5000],
                [ 0.5000,  0.5000,  0.5000,  0.5000],
                [ 0.5000,  0.5000,  0.5000,  0.5000]])
    """
    edited = pictures.clone()
    grid = edited.unflatten(3, (CELLS, -1)).unflatten(2, (CELLS, -1))
    place = (torch.arange(len(pictures)), slice(None), instructions[:, 1], slice(None))
    place = (*place, instructions[:, 2])
    cells = grid[place]
    for number, name in enumerate(OPERATIONS):
        wanted = instructions[:, 0] == number
        cells[wanted] = _changed(cells[wanted], name)
    grid[place] = cells
    return edited


def _changed(cells: Float[Tensor, "batch 3 height width"], operation: str) -> Tensor:
    """Return cells after an operation."""
    if operation == "invert":
        return -cells
    if operation == "grey":
        return cells.mean(dim=1, keepdim=True).expand_as(cells)
    if operation == "mirror":
        return cells.flip(-1)
    tint = -torch.ones(3, 1, 1)
    tint[("red", "green", "blue").index(operation)] = 1
    return (cells + tint) / 2


def conversations(
    pictures: Float[Tensor, "count 3 height width"], rounds: int, *, seed: int
) -> tuple[Int[Tensor, "count rounds 3"], Float[Tensor, "count states 3 height width"]]:
    """Return random instructions about pictures, and the pictures that they should lead to.

    No cell is edited twice, and every instruction changes its cell: an operation that would move
    it by less than ``NOTICED`` in the mean (grey on grey, mirror on a flat cell) is drawn again.

    Args:
        pictures: In [-1, 1].
        rounds: Instructions about each, at most 16.
        seed: Of the draws.

    Returns:
        Instructions, and the pictures before the first and after each of them.

    Raises:
        InputError: If there are more rounds than cells.
    """
    if not 1 <= rounds <= CELLS**2:
        raise InputError(f"rounds={rounds} must be from 1 to {CELLS**2}: no cell is edited twice")
    stream = torch.Generator().manual_seed(derive_seed(seed, "conversations"))
    count, states, asked = len(pictures), [pictures], []
    order = torch.rand(count, CELLS**2, generator=stream).argsort(dim=1)
    for number in range(rounds):
        place = torch.stack([order[:, number] // CELLS, order[:, number] % CELLS], dim=1)
        wish = torch.rand(count, len(OPERATIONS), generator=stream)
        wish = torch.where(_moved(states[-1], place) < NOTICED, wish - 1, wish)
        asked.append(torch.cat([wish.argmax(dim=1, keepdim=True), place], dim=1))
        states.append(applied(states[-1], asked[-1]))
    return torch.stack(asked, dim=1), torch.stack(states, dim=1)


def _moved(pictures: Tensor, place: Tensor) -> Float[Tensor, "count operations"]:
    """Return the mean change of a cell under each operation."""
    grid = pictures.unflatten(3, (CELLS, -1)).unflatten(2, (CELLS, -1))
    cells = grid[torch.arange(len(pictures)), :, place[:, 0], :, place[:, 1]]
    changes = [(_changed(cells, name) - cells).abs().mean(dim=(1, 2, 3)) for name in OPERATIONS]
    return torch.stack(changes, dim=1)


@dataclass(frozen=True)
class Pairs:
    """Training examples.

    Attributes:
        source: Pictures before, uint8.
        target: Pictures after, uint8.
        instructions: What was asked.
    """

    source: Tensor
    target: Tensor
    instructions: Tensor

    @classmethod
    def draw(cls, pictures: Tensor, count: int, *, seed: int) -> Pairs:
        """Return pairs from pictures that had 0 to 2 random edits already.

        Args:
            pictures: uint8, (n, 3, height, width).
            count: Pairs.
            seed: Of the draws.
        """
        stream = torch.Generator().manual_seed(derive_seed(seed, "pairs"))
        chosen = torch.randint(len(pictures), (count,), generator=stream)
        floats = pictures[chosen].float() / 127.5 - 1
        asked, states = conversations(floats, 3, seed=derive_seed(seed, "pairs"))
        rows, before = torch.arange(count), torch.randint(3, (count,), generator=stream)
        source, target = (_bytes(states[rows, before + more]) for more in (0, 1))
        return cls(source, target, asked[rows, before])


def _bytes(pictures: Tensor) -> Tensor:
    return ((pictures + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
