"""Walking back from noise to data: grids, deterministic, stochastic and multistep solvers.

The discrete ancestral solver arrives with the rooms that need it, as ``discrete.py``.
"""

from noisewright.solvers.accumulate import SUM_METHODS, Accumulated, Rates, walk_with_sums
from noisewright.solvers.grids import (
    check_times,
    karras_times,
    logsnr_times,
    table_indices,
    table_times,
    uniform_times,
)
from noisewright.solvers.likelihood import ElboTerms, elbo_terms, log_likelihood
from noisewright.solvers.multistep import DPMSolverPP
from noisewright.solvers.ode import RK4, AdaptiveODE, Euler, Heun, Midpoint, RungeKutta, Tableau
from noisewright.solvers.sde import (
    DDIM,
    DDPM,
    EulerMaruyama,
    StochasticSolver,
    Transition,
    path_log_density,
)
from noisewright.solvers.second_order import (
    SECOND_ORDER_METHODS,
    PhaseSolution,
    integrate_second_order,
)
from noisewright.solvers.walk import Solution, Solver, Step, Walk, Watch, count_calls

__all__ = [
    "DDIM",
    "DDPM",
    "RK4",
    "SECOND_ORDER_METHODS",
    "SUM_METHODS",
    "Accumulated",
    "AdaptiveODE",
    "DPMSolverPP",
    "ElboTerms",
    "Euler",
    "EulerMaruyama",
    "Heun",
    "Midpoint",
    "PhaseSolution",
    "Rates",
    "RungeKutta",
    "Solution",
    "Solver",
    "Step",
    "StochasticSolver",
    "Tableau",
    "Transition",
    "Walk",
    "Watch",
    "check_times",
    "count_calls",
    "elbo_terms",
    "integrate_second_order",
    "karras_times",
    "log_likelihood",
    "logsnr_times",
    "path_log_density",
    "table_indices",
    "table_times",
    "uniform_times",
    "walk_with_sums",
]
