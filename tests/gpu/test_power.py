"""Holding a GPU: what its energy counter and its driver tell of it."""

from __future__ import annotations

from kernels.power.meter import HOLD
from kernels.power.worker import HoldTask, power_facts, run_holds
from kernels.process import Worker
from solver.config import Config
from solver.problem import Problem

LARGE = Config("sm90_gemm", 128, 256, 64, 4, math_warpgroups=2)
SMALL = Config("sm90_gemm", 64, 64, 64, 4)


def test_a_hold_draws_more_than_an_idle_device_and_no_more_than_its_limit(
    worker: Worker, device: str
) -> None:
    facts = worker.call(power_facts, (), 300.0).value
    task = HoldTask(Problem(4096, 4096, 4096), (LARGE, SMALL), device, "cold", 1, 3)
    found = worker.call(run_holds, (task,), 300.0).value
    assert found.failure is None
    for (held,) in found.holds:
        assert facts["idle_power_w"] < held.power_w < 1.05 * facts["power_limit_w"]
        assert held.span_s >= HOLD.hold_s
        assert held.energy_j == held.power_w * held.launch_us / 1e6
        # The driver's readings are means of the second before, in part of a device that settles.
        assert facts["idle_power_w"] < held.driver_power_w < 1.05 * held.power_w
        assert held.driver_power_w > 0.75 * held.power_w


def test_holds_of_one_configuration_agree(worker: Worker, device: str) -> None:
    task = HoldTask(Problem(2048, 2048, 2048), (LARGE,), device, "cold", rounds=3)
    (holds,) = worker.call(run_holds, (task,), 300.0).value.holds
    powers = [held.power_w for held in holds]
    assert max(powers) < 1.05 * min(powers)
