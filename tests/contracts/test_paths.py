"""Every schedule, shared and per sample, passes every path check."""

from __future__ import annotations

import pytest
import torch

from noisewright.paths import (
    CosineSchedule,
    EDMSchedule,
    GaussianPath,
    LinearBetaSchedule,
    RectifiedSchedule,
    ShiftedCosineSchedule,
    SigmoidSchedule,
    TableSchedule,
    VariancePreserving,
)
from noisewright.testing import path_checks


def three(*values):
    return torch.tensor(values, dtype=torch.float64)


PATHS = {
    "rectified": GaussianPath(RectifiedSchedule()),
    "rectified-scaled": GaussianPath(RectifiedSchedule(), scale=2.5),
    "rectified-scale-per-sample": GaussianPath(RectifiedSchedule(), scale=three(0.5, 1.0, 3.0)),
    "cosine": GaussianPath(CosineSchedule()),
    "shifted": GaussianPath(ShiftedCosineSchedule(4.0)),
    "shifted-per-sample": GaussianPath(ShiftedCosineSchedule(three(0.5, 1.0, 4.0))),
    "linear-beta": GaussianPath(LinearBetaSchedule()),
    "linear-beta-per-sample": GaussianPath(LinearBetaSchedule(beta_max=three(10.0, 20.0, 30.0))),
    "sigmoid": GaussianPath(SigmoidSchedule()),
    "sigmoid-per-sample": GaussianPath(SigmoidSchedule(temperature=three(0.7, 1.0, 1.5))),
    "edm": GaussianPath(EDMSchedule()),
    "edm-per-sample": GaussianPath(EDMSchedule(three(10.0, 80.0, 160.0))),
    "edm-vp": GaussianPath(VariancePreserving(EDMSchedule(three(10.0, 80.0, 160.0)))),
    "table": GaussianPath(TableSchedule(torch.linspace(0.9991, 0.0047, 100, dtype=torch.float64))),
}


@pytest.mark.parametrize("check", path_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", PATHS)
def test_path_contract(name, check):
    check(PATHS[name])
