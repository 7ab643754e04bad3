"""What a run ran on: versions, processor, threads, the code's commit; nothing personal.

No host name, no user name, and no absolute path: paths in the command line are shortened.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noisewright.version import __version__

__all__ = ["code_commit", "describe_environment", "shown_command", "shown_path"]

_PACKAGES = (
    "torch", "numpy", "scipy", "scikit-learn", "scikit-image", "accelerate", "matplotlib",
    "joblib", "diffusers", "transformers",
)  # fmt: skip


def shown_path(text: str) -> str:
    """Return a path relative to here, else from ~, else its last part behind an ellipsis."""
    path = Path(text)
    for root, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path == root:
            return prefix.rstrip("/") or "."
        if root != Path("/") and path.is_relative_to(root):
            return prefix + str(path.relative_to(root))
    return f".../{path.name}"


def shown_command(words: Sequence[str]) -> str:
    """Return a command line for people, without absolute paths.

    Example:
        >>> shown_command(["noisewright", "run", "parpic", "--data=/some/where/edges.csv"])
        'noisewright run parpic --data=.../edges.csv'
    """
    shown = []
    for word in words:
        flag, equals, value = word.partition("=")
        if word.startswith("/"):
            word = shown_path(word)
        elif equals and value.startswith("/"):
            word = f"{flag}={shown_path(value)}"
        # shlex would quote a leading ~, which then no longer means home.
        shown.append(word if word.startswith("~/") and " " not in word else shlex.quote(word))
    return " ".join(shown)


def _git(*words: str) -> str | None:
    package = Path(__file__).resolve().parents[1]
    try:
        done = subprocess.run(
            ["git", "-C", str(package), *words], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def code_commit() -> str | None:
    """Return the git commit of the code, with ``+`` if files were changed; None if not in git."""
    if _git("ls-files", "--error-unmatch", "types.py") is None:
        return None
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", ".")
    return f"{commit}+" if commit and changed else commit


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _torch_facts(device: str) -> dict[str, Any]:
    import torch

    facts: dict[str, Any] = {
        "cuda": torch.version.cuda,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    if device.startswith("cuda") and torch.cuda.is_available():
        facts["accelerator"] = torch.cuda.get_device_name(device)
    return facts


def describe_environment(
    command: Sequence[str], *, device: str = "cpu", jobs: int = 1, threads: int = 1
) -> dict[str, Any]:
    """Return the content of ``environment.json``.

    Args:
        command: The command line, as words.
        device: Device of the run.
        jobs: Tasks side by side.
        threads: Threads of each task.
    """
    from noisewright.parallel import available_cores

    return {
        "noisewright": __version__,
        "commit": code_commit(),
        "python": platform.python_version(),
        "packages": _versions(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": available_cores(),
        "cores_of_machine": os.cpu_count(),
        "jobs": jobs,
        "threads": threads,
        "device": device,
        "torch": _torch_facts(device),
        "hash_seed": os.environ.get("PYTHONHASHSEED", "random"),
        "byte_order": sys.byteorder,
        "command": shown_command(command),
    }
