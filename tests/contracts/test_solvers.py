"""Every fixed-step solver passes every solver check."""

from __future__ import annotations

import pytest

from noisewright.solvers import (
    DDIM,
    DDPM,
    RK4,
    DPMSolverPP,
    Euler,
    EulerMaruyama,
    Heun,
    Midpoint,
)
from noisewright.testing import solver_checks

SOLVERS = {
    "euler": Euler(),
    "heun": Heun(),
    "midpoint": Midpoint(),
    "rk4": RK4(),
    "ddim": DDIM(),
    "ddim-half": DDIM(0.5),
    "ddpm": DDPM(),
    "euler-maruyama": EulerMaruyama(),
    "dpm++1": DPMSolverPP(1),
    "dpm++2": DPMSolverPP(2),
}


@pytest.mark.parametrize("check", solver_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", SOLVERS)
def test_solver_contract(name, check):
    check(SOLVERS[name])
