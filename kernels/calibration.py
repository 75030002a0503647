"""A calibration of the model to this host's GPU: measure, fit, judge. Nothing is stored here.

Each step runs in a GPU process; what the GPU was doing, what its rows show and what came out may
each refuse the result (``kernels.calibration_rules``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from kernels import calibration_rules as rules
from kernels.bench import compile_all
from kernels.calibration_rules import Refusal
from kernels.calibration_worker import Basis, FitResult, FitTask, Timed, design_rows, fit_rows
from kernels.ceilings import copy_bandwidth, read_bandwidth, tensor_peak
from kernels.errors import GpuLost
from kernels.gpu_lock import RELEASE_S, release, take_in
from kernels.host import HostGpu, gpu_use
from kernels.process import Worker
from kernels.sources import commit as own_commit
from kernels.steps import call_step, value_of
from kernels.sweep_host import host_facts, lasting
from kernels.sweep_runner import Figures, SweepRunner, read_device_facts
from kernels.verify import require_gpu
from solver.calibration.design import ROWS as DESIGN_ROWS
from solver.calibration.design import SEED, CalibrationDesign
from solver.device import load_profile, parse_profile, why_unfit
from solver.limits import check_integer

ROWS_MIN, ROWS_MAX = 40, 2000
SEED_MAX = 2**31 - 1
STEP_DEADLINE_S = 60.0
ARITHMETIC_DEADLINE_S = 600.0
CEILINGS = (read_bandwidth, copy_bandwidth, tensor_peak)
KEPT = (
    *("gpu", "uuid", "driver", "nvrtc", "commit", "source_hash", "copy_hash", "date"),
    *("scratch", "seed", "rows", "fresh_rows", "problems", "kernels"),
)
"""Of the record, what goes into the profile."""

Tell = Callable[[str, int, int], None]
"""Hears how far a calibration is: the step, how much of it is done, of how much."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for. ``scratch``: forget the present constants, begin from the datasheet and
    from microbenchmarks. ``commit`` names it where this is no checkout.

    Raises InvalidInput for a value out of its limits.
    """

    scratch: bool = False
    seed: int = SEED
    rows: int = DESIGN_ROWS
    commit: str | None = None

    def __post_init__(self) -> None:
        check_integer("seed", self.seed, 0, SEED_MAX)
        check_integer("rows", self.rows, ROWS_MIN, ROWS_MAX)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What came of it: the profile's text, None where it was refused before there was one; why it
    must not be stored, None where it may; a record of JSON values; the rows it was judged by."""

    device: str
    text: str | None
    refusal: Refusal | None
    record: dict[str, Any]
    fresh: tuple[Timed, ...] = ()


def calibrate(asked: Asked, worker: Worker, tell: Tell, uuid: str | None = None) -> Calibration:
    """Measure, fit, judge; ``uuid`` as in ``kernels.verify.verify``. Nothing is stored.

    Raises GpuAbsent, NoKernelFamily, CompilerAbsent, UnusableProfile where the present one can't be
    read, GpuLost where the GPU or its process fails, and StepFailed where a step goes wrong
    for another reason.
    """
    gpu, device = require_gpu(uuid)
    load_profile(device)
    begun = time.monotonic()
    value_of(take_in(worker, gpu.uuid), "the GPU's lock")
    try:
        return _Run(asked, worker, tell, gpu, device, begun).whole()
    finally:
        if worker.running:
            worker.call(release, (), RELEASE_S)


class _Run:
    """One calibration; its record grows as it goes."""

    def __init__(
        self,
        asked: Asked,
        worker: Worker,
        tell: Tell,
        gpu: HostGpu,
        device: str,
        begun: float,
    ) -> None:
        self._asked, self._worker, self._tell = asked, worker, tell
        self._gpu, self._device, self._begun = gpu, device, begun
        self._times: dict[int, dict[int, float]] = {0: {}, 1: {}}
        self._figures: list[Figures] = []
        self._fresh: tuple[Timed, ...] = ()
        self.record: dict[str, Any] = {
            "device": device,
            "gpu": gpu.name,
            "uuid": gpu.uuid,
            "driver": gpu.driver,
            "scratch": asked.scratch,
            "seed": asked.seed,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def whole(self) -> Calibration:
        """Every step until one refuses."""
        facts = read_device_facts(self._worker)
        host = host_facts(self._gpu, facts)
        self.record |= {n: host[n] for n in ("nvrtc", "packages", "source_hash", "copy_hash")}
        self.record["commit"] = self._asked.commit or own_commit()
        self._tell("look", 0, 1)
        use = gpu_use(self._gpu.uuid, own_contexts=1)
        self._tell("look", 1, 1)
        self.record["use"] = asdict(use)
        refusal = rules.of_use(use)
        if refusal is not None:
            return self._ended(None, refusal)
        basis = Basis(
            self._device,
            {name: facts[name] for name in ("sms", "l2_bytes")},
            self._ceilings(),
            self._asked.scratch,
        )
        design = self._design(basis)
        self._measure(design)
        refusal = (
            rules.of_rows(self._figures, use.highest_clock_mhz)
            or rules.of_repeats(*self._times.values())
            or rules.of_use(gpu_use(self._gpu.uuid, own_contexts=1))
        )
        if refusal is not None:
            return self._ended(None, refusal)
        result = self._fit(basis, design)
        refusal = rules.of_errors(
            result.present_error, result.calibrated_error, self.record["fresh_rows"]
        ) or rules.of_profile(why_unfit(parse_profile(result.text), self._device))
        return self._ended(result.text, refusal)

    def _ended(self, text: str | None, refusal: Refusal | None) -> Calibration:
        self.record["seconds"] = round(time.monotonic() - self._begun, 1)
        return Calibration(self._device, text, refusal, self.record, self._fresh)

    def _ceilings(self) -> dict[str, float]:
        ceilings: dict[str, float] = {}
        for done, step in enumerate(CEILINGS):
            self._tell("ceilings", done, len(CEILINGS))
            ceilings |= call_step(self._worker, step, (), STEP_DEADLINE_S)
        self._tell("ceilings", len(CEILINGS), len(CEILINGS))
        self.record["ceilings"] = ceilings
        return {n: v for n, v in ceilings.items() if n.endswith(("_per_s", "_tflops"))}

    def _design(self, basis: Basis) -> CalibrationDesign:
        self._tell("design", 0, 1)
        asked = self._asked
        design: CalibrationDesign = call_step(
            self._worker, design_rows, (basis, asked.seed, asked.rows), ARITHMETIC_DEADLINE_S
        )
        self._tell("design", 1, 1)
        self.record |= {
            "planned": len(design.rows),
            "problems": len({row.problem for row in design.rows}),
        }
        return design

    def _measure(self, design: CalibrationDesign) -> None:
        keys = sorted({row.key for row in design.rows})
        self.record["kernels"] = len(keys)
        compiled = 0

        def advance() -> None:
            nonlocal compiled
            if self._worker.halted:
                raise GpuLost("the calibration was ended while it compiled")
            compiled += 1
            self._tell("compile", compiled, len(keys))

        failures = lasting(compile_all(keys, advance))
        measuring, total = time.monotonic(), len(design.rows) + len(design.repeated)

        def done(row: int, turn: int, figures: Figures) -> None:
            self._figures.append(figures)
            if figures.median_us is not None:
                self._times[turn][row] = figures.median_us
            self._tell("measure", len(self._figures), total)

        runner = SweepRunner(
            design.rows, self._device, failures, done, self._worker, alone_on=self._gpu.uuid
        )
        runner.run(design.visits())
        self.record["measuring_seconds"] = round(time.monotonic() - measuring, 1)
        self.record["failed"] = sum(f.reason is not None for f in self._figures)

    def _fit(self, basis: Basis, design: CalibrationDesign) -> FitResult:
        times = self._times[0]

        def timed(places: Sequence[int]) -> tuple[Timed, ...]:
            return tuple(Timed(design.rows[p], times[p]) for p in places if p in times)

        fitted, fresh = timed(design.fitted), timed(design.fresh)
        self._fresh = fresh
        self.record |= {"rows": len(fitted), "fresh_rows": len(fresh)}
        calibration = {name: self.record[name] for name in KEPT}
        where = f"{self.record['date'][:10]}, {len(fitted)} rows on one {self._gpu.name}"
        task = FitTask(basis, fitted, fresh, calibration, where)

        def hear(facts: dict[str, Any]) -> None:
            if "done" in facts:
                self._tell("fit", facts["done"], facts["total"])

        result: FitResult = call_step(self._worker, fit_rows, (task,), ARITHMETIC_DEADLINE_S, hear)
        self.record |= {
            "error_present": result.present_error,
            "error": result.calibrated_error,
            "fitted_error_before": result.fitted_error_before,
            "fitted_error": result.fitted_error,
            "steps": result.steps,
        }
        return result
