"""One GPU of this process: its profile, its kernels, its streams' scratch, its picks."""

from __future__ import annotations

import threading
from typing import Any

import cupy as cp

from kernels.calls.once import Once
from kernels.calls.scratch import StreamScratch
from kernels.compile import check_compiled, compile_kernel
from kernels.errors import TableRefused
from kernels.host import family_profile
from kernels.launch import LoadedKernel
from kernels.launch_plan import LaunchPlan, plan_launch
from kernels.picks import PickTable
from solver.config import Config
from solver.device import load_profile
from solver.errors import IllegalConfig
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.pick import best_rows
from solver.problem import Problem
from solver.space import tabulate

MODEL = "calibrated"
PREPARED_MAX = 4096
"""Problems whose picks and plans are kept; the oldest goes first."""

PER_THREAD = 2
"""The handle of CUDA's default stream of each thread: another stream in every thread."""


class GpuDevice:
    """CUDA's device ``index``. Raises NoKernelFamily where no kernel runs on it."""

    def __init__(self, index: int) -> None:
        properties = cp.cuda.runtime.getDeviceProperties(index)
        name = properties["name"]
        self.index = index
        self.profile = load_profile(
            family_profile(name.decode() if isinstance(name, bytes) else str(name))
        )
        self.sms = int(properties["multiProcessorCount"])
        self._kernels: Once[LoadedKernel] = Once()
        self._prepared: Once[tuple[LaunchPlan, LoadedKernel]] = Once(PREPARED_MAX)
        self._scratch: Once[StreamScratch] = Once()

    def is_ready(self, problem: Problem, config: Config | None, table: PickTable | None) -> bool:
        """Whether a product's launch has been prepared before."""
        return (problem, config, table) in self._prepared

    def prepare(
        self, problem: Problem, config: Config | None, table: PickTable | None
    ) -> tuple[LaunchPlan, LoadedKernel]:
        """The launch of a configuration, else of the pick, for a problem: its plan and its kernel,
        compiled or from the cache, loaded once.

        Raises TableRefused, IllegalConfig, and what compiling and loading raise.
        """
        return self._prepared.get(
            (problem, config, table),
            lambda: self._made(problem, self._pick(problem, table) if config is None else config),
        )

    def _made(self, problem: Problem, config: Config) -> tuple[LaunchPlan, LoadedKernel]:
        legality.check(config, problem, self.profile)
        key = family.compile_key(config, problem.dtype, problem.kernel_layout)
        kernel = self._kernels.get(key, lambda: LoadedKernel.load(compile_kernel(key)))
        check_compiled(kernel.compiled, config, self.profile)
        return plan_launch(problem, config, self.sms), kernel

    def scratch(self, stream: Any) -> StreamScratch:
        """The scratch of one of its streams."""
        key = (int(stream.ptr), threading.get_ident() if stream.ptr == PER_THREAD else 0)
        return self._scratch.get(key, lambda: StreamScratch(stream))

    def _pick(self, problem: Problem, table: PickTable | None) -> Config:
        if table is not None:
            table.require(self.profile)
            found = table.find(problem)
            if found is not None:
                try:
                    legality.check(found, problem, self.profile)
                except IllegalConfig as error:  # of a field that the caller never wrote
                    size = f"{problem.m} x {problem.n} x {problem.k}"
                    words = f"{table.origin}, the configuration of {size}: {error}"
                    raise TableRefused(words) from error
                return found
        return best_rows(tabulate(problem, self.profile, MODEL))[0].config
