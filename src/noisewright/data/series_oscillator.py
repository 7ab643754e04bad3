r"""A driven oscillator whose predictive law is known exactly: a test of forecasts with drivers.

Position x and velocity v, one step an hour, driven by a force that is known in advance:

.. math:: v \leftarrow v - (\omega^2 x + c v) + f + w, \qquad x \leftarrow x + v, \qquad
          y = x + \eta

with :math:`\omega = 2 \pi / 24` per hour, c = 0.05, :math:`w \sim N(0, 0.03^2)`,
:math:`\eta \sim N(0, 0.05^2)`, and f a telegraph signal of +-0.05 that switches every 6 to 48
hours. Everything is linear and Gaussian, so a Kalman filter gives the law of the future.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisewright.types import InputError

__all__ = ["DrivenOscillator", "PredictiveLaw"]

FREQUENCY, DAMPING = 2 * np.pi / 24, 0.05
PROCESS, NOISE, FORCE = 0.03, 0.05, 0.05
SWITCH = (6, 48)
STEP = np.array(
    [[1 - FREQUENCY**2, 1 - DAMPING], [-(FREQUENCY**2), 1 - DAMPING]]
)  # of (x, v): v moves first, then x by the new v
PUSH = np.array([1.0, 1.0])


@dataclass(frozen=True)
class PredictiveLaw:
    """The Gaussian law of the observations to come.

    Attributes:
        mean: (windows, horizon).
        covariance: (horizon, horizon), the same for all windows.
    """

    mean: np.ndarray
    covariance: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation per lead, (horizon,)."""
        return np.sqrt(np.diag(self.covariance))

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the exact ranked probability score per window and lead."""
        from scipy.stats import norm

        z = (y - self.mean) / self.spread
        tail = z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z)
        return self.spread * (tail - 1 / np.sqrt(np.pi))

    def log_score(self, y: np.ndarray) -> np.ndarray:
        """Return -log density of the whole horizon per window, nats."""
        gap = np.asarray(y) - self.mean
        sign, size = np.linalg.slogdet(2 * np.pi * self.covariance)
        assert sign > 0
        return 0.5 * (size + (gap * np.linalg.solve(self.covariance, gap.T).T).sum(axis=1))


@dataclass(frozen=True)
class DrivenOscillator:
    """A simulated series.

    Attributes:
        y: Observations (hours,).
        force: The force that drives the step into each hour (hours,): known in advance.

    Example:
        >>> series = DrivenOscillator.simulate(500, seed=0)
        >>> law = series.predict(np.array([400]), horizon=24)
        >>> law.mean.shape, bool(law.spread[0] < law.spread[-1])
        ((1, 24), True)
    """

    y: np.ndarray
    force: np.ndarray

    @classmethod
    def simulate(cls, hours: int, seed: int) -> DrivenOscillator:
        """Draw a series.

        Args:
            hours: Its length.
            seed: Of force, process and observation.
        """
        if hours < 1:
            raise InputError(f"hours={hours} must be at least 1")
        rng = np.random.default_rng(seed)
        spans = rng.integers(SWITCH[0], SWITCH[1] + 1, size=hours // SWITCH[0] + 1)
        sign = np.where(np.arange(len(spans)) % 2 == 0, 1.0, -1.0) * rng.choice([-1.0, 1.0])
        force = FORCE * np.repeat(sign, spans)[:hours]
        pushes = force + PROCESS * rng.standard_normal(hours)
        state, x = np.zeros(2), np.empty(hours)
        for hour in range(hours):
            state = STEP @ state + PUSH * pushes[hour]
            x[hour] = state[0]
        return cls(x + NOISE * rng.standard_normal(hours), force)

    def predict(
        self, starts: np.ndarray, horizon: int, force: np.ndarray | None = None
    ) -> PredictiveLaw:
        """Return the law of the hours from each start on, given all observations before it.

        Args:
            starts: First hours of the forecasts (windows,), at least 1.
            horizon: Hours ahead.
            force: Forces over the horizons instead of those of the series (windows, horizon).
        """
        starts = np.asarray(starts)
        if force is None:
            force = self.force[starts[:, None] + np.arange(horizon)]
        states, cover = self._filtered(int(starts.max()))
        mean, means = states[starts - 1], []
        for lead in range(horizon):
            mean = mean @ STEP.T + force[:, lead, None] * PUSH
            means.append(mean[:, 0])
        return PredictiveLaw(np.stack(means, axis=1), _future_covariance(cover, horizon))

    def _filtered(self, hours: int) -> tuple[np.ndarray, np.ndarray]:
        """Return E[state] after each observation, and the covariance that it settles at."""
        cover = _settled_covariance()
        predicted = STEP @ cover @ STEP.T + PROCESS**2 * np.outer(PUSH, PUSH)
        gain = predicted[:, 0] / (predicted[0, 0] + NOISE**2)
        states, state = np.empty((hours, 2)), np.zeros(2)
        for hour in range(hours):
            ahead = STEP @ state + PUSH * self.force[hour]
            state = states[hour] = ahead + gain * (self.y[hour] - ahead[0])
        return states, cover


def _settled_covariance() -> np.ndarray:
    """Return the covariance of the state given its past, once the start is forgotten."""
    cover = np.eye(2)
    for _ in range(500):
        ahead = STEP @ cover @ STEP.T + PROCESS**2 * np.outer(PUSH, PUSH)
        gain = ahead[:, 0] / (ahead[0, 0] + NOISE**2)
        cover = ahead - np.outer(gain, ahead[0])
    return cover


def _future_covariance(cover: np.ndarray, horizon: int) -> np.ndarray:
    """Return the covariance of the observations over the horizon."""
    powers = [np.eye(2)]
    for _ in range(horizon):
        powers.append(STEP @ powers[-1])
    start = np.stack([power[0] for power in powers[1:]])  # x at each lead per unit of state
    pushes = np.array([power[0] @ PUSH for power in powers[:horizon]])
    lag = np.subtract.outer(np.arange(horizon), np.arange(horizon))
    response = np.where(lag >= 0, pushes[np.maximum(lag, 0)], 0.0)
    return start @ cover @ start.T + PROCESS**2 * response @ response.T + NOISE**2 * np.eye(horizon)
