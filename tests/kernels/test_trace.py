"""Traced builds: what is compiled, what their records are read as, and how far the model is off."""

from __future__ import annotations

import json
import random
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernels import nvrtc
from kernels.barrier_program import kernel_ptx
from kernels.cache import KernelCache
from kernels.compile import compile_kernel
from kernels.errors import TraceUnreadable
from kernels.launch_plan import LaunchPlan, plan_launch
from kernels.launch_units import work_of
from kernels.overlay import PHASES, SHOWN, WAIT_PHASES, modelled, overlay, played
from kernels.progress import Place
from kernels.protocol import SAMPLE
from kernels.ring_check import read
from kernels.ring_launches import small_launches
from kernels.sources import (
    TRACE_RECORDS,
    Variant,
    headers,
    instantiation,
    options,
    source_hash,
    traced_hash,
    traced_headers,
)
from kernels.table import candidate_keys
from kernels.trace import trace_of
from kernels.trace_events import events_of
from kernels.trace_launch import CriticalCta, TracedLaunches, TraceTask
from kernels.trace_records import (
    END,
    STEP_ROOM,
    STEPS,
    clock_mhz,
    dma_warps,
    math_warps,
    read_cta,
    read_heads,
    since,
)
from solver.config import Config
from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm_legality import check
from solver.problem import Problem
from solver.row_price import price_rows
from solver.units import TICKS_PER_US

sys.path.insert(0, str(Path(__file__).parent))
from played_trace import PASS, Pace, stripes_of

CLOCK_MHZ = 1000.0  # a cycle is a nanosecond
PLAIN = family.CompileKey("bf16", "tn", 64, 48, 64, 1, 0, 0)
SPLIT_ROLES = family.CompileKey("bf16", "nt", 128, 128, 64, 2, 1, 1)
KEYS = random.Random(11).sample(
    [key for key in candidate_keys("bf16") if any(True for _ in small_launches(key))], 3
)
MATH_BOUND = Pace(load=200, latency=900, math=500, epilogue=3000)
LOAD_BOUND = Pace(load=700, latency=900, math=300, epilogue=3000)
PACES = {
    "math": MATH_BOUND,
    "loads": LOAD_BOUND,
    "math, queued": replace(MATH_BOUND, queued=300),
    "loads, queued": replace(LOAD_BOUND, queued=200),
}
CONFIGS = [
    {},
    {"mma_in_flight": 1},
    {"dma_warps": 2, "mma_in_flight": 1, "math_warpgroups": 2},
    {"math_warpgroups": 2, "register_split": 1},
    {"cluster_n": 2, "dma_warps": 2},
    {"split_k": 3},
    {"split_k": 2, "mma_in_flight": 1},
]


def plan_of(sms: int = 4, k: int = 64 * 24, **fields: int) -> LaunchPlan:
    rows = 64 * fields.get("math_warpgroups", 1)
    config = Config("sm90_gemm", rows, 64, 64, 4, **fields)
    return plan_launch(Problem(3 * rows, 256, k), config, sms)


# ---- what is compiled


def test_traced_builds_name_the_places_that_ship() -> None:
    enum = re.compile(r"^\s*(k\w+) = (\d+),", re.MULTILINE)
    shipped, traced = headers()["progress.cuh"], traced_headers()["progress.cuh"]
    assert enum.findall(shipped) == enum.findall(traced[: traced.index("};")])
    assert len(enum.findall(shipped)) == len(Place)


def test_the_head_of_a_warps_records_is_read_as_it_is_written() -> None:
    text = traced_headers()["progress.cuh"]
    for name, value in (("kEnd", END), ("kSteps", STEPS)):
        assert f"{name} = {value}" in text


def test_a_traced_build_has_one_file_in_the_place_of_another_and_what_ships_stays() -> None:
    changed = {name for name, text in traced_headers().items() if text != headers()[name]}
    assert changed == {"progress.cuh"}
    assert traced_headers().keys() == headers().keys()
    assert traced_hash() != source_hash()


def test_a_traced_build_is_another_kernel_than_the_one_that_ships(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    shipped, traced = (
        compile_kernel(SPLIT_ROLES, cache=cache, variant=v)
        for v in (Variant.SHIPPED, Variant.TRACED)
    )
    assert traced.kernel_id == f"{shipped.kernel_id}-traced"
    assert traced.cubin != shipped.cubin
    assert traced.smem_bytes_by_stages == shipped.smem_bytes_by_stages
    assert traced.spill_bytes == 0, "DMA warps have few registers"
    assert compile_kernel(SPLIT_ROLES, cache=cache, variant=Variant.TRACED).from_cache


CLOCKS = re.compile(r"mov\.u(32|64) (%?\w+), %(?:clock|clock64|globaltimer|smid);")
STORES = re.compile(r"@p st\.global\.cs\.v2\.u32 [^;]*;")


def traced_ptx(key: family.CompileKey) -> str:
    """A traced kernel's PTX; the clock stands still in it and no record is written."""
    text = nvrtc.ptx(
        "traced.cu", instantiation(key), traced_headers(), options("compute_90a", Variant.TRACED)
    )
    # A declaration inside braces of its own: what the machine reads has none of 64 bits there.
    wide = re.compile(
        r"\{\s*\.reg \.b64 t;\s*mov\.u64 t, %(?:clock64|globaltimer);\s*"
        r"mov\.b64 \{(%\w+), (%\w+)\}, t;\s*\}"
    )
    text, clocks = wide.subn(r"mov.u32 \1, 0; mov.u32 \2, 0;", text)
    text, more = CLOCKS.subn(r"mov.u\1 \2, 0;", text)
    text, stores = STORES.subn("", text)
    assert clocks == 2
    assert more >= 4
    assert stores >= 5
    return text


@pytest.mark.parametrize("key", [PLAIN, *KEYS], ids=lambda key: key.name)
def test_every_thread_of_a_traced_kernel_takes_the_steps_of_the_one_that_ships(
    key: family.CompileKey,
) -> None:
    """Thread by thread: in which order lanes that part go is the compiler's to choose."""
    launches = list(small_launches(key))
    assert launches
    programs = []
    for text in (kernel_ptx(key), traced_ptx(key)):  # one after the other: each is parsed once
        programs.append(
            [[warp.threads() for warp in read(text, launch, cta).warps]
             for launch in launches for cta in launch.ctas]
        )  # fmt: skip
    assert programs[0] == programs[1]


# ---- what records are read as


@pytest.mark.parametrize("pace", [MATH_BOUND, LOAD_BOUND], ids=["math", "loads"])
@pytest.mark.parametrize("fields", CONFIGS, ids=str)
def test_a_ctas_steps_are_read_as_they_were_taken(fields: dict[str, int], pace: Pace) -> None:
    plan = plan_of(**fields)
    cta = plan.grid - 1
    truth = pace.play(plan, cta)
    steps = read_cta(plan, cta, stripes_of(plan, cta, truth))
    assert steps.dropped == 0
    units = work_of(plan, cta)
    assert steps.units == len(units)
    lengths = [len(unit.iterations) for unit in units]
    assert steps.unit.tolist() == [u for u, n in enumerate(lengths) for _ in range(n)]
    assert steps.iteration.tolist() == [i for n in lengths for i in range(n)]
    for row in steps.loads:
        assert row.tolist() == truth.load_issue
    for asks, has, closes in zip(steps.asks, steps.has, steps.closes, strict=True):
        assert (asks.tolist(), has.tolist()) == (truth.asks, truth.has)
        assert closes.tolist() == truth.closes
    assert set(steps.done.tolist()) == {truth.done}
    assert len(steps.done) == plan.config.math_warpgroups


def test_clocks_are_compared_over_the_end_of_their_32_bits() -> None:
    plan = plan_of()
    truth = MATH_BOUND.play(plan, 0)
    stripes = stripes_of(plan, 0, truth, start=2**40 - 5000)
    assert read_cta(plan, 0, stripes).has[0].tolist() == truth.has
    assert since(np.array([5, 2**32 - 7]), 2**33 + 1).tolist() == [4, -8]


def test_what_there_is_no_room_for_is_counted_and_the_rest_is_read() -> None:
    plan = plan_of(sms=1, k=64 * 500)
    truth = MATH_BOUND.play(plan, 0)
    total = len(truth.has)
    assert total > TRACE_RECORDS
    steps = read_cta(plan, 0, stripes_of(plan, 0, truth))
    kept = len(steps.unit)
    assert steps.dropped == total - kept
    assert TRACE_RECORDS - STEPS - steps.units <= kept < TRACE_RECORDS - STEPS
    assert steps.has[0].tolist() == truth.has[:kept]
    assert steps.closes[0].tolist() == truth.closes[: kept // 500]
    events = events_of(plan, steps, CLOCK_MHZ)
    assert len(events.epilogue_end) == kept // 500
    assert events.wait_us == pytest.approx(sum(truth.wait[:kept]) / CLOCK_MHZ)


def test_a_unit_that_is_cut_short_is_laid_over_the_model_as_far_as_it_goes() -> None:
    k = 64 * (STEP_ROOM + 100)
    plan = plan_launch(Problem(64, 64, k), Config("sm90_gemm", 64, 64, 64, 4), 4)
    truth = LOAD_BOUND.play(plan, 0)
    steps = read_cta(plan, 0, stripes_of(plan, 0, truth))
    assert (steps.dropped, len(steps.unit), steps.closes.shape) == (100, STEP_ROOM, (1, 0))
    model = modelled(plan.problem, plan.config, load_profile("h200"), cold=True)
    found = overlay(events_of(plan, steps, CLOCK_MHZ), model.events)
    assert found["iterations"] == STEP_ROOM
    assert found["phases"]["epilogue"]["events"] == 0
    json.dumps(found, allow_nan=False)


def test_records_that_a_launch_cant_have_left_are_refused() -> None:
    plan = plan_of()
    stripes = stripes_of(plan, 0, MATH_BOUND.play(plan, 0))
    with pytest.raises(TraceUnreadable, match="ended at step"):
        read_cta(plan, 1, stripes)
    swapped = stripes.copy()
    swapped[0, [STEPS + 23, STEPS + 24]] = swapped[0, [STEPS + 24, STEPS + 23]]
    with pytest.raises(TraceUnreadable, match="not those of its units"):
        read_cta(plan, 0, swapped)
    with pytest.raises(TraceUnreadable, match="products of a warp"):
        read_cta(plan_of(k=64 * 25), 0, stripes)
    interrupted = stripes.copy()
    interrupted[0, STEPS + 24 :] -= np.uint64(20_000)
    with pytest.raises(TraceUnreadable, match="goes back"):
        read_cta(plan, 0, interrupted)
    wrong = stripes.copy()
    wrong[dma_warps(plan)[0], STEPS] = wrong[math_warps(plan)[0], STEPS]
    with pytest.raises(TraceUnreadable, match="loads of"):
        read_cta(plan, 0, wrong)


def heads_of(plan: LaunchPlan, start: int) -> np.ndarray:
    return np.stack(
        [
            stripes_of(plan, cta, MATH_BOUND.play(plan, cta), start, sm=cta)[:, : STEPS + 1]
            for cta in range(plan.grid)
        ]
    )


def test_heads_tell_the_clock_and_the_cta_that_took_the_longest() -> None:
    plan = plan_of(sms=5)  # 12 units: two CTAs have three
    before, after = (read_heads(plan, heads_of(plan, start)) for start in (10**10, 11 * 10**9))
    assert clock_mhz(before, after) == pytest.approx(2000.0)
    assert int(np.argmax(after.span)) in (0, 1)
    assert after.span[0] == MATH_BOUND.play(plan, 0).done
    assert after.sm.tolist() == list(range(5))
    with pytest.raises(TraceUnreadable, match="stood still"):
        clock_mhz(before, before)
    elsewhere = replace(after, sm=after.sm + 5)
    assert clock_mhz(before, elsewhere) is None


def test_a_launch_that_kept_nothing_is_no_trace() -> None:
    plan = plan_of()
    with pytest.raises(TraceUnreadable, match="left no records"):
        read_heads(plan, np.zeros((plan.grid, plan.warps, STEPS + 1), np.uint64))


# ---- what they say of the CTA's events


@pytest.mark.parametrize("pace", PACES.values(), ids=list(PACES))
@pytest.mark.parametrize("fields", CONFIGS, ids=str)
def test_events_and_wait_are_those_that_were_played(fields: dict[str, int], pace: Pace) -> None:
    plan = plan_of(**fields)
    truth = pace.play(plan, 0)
    events = events_of(plan, read_cta(plan, 0, stripes_of(plan, 0, truth)), CLOCK_MHZ)
    assert (events.load_issue * CLOCK_MHZ).tolist() == pytest.approx(truth.load_issue)
    assert (events.math_start * CLOCK_MHZ).tolist() == pytest.approx(truth.start, abs=PASS)
    assert (events.math_end * CLOCK_MHZ).tolist() == pytest.approx(truth.end, abs=2 * PASS)
    # A CTA that waits for every load shows no barrier that was full already.
    unsure = 24 * len(truth.has) if pace.load > pace.math else 0
    assert events.wait_us * CLOCK_MHZ == pytest.approx(sum(truth.wait), abs=PASS + unsure)
    seen = np.isfinite(events.load_end)
    assert seen.any()
    late = np.array(truth.load_end)[seen] + PASS
    assert (events.load_end[seen] * CLOCK_MHZ).tolist() == pytest.approx(late.tolist())
    if pace.math > pace.load:
        assert not seen.all(), "loads that were there before nobody saw come"


# ---- beside the model


def test_a_split_with_one_in_flight_takes_a_products_time_of_the_model_where_loads_are_late() -> (
    None
):
    plan = plan_of(sms=132, split_k=2, mma_in_flight=1)
    pace = replace(LOAD_BOUND, spill=1500)
    truth = pace.play(plan, 0)
    steps = read_cta(plan, 0, stripes_of(plan, 0, truth))
    waits = [
        events_of(plan, steps, CLOCK_MHZ, product_us).wait_us * CLOCK_MHZ
        for product_us in (np.inf, pace.math / CLOCK_MHZ)
    ]
    assert waits[0] < 0.75 * sum(truth.wait)
    assert waits[1] == pytest.approx(sum(truth.wait), rel=0.05)


def test_the_model_played_has_the_time_and_wait_that_it_predicts() -> None:
    device = load_profile("h200")
    for problem, config in (
        (Problem(4096, 4096, 4096), Config("sm90_gemm", 128, 256, 64, 4, math_warpgroups=2)),
        (Problem(16, 4096, 14336), Config("sm90_gemm", 64, 16, 128, 8)),
    ):
        check(config, problem, device)
        columns = {n: np.array([v]) for n, v in config.to_dict().items() if n != "family"}
        time, wait = price_rows(problem, device, columns, cold=True)
        model = modelled(problem, config, device, cold=True)
        assert model.time_us == pytest.approx(int(time[0]) / TICKS_PER_US)
        assert model.events.wait_us == pytest.approx(int(wait[0]) / TICKS_PER_US)


@pytest.mark.parametrize("pace", [MATH_BOUND, LOAD_BOUND], ids=["math", "loads"])
@pytest.mark.parametrize("in_flight", [0, 1])
def test_a_model_that_is_right_has_next_to_no_error(pace: Pace, in_flight: int) -> None:
    plan = plan_of(mma_in_flight=in_flight)
    truth = pace.play(plan, 0)
    measured = events_of(plan, read_cta(plan, 0, stripes_of(plan, 0, truth)), CLOCK_MHZ)
    ticks = TICKS_PER_US / CLOCK_MHZ
    between = 0 if in_flight else PASS  # the model's product has the barrier in it
    model = played(
        {
            "load": int(pace.load * ticks),
            "latency": int(pace.latency * ticks),
            "math": int((pace.math + between) * ticks),
            "early": 0,
            "epilogue": int(pace.epilogue * ticks),
            "slots": plan.config.stages - in_flight,
            "iterations": 24,
            "units": 3,
        },
        int(pace.epilogue * ticks),
    )
    found = overlay(measured, model)
    assert found["iterations"] == 72
    span_us = float(measured.epilogue_end[-1])
    for name in (*PHASES, "epilogue"):
        assert found["phases"][name]["events"] > 0
        assert found["phases"][name]["mean_error_us"] < 0.06 * span_us, name
    wait = found["wait"]
    assert wait["error_us"] == pytest.approx(wait["modelled_us"] - wait["measured_us"])
    parts = wait["by_phase"]
    assert tuple(parts) == WAIT_PHASES
    for side in ("measured_us", "modelled_us"):
        assert sum(part[side] for part in parts.values()) == pytest.approx(wait[side])
    assert abs(wait["error_us"]) < 0.06 * span_us


def test_a_model_that_is_wrong_has_the_error_that_it_has() -> None:
    ticks = {"load": 2000, "latency": 9000, "math": 5000, "early": 0, "epilogue": 30_000}
    ring = {"slots": 8, "iterations": 8, "units": 1}
    true, late = (
        played({**ticks, **ring, "latency": ticks["latency"] + added}, 30_000)
        for added in (0, 10_000)
    )
    found = overlay(true, late)
    assert found["wait"]["by_phase"]["first_load"]["error_us"] == pytest.approx(1.0)
    assert found["phases"]["math_start"]["bias_us"] == pytest.approx(1.0)
    assert found["phases"]["load_issue"]["worst_us"] <= 1.0


def test_a_cta_of_more_k_iterations_than_a_trace_has_is_played_as_far_and_priced_whole() -> None:
    device, config = load_profile("h200"), Config("sm90_gemm", 64, 64, 64, 4)
    for problem in (Problem(64, 64, 2**27), Problem(2**18, 2**16, 64)):
        model = modelled(problem, config, device, cold=True)
        assert len(model.events.wait) == STEP_ROOM
        assert len(model.events.epilogue_end) == (0 if problem.m == 64 else STEP_ROOM)
        assert model.span_us > 2 * float(model.events.math_end[-1])
        columns = {n: np.array([v]) for n, v in config.to_dict().items() if n != "family"}
        time, _ = price_rows(problem, device, columns, cold=True)
        assert model.time_us == pytest.approx(int(time[0]) / TICKS_PER_US)


def test_only_k_iterations_that_both_have_are_compared() -> None:
    shared = {"load": 2000, "latency": 9000, "math": 5000, "early": 0, "epilogue": 30_000}
    longer = played({**shared, "slots": 4, "iterations": 9, "units": 2}, 0)
    shorter = played({**shared, "slots": 4, "iterations": 8, "units": 2}, 0)
    assert overlay(longer, shorter)["iterations"] == overlay(shorter, longer)["iterations"] == 16


def test_a_long_timeline_is_cut_and_its_figures_are_not() -> None:
    parameters = {"load": 20, "latency": 90, "math": 50, "early": 0, "epilogue": 300}
    events = played({**parameters, "slots": 4, "iterations": 200, "units": 3}, 0)
    found = overlay(events, events)
    assert found["iterations"] == 600
    timeline = found["timeline"]
    assert timeline["shown"] == SHOWN == len(timeline["measured"]["math_start_us"])
    assert len(timeline["modelled"]["epilogue_end_us"]) == 2


def launched(task: TraceTask, *paces: Pace) -> TracedLaunches:
    plan = plan_launch(task.problem, task.config, 132)
    ctas = []
    for pace in paces:
        truth = pace.play(plan, 0)
        ctas.append(CriticalCta(0, 7, CLOCK_MHZ, "timer", truth.done, stripes_of(plan, 0, truth)))
    return TracedLaunches("id", 0, 132, 10.0, 10.2, 1.02, 1.01, 1.03, 15, None, tuple(ctas))


def test_the_launch_whose_wait_is_in_the_middle_is_shown() -> None:
    config = Config("sm90_gemm", 64, 64, 64, 4)
    task = TraceTask(Problem(192, 256, 64 * 24), config, "h200", SAMPLE)
    slower = Pace(load=1400, latency=900, math=300, epilogue=3000)
    found = trace_of(task, launched(task, slower, MATH_BOUND, LOAD_BOUND))
    assert found["waits_us"] == sorted(found["waits_us"])
    assert found["wait"]["measured_us"] == pytest.approx(found["waits_us"][1])
    assert found["disturbance"]["ratio"] == 1.02
    assert found["cache"] == "cold"
    assert json.loads(json.dumps(found, allow_nan=False)) == found
