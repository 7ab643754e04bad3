from .claims import Judged, judge, load_claims
from .html import render_report
from .run import Options, Run, RunResult, execute
from .scoreboard import render_scoreboard
from .stages import Stage

__all__ = [
    "Judged",
    "Options",
    "Run",
    "RunResult",
    "Stage",
    "execute",
    "judge",
    "load_claims",
    "render_report",
    "render_scoreboard",
]
