"""A sweep of 25 rows that takes its time, in a process to be killed: ``FOLDER`` as argument."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from rich.console import Console

import kernels.sweep
import kernels.sweep_host
from solver.config import Config
from solver.problem import Problem
from tests.kernels.test_sweep import ScriptedWorker, small_design


def slowly(problem: Problem, config: Config) -> None:
    time.sleep(0.15)


def main() -> None:
    sweep: Any = kernels.sweep
    sweep.require_gpu = lambda: (SimpleNamespace(name="NVIDIA H200", driver="580.1"), "h200")
    sweep.make_design = lambda device, rows, seed: small_design(seed)
    host: Any = kernels.sweep_host
    host.precompile = lambda keys, progress: {}
    host.nvrtc_version = lambda: "13.5"
    sweep.Worker = lambda: ScriptedWorker(slowly)
    sweep.run_sweep(sweep.Sweep(Path(sys.argv[1])), Console(stderr=True, quiet=True))


if __name__ == "__main__":
    main()
