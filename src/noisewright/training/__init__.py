"""One training loop, the average of the weights, and checkpoints that resume bit for bit."""

from noisewright.training.average import Average
from noisewright.training.best import Best, train_to_best
from noisewright.training.checkpoint import latest_checkpoint, read_checkpoint
from noisewright.training.loop import Loss, Training, TrainStep, fit
from noisewright.training.plan import Plan

__all__ = [
    "Average",
    "Best",
    "Loss",
    "Plan",
    "TrainStep",
    "Training",
    "fit",
    "latest_checkpoint",
    "read_checkpoint",
    "train_to_best",
]
