"""Runs and what they leave behind: stages, claims, metrics, figures, reports, the scoreboard.

An experiment gets a :class:`~noisewright.reports.run.Run`; everything it computes that is slow is a
stage of it, everything it measures is recorded by key, and everything it shows is a figure or a
table. :func:`~noisewright.reports.run.execute` turns that into the files of a run folder.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
