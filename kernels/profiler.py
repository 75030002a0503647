"""Runs a program under Nsight Compute and hands over its raw page.

``ncu`` must be on the path, and allowed to read the GPU's counters: many drivers keep them to
administrators. What is profiled lies between ``profilerStart`` and ``profilerStop``. Times under it
are longer than measured ones; shares of what the hardware can do are what is read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from kernels.errors import ProfilerUnusable

LIMIT_S = 120
SECTIONS = (
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "WarpStateStats",
    "LaunchStats",
    "Occupancy",
)
FORBIDDEN = "ERR_NVGPUCTRPERM"
WORDS = 400


def find_ncu() -> str:
    """Where Nsight Compute's command is. Raises ProfilerUnusable where it is not on the path."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise ProfilerUnusable(
            "Nsight Compute's ncu is not on the path; it comes with the CUDA toolkit, in its bin"
            " folder, or by itself (Debian and Ubuntu: nsight-compute)"
        )
    return ncu


def run_profiled(
    ncu: str, module: str, arguments: Sequence[str], *, limit_s: float = LIMIT_S
) -> str:
    """The raw page, as CSV, of what ``python -m module`` launches.

    Raises ProfilerUnusable where counters may not be read, where it does not end within
    ``limit_s``, and, with the last that was said, where nothing was profiled.
    """
    sections = [word for name in SECTIONS for word in ("--section", name)]
    options = ["--profile-from-start", "off", "--clock-control", "none", "--csv", "--page", "raw"]
    command = [ncu, *options, *sections, sys.executable, "-m", module, *arguments]
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            env={**os.environ, "PYTHONPATH": paths, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        raise ProfilerUnusable(f"ncu did not end within {limit_s:g} s") from error
    except OSError as error:
        raise ProfilerUnusable(f"ncu can't be started: {error}") from error
    said = (done.stdout + done.stderr).strip()
    if FORBIDDEN in said:
        raise ProfilerUnusable(
            f"ncu may not read the GPU's performance counters here ({FORBIDDEN}): run as an "
            "administrator, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
        )
    if done.returncode or '"Kernel Name"' not in done.stdout:
        raise ProfilerUnusable(f"ncu profiled nothing: {said[-WORDS:] or 'it said nothing'}")
    return done.stdout
