"""Where a launch hangs: records of played launches, and what is said of them."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import kernels.verify
import kernels.watch
from bench.hang_plants import CONFIG, PLANTS, PROBLEM, fields_of
from kernels import gpu_lock, nvrtc
from kernels.cache import KernelCache
from kernels.compile import compile_kernel
from kernels.errors import CompileFailed
from kernels.hang import Hang, Verdict, diagnose, ended, moving
from kernels.host import HostGpu
from kernels.launch_plan import LaunchPlan, plan_launch
from kernels.process import Outcome, OutcomeKind, Worker
from kernels.progress import RECORD, Place, record_bytes, records_of
from kernels.sources import Variant, headers, instantiation, options
from kernels.verify import Reason, VerificationRequest, verify
from kernels.waits import Walk
from kernels.watch import watch
from solver.config import Config
from solver.families.sm90_gemm import CompileKey, compile_key
from solver.problem import Problem

sys.path.insert(0, str(Path(__file__).parent))
from played_launch import FAULTS, Played, Stop

SMS = 132
KEY = compile_key(CONFIG, "bf16", "tn")


def config(**fields: int) -> Config:
    return Config("sm90_gemm", 64 * fields.get("math_warpgroups", 1), 64, 64, 4, **fields)


CONFIGS = [
    config(),
    config(mma_in_flight=1, dma_warps=2),
    config(math_warpgroups=2, register_split=1, mma_in_flight=1),
    config(cluster_m=2),
    config(cluster_n=2, dma_warps=2, mma_in_flight=1),
    config(cluster_m=2, split_k=3, mma_in_flight=1),
    config(math_warpgroups=2, split_k=7),
    config(cluster_n=2, math_warpgroups=3, register_split=1, dma_warps=2),
]


def plan_of(chosen: Config, sms: int = SMS, problem: Problem = PROBLEM) -> LaunchPlan:
    whole = Problem(2 * chosen.tile_m, problem.n, problem.k)
    return plan_launch(whole, chosen, sms)


def stuck(chosen: Config, fault: str | None = None, stop: Stop | None = None, sms: int = 4) -> Hang:
    plan = plan_of(chosen, sms)
    return diagnose(plan, Played(plan, fault, stop).play())


# ---- the records


def test_the_places_are_the_kernels_own() -> None:
    enum = re.search(r"enum Place : u32 \{(.*?)\};", headers()["progress.cuh"], re.DOTALL)
    assert enum is not None
    theirs = {
        re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper(): int(value)
        for name, value in re.findall(r"k(\w+) = (\d+)", enum[1])
    }
    assert theirs == {place.name: int(place) for place in Place}


def test_there_is_a_record_of_16_bytes_for_every_warp_of_the_grid() -> None:
    plan = plan_of(CONFIG)
    assert record_bytes(plan) == 16 * plan.grid * plan.warps
    memory = np.arange(record_bytes(plan) // 4, dtype=np.uint32)
    records = records_of(memory, plan)
    assert records.shape == (plan.grid, plan.warps)
    # blockIdx.x * warps + warp, as the kernel has it
    assert records[1, 2].item() == tuple(4 * (plan.warps + 2) + i for i in range(4))
    memory[:] = 0
    assert records[1, 2]["place"] != 0, "records are a copy"


def test_only_the_debug_build_keeps_records() -> None:
    def stores(variant: Variant) -> int:
        chosen = options("compute_90a", variant)
        text = nvrtc.ptx("kernel.cu", instantiation(KEY), headers(), chosen)
        return text.count("st.volatile.global.v4.u32")

    assert stores(Variant.SHIPPED) == 0
    assert stores(Variant.DEBUG) >= len(Place) - 2  # all but not started, and leaves


def test_the_debug_build_is_another_kernel_than_the_one_that_ships(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    variants = (Variant.SHIPPED, Variant.DEBUG)
    shipped, debug = (compile_kernel(KEY, cache=cache, variant=v) for v in variants)
    assert debug.kernel_id == f"{shipped.kernel_id}-progress"
    assert debug.cubin != shipped.cubin
    for variant, kernel in zip(variants, (shipped, debug), strict=True):
        again = compile_kernel(KEY, cache=cache, variant=variant)
        assert (again.from_cache, again.cubin) == (True, kernel.cubin)


def test_the_debug_build_may_spill(tmp_path: Path) -> None:
    key = CompileKey("bf16", "nt", 256, 208, 64, 2, 1, 1)
    cache = KernelCache(tmp_path)
    with pytest.raises(CompileFailed, match="spills"):
        compile_kernel(key, cache=cache)
    assert compile_kernel(key, cache=cache, variant=Variant.DEBUG).spill_bytes > 0


# ---- what is said of them


@pytest.mark.parametrize("chosen", CONFIGS)
def test_a_played_launch_without_a_fault_ends(chosen: Config) -> None:
    plan = plan_of(chosen, 4)
    played = Played(plan)
    records = played.play()
    assert (records["place"] == Place.DONE).all()
    for cta in range(plan.grid):
        total = sum(length for _, length in played.units(cta))
        assert records[cta, 0]["iterations"] == total == Walk.of(plan, cta).total


@pytest.mark.parametrize("split_k", [1, 2, 5, 7])
def test_a_walk_counts_the_k_iterations_of_its_units(split_k: int) -> None:
    plan = plan_of(config(split_k=split_k), 5, Problem(128, 1000, 1000))
    played = Played(plan)
    for cta in range(plan.grid):
        walk, index = Walk.of(plan, cta), 0
        for unit, length in played.units(cta):
            assert walk.before(unit) == index
            for iteration in range(length):
                step = walk.step(index, unit)
                assert (step.unit, step.iteration, step.of) == (unit, iteration, length)
                earlier = walk.step(0, unit)
                assert (earlier.unit, earlier.iteration) == (walk.first, 0)
                index += 1


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_hang_is_told_by_barrier_stage_and_warps(name: str) -> None:
    plant = PLANTS[name]
    plan = plan_launch(plant.problem, plant.config, SMS)
    fault = name if name in FAULTS else None
    stop = None if fault else Stop(1, 2, 6)  # the loop without an end of that plant
    for seed in range(3):
        hang = diagnose(plan, Played(plan, fault, stop).play(seed))
        assert fields_of(hang.to_dict()) == plant.expected(), hang.text
        assert json.loads(json.dumps(hang.to_dict()))["barrier"] == plant.barrier
        assert plant.barrier in hang.text


@pytest.mark.parametrize("name", PLANTS)
def test_what_the_gpu_tests_plant_is_in_the_source_and_compiles(name: str) -> None:
    plant = PLANTS[name]
    unit = instantiation(compile_key(plant.config, plant.problem.dtype, plant.problem.layout))
    nvrtc.ptx("planted.cu", unit, plant.patched(), options("compute_90a", Variant.DEBUG))


@pytest.mark.parametrize("chosen", CONFIGS)
def test_a_warp_that_gets_no_further_is_the_culprit(chosen: Config) -> None:
    """Whichever warp it is and wherever it stops."""
    draw = random.Random(str(chosen))
    plan = plan_of(chosen, 4)
    math_warps = 4 * chosen.math_warpgroups
    for _ in range(12):
        cta = draw.randrange(plan.grid)
        warp = draw.randrange(math_warps + chosen.dma_warps)
        stop = Stop(cta, warp, draw.randrange(1, Walk.of(plan, cta).total + 1))
        hang = diagnose(plan, Played(plan, stop=stop).play(draw.randrange(1000)))
        # A MATH warp that stops holds its whole warpgroup up.
        first = warp // 4 * 4
        names = [f"math{first + i}" for i in range(4)]
        if warp >= math_warps:
            names = [f"dma{warp - math_warps}"]
        if hang.verdict is Verdict.NO_BARRIER:  # all loads were done: nobody waits for the products
            assert Walk.of(plan, cta).total - stop.iteration < chosen.stages, (stop, hang.text)
            assert f"{names[0]} to {names[-1]} stand in products" in hang.text
            continue
        assert hang.verdict is Verdict.STUCK, (stop, hang.text)
        assert [(w.cta, w.warp) for w in hang.culprits] == [(cta, n) for n in names], hang.text
        assert names[0] in hang.text


def test_ctas_that_stand_alike_are_told_once() -> None:
    problem, chosen = Problem(128, 64 * SMS, 1024), config(cluster_m=2)
    plan = plan_launch(problem, chosen, SMS)
    hang = diagnose(plan, Played(plan, "a missing remote arrive").play())
    assert hang.ctas == plan.grid == SMS
    assert len(hang.lines) <= 6, hang.text
    assert "65 more clusters that stand alike" in hang.text
    assert "CTA 1: the same" in hang.text


def test_the_report_shown_in_the_docs_is_a_real_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text("utf-8")
    section = text.partition("## Where it hangs")[2].partition("\n## ")[0]
    plan = plan_launch(Problem(64, 64 * SMS, 1024), CONFIG, SMS)
    hang = diagnose(plan, Played(plan, "a full count too high").play())
    assert hang.text in section
    for name in (*Verdict, *hang.to_dict()):
        assert f"`{name}`" in section, name


def test_the_one_cta_that_hangs_is_told_first_and_the_others_counted() -> None:
    hang = stuck(config(), stop=Stop(3, 1, 2))
    assert (hang.cta, hang.ctas) == (3, 1)
    assert hang.lines[0] == "CTA 3:"
    assert hang.lines[-1] == "3 CTAs: all warps have done their work."


def test_the_report_reads_from_who_waits_to_who_has_not_come() -> None:
    hang = stuck(config(), stop=Stop(0, 2, 3))
    assert hang.text.splitlines() == [
        "CTA 0:",
        "  math0 to math3 stand in products or behind them (unit 0, k-iteration 3 of 16)",
        "  dma0 waits for empty[2] (unit 0, k-iteration 7 of 16): math0 to math3 have not given "
        "back k-iteration 3",
        "Cause: math0 to math3 have not come to empty[2] of CTA 0 and wait at no barrier of the "
        "protocol: an instruction that does not complete, a barrier of another kind, or a loop "
        "without an end.",
        "3 CTAs: all warps have done their work.",
    ]


def test_a_slot_given_back_in_an_earlier_unit_is_told_with_its_unit() -> None:
    hang = stuck(config(), stop=Stop(0, 0, 15), sms=1)
    assert (
        "dma0 waits for empty[2] (unit 1, k-iteration 3 of 16): math0 to math3 have not given back "
        "unit 0, k-iteration 15" in hang.text
    )


def test_a_warp_held_up_before_its_role_may_wait_for_registers() -> None:
    chosen = config(math_warpgroups=2, register_split=1)
    hang = stuck(chosen, "a whole-block barrier in one branch")
    assert "setmaxnreg" in hang.text
    assert "setmaxnreg" not in stuck(config(), "a whole-block barrier in one branch").text


def test_a_peer_that_never_started_is_the_culprit() -> None:
    plan = plan_of(config(cluster_m=2), 4)
    records = np.zeros((plan.grid, plan.warps), RECORD)
    records["place"][0] = Place.SET_UP
    hang = diagnose(plan, records)
    assert hang.barrier == "cluster's first barrier"
    assert {w.cta for w in hang.culprits} == {1}
    assert "of CTA 1 have not started" in hang.text


def test_waits_in_a_circle_end() -> None:
    """No legal launch has one: a ring whose only slot is kept while the next is asked for."""
    plan = plan_launch(PROBLEM, Config("sm90_gemm", 64, 64, 64, 1, mma_in_flight=1), 4)
    hang = diagnose(plan, Played(plan).play())
    assert hang.verdict is Verdict.STUCK
    assert "in a circle" in hang.text


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (Place.NOT_STARTED, "4 CTAs: no warp has started."),
        (Place.DONE, "4 CTAs: all warps have done their work."),
        (Place.MULTIPLIES, "no warp waits at a barrier; math0 to math3"),
    ],
)
def test_a_launch_in_which_no_warp_waits_at_a_barrier_is_said_so(place: Place, words: str) -> None:
    plan = plan_of(CONFIG, 4)
    records = np.zeros((plan.grid, plan.warps), RECORD)
    records["place"] = place
    records["iterations"] = 16
    records["unit"] = np.arange(4)[:, None]
    if place == Place.MULTIPLIES:
        records["place"][:, 4] = Place.DONE
    hang = diagnose(plan, records)
    assert hang.verdict is Verdict.NO_BARRIER
    assert words in hang.text
    assert hang.barrier is None


def test_a_slow_launch_is_told_how_far_it_is() -> None:
    plan = plan_of(CONFIG, 4)
    records = np.zeros((plan.grid, plan.warps), RECORD)
    records["iterations"] = 4
    hang = moving(plan, records, 10.0)
    assert hang.verdict is Verdict.MOVING
    assert "25%" in hang.text


# ---- watching


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.watch, "STILL_S", 0.2)


class Memory:
    """Records in host memory, rewritten at every look as long as they ``move``."""

    def __init__(self, plan: LaunchPlan, records: np.ndarray, looks: int) -> None:
        self.plan, self.left = plan, looks
        self.bytes = bytearray(records.tobytes())

    def is_done(self, ends: bool) -> bool:
        self.left -= 1
        if self.left > 0:
            self.bytes[8:12] = self.left.to_bytes(4, "little")
        return ends and self.left <= 0


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("looks", "ends", "verdict"),
    [(5, False, Verdict.STUCK), (5, True, None), (10**6, False, Verdict.MOVING)],
)
def test_records_that_stop_changing_are_a_hang(
    monkeypatch: pytest.MonkeyPatch, looks: int, ends: bool, verdict: Verdict | None
) -> None:
    plan = plan_of(CONFIG, 4)
    memory = Memory(plan, Played(plan, "a full count too high").play(), looks)
    monkeypatch.setattr(kernels.watch, "_is_done", lambda stream: memory.is_done(ends))
    hang = kernels.watch._until_it_ends(plan, memory.bytes, None, time.monotonic(), 1.0)
    assert (None if hang is None else hang.verdict) is verdict


class Answers(Worker):
    """A worker whose process is replaced by ready outcomes."""

    def __init__(self, *outcomes: Outcome) -> None:
        super().__init__()
        self.outcomes = list(outcomes)
        self.called: list[object] = []

    def call(self, function: object, arguments: object, deadline_s: float, *_: object) -> Outcome:
        if function is gpu_lock.take:
            return Outcome(OutcomeKind.OK, 0.0)
        self.called.append((function, arguments, deadline_s))
        return self.outcomes.pop(0)


TIMEOUT = Outcome(OutcomeKind.TIMEOUT, 60.0, message="killed at its deadline of 60 s")
REQUEST = VerificationRequest(Problem(512, 512, 512), Config("sm90_gemm", 128, 128, 64, 4), seed=1)


@pytest.fixture
def on_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = HostGpu("NVIDIA H200", "GPU-0", "580.1", 141 << 30, (9, 0), 1980, ())
    monkeypatch.setattr(kernels.verify, "host_gpu", lambda: gpu)


@pytest.mark.usefixtures("on_h200")
def test_a_verification_that_times_out_says_where_it_hangs() -> None:
    hang = stuck(config(), "a full count too high")
    worker = Answers(TIMEOUT, Outcome(OutcomeKind.OK, 3.0, value=hang))
    verification = verify(REQUEST, worker=worker)
    assert verification.reason is Reason.TIMEOUT
    first, *report = verification.details.splitlines()
    assert first == "killed at its deadline of 60 s"
    assert tuple(report) == hang.lines
    body = json.loads(json.dumps(verification.to_dict()))["hang"]
    assert (body["verdict"], body["barrier"], body["slot"]) == ("stuck", "full[0]", 0)
    assert body["waiting"][0] == {"cta": 0, "warp": "math0"}
    asked = (watch, (REQUEST.problem, REQUEST.config), kernels.verify.DIAGNOSIS_S)
    assert worker.called[1:] == [asked]


@pytest.mark.usefixtures("on_h200")
@pytest.mark.parametrize(
    ("came", "verdict", "words"),
    [
        (Outcome(OutcomeKind.OK, 3.0, value=ended(0.01)), "ended", "no deadlock"),
        (TIMEOUT, "unknown", "could not be watched: killed at"),
        (Outcome(OutcomeKind.DIED, 1.0, message="SIGSEGV"), "unknown", "SIGSEGV"),
        (
            Outcome(OutcomeKind.ERROR, 1.0, error_type="CompileFailed", message="C7602"),
            "unknown",
            "CompileFailed: C7602",
        ),
    ],
)
def test_whatever_comes_of_the_debug_build_the_verification_is_a_timeout(
    came: Outcome, verdict: str, words: str
) -> None:
    verification = verify(REQUEST, worker=Answers(TIMEOUT, came))
    assert (verification.status, verification.reason) == ("failed", Reason.TIMEOUT)
    assert verification.hang is not None
    assert verification.hang["verdict"] == verdict
    assert words in verification.details


@pytest.mark.usefixtures("on_h200")
def test_only_a_timeout_is_looked_into() -> None:
    worker = Answers(Outcome(OutcomeKind.DIED, 1.0, message="SIGSEGV"))
    assert verify(REQUEST, worker=worker).hang is None
    assert len(worker.called) == 1
