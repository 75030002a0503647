"""Verifications of norm_activation: planted times and endings, no GPU."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import kernels.verify
from kernels import gpu_lock
from kernels.errors import NoKernelFamily
from kernels.host import HostGpu
from kernels.norm.contest import (
    INPUTS_LEAST,
    ContestResult,
    ContestTask,
    Launched,
    input_sets,
    run_contest,
)
from kernels.norm.verdict import TOLERANCE, Entrant, figures, verdict_of
from kernels.norm.verify import NormVerificationRequest, require_norm_gpu, verify_norm
from kernels.process import Outcome, OutcomeKind, Worker
from kernels.protocol import NORM_VERIFY
from kernels.statistics import summarise, tail_ratio
from kernels.verify import Reason
from solver.families.norm_activation import NormConfig, NormProblem
from tests.kernels.fake_gpu import fake_session, side

H200 = HostGpu("NVIDIA H200", "GPU-0", "580.1", 141 << 30, (9, 0), 1980, ())
PROBLEM = NormProblem(4096, 1024, "fp32", activation="poly", degree=8)
STRONG = NormConfig("strong", 4)
PLAIN = NormConfig("plain", 4, hold="reload")
DIVIDED = NormConfig("specialised", 8, 1, 8, depth=2, chunk_bytes=4096, rounds=0)
RING = NormConfig("ring", 8, 0, 8, depth=2, chunk_bytes=4096, rounds=0)
ROUNDS = 400
Times = list[list[float]]


def entrants(pick: str = "strong") -> tuple[Entrant, ...]:
    """The best of three kinds, the verified one first."""
    of_kind = {"strong": STRONG, "plain": PLAIN, "specialised": DIVIDED}
    first = Entrant(("verified", pick), of_kind.pop(pick), 10.0)
    return (first, *(Entrant((kind,), config, 11.0) for kind, config in of_kind.items()))


def times(*medians_us: float, noise: float = 0.005, seed: int = 3) -> Times:
    rng = random.Random(seed)
    return [[median * rng.gauss(1, noise) for _ in range(ROUNDS)] for median in medians_us]


@pytest.mark.parametrize(
    ("pick_us", "passed", "words"),
    [
        (9.0, True, "it is faster than the strong kernel: 0.900"),
        (10.0, True, "it is as fast as the strong kernel, or at most 2% slower"),
        (10.15, True, "at most 2% slower: 1.01"),
        (10.5, False, "it is slower than the strong kernel: 1.05"),
    ],
)
def test_a_pick_that_is_slower_than_the_strong_kernel_fails_beyond_the_tolerance(
    pick_us: float, passed: bool, words: str
) -> None:
    found = verdict_of(entrants("specialised"), times(pick_us, 10.0, 12.0), 0.95)
    assert found.passed is passed
    assert words in found.words
    assert found.to_strong is not None
    assert found.to_strong.low < pick_us / 10 < found.to_strong.high
    assert found.to_dict()["tolerance"] == TOLERANCE


def test_a_pick_that_may_be_within_the_tolerance_does_not_fail() -> None:
    found = verdict_of(entrants("specialised"), times(10.35, 10.0, 12.0, noise=0.2), 0.95)
    assert found.to_strong is not None
    assert found.to_strong.low <= 1 + TOLERANCE < found.to_strong.ratio
    assert found.passed
    assert "may be slower" in found.words


@pytest.mark.parametrize(
    ("divided_us", "words"),
    [
        (10.7, "specialising does not pay: "),
        (9.3, "specialising pays: "),
        (10.0, "whether specialising pays is undecided"),
    ],
)
def test_the_verdict_says_what_specialising_was_measured_to_be_worth(
    divided_us: float, words: str
) -> None:
    found = verdict_of(entrants(), times(10.0, 12.0, divided_us), 0.95)
    assert found.passed
    assert found.words == "it is the strong kernel"
    assert found.specialising.startswith(words)
    assert found.specialised_to_strong is not None
    assert found.specialised_to_strong.ratio == pytest.approx(divided_us / 10, rel=0.01)
    assert found.specialised_to_like == found.specialised_to_strong


def test_specialising_is_held_against_the_fastest_of_like_warps() -> None:
    running = (*entrants(), Entrant(("ring",), RING, 11.0))
    found = verdict_of(running, times(10.0, 12.0, 9.5, 9.0), 0.95)
    assert found.specialised_to_strong is not None
    assert found.specialised_to_strong.high < 1
    assert found.specialised_to_like is not None
    assert found.specialised_to_like.ratio == pytest.approx(9.5 / 9, rel=0.01)
    assert found.specialising.startswith("specialising does not pay: ")
    assert "of the best ring one's time" in found.specialising


def test_without_a_strong_kernel_there_is_nothing_to_hold_a_pick_against() -> None:
    found = verdict_of((Entrant(("verified", "plain"), PLAIN, 1.0),), times(10.0), 0.95)
    assert (found.passed, found.to_strong, found.specialised_to_strong) == (True, None, None)
    assert "no strong kernel" in found.words


def test_the_tail_is_the_99th_percentile_over_the_median_in_its_interval() -> None:
    spiky = [10.0] * 390 + [14.0] * 10
    tail = tail_ratio(spiky, 0.95)
    assert (tail.value, tail.low, tail.high) == pytest.approx((1.4, 1.4, 1.4), abs=0.41)
    assert tail.low <= tail.value <= tail.high
    assert tail_ratio(spiky, 0.95) == tail
    assert tail_ratio([10.0] * 50, 0.95).high == 1.0


@pytest.mark.parametrize(
    ("set_bytes", "cache", "count"),
    [
        (1 << 20, "cold", 128),
        (1 << 30, "cold", INPUTS_LEAST),
        (20 << 30, "cold", 3),
        (100 << 30, "cold", 1),
        (1 << 20, "warm", 1),
    ],
)
def test_kernels_are_timed_over_many_inputs_as_far_as_memory_holds_them(
    set_bytes: int, cache: str, count: int
) -> None:
    protocol = NORM_VERIFY.with_cache(cache)
    assert input_sets(set_bytes, 60 << 20, 140 << 30, protocol)[0] == count


def launched(config: NormConfig) -> Launched:
    return Launched(f"k_{config.kind}", 64, 132, config.threads, 0, 4, 4096 * 1024, 1e-7, 0.2)


def result(given: Times, pick: str = "strong", failure: str | None = None) -> ContestResult:
    """As a GPU process gives it for entrants that took so long."""
    running = entrants(pick)
    timings = [summarise(mine, 3) for mine in given]
    return ContestResult(
        nvrtc="13.5",
        gpu=H200.to_dict(),
        sms=132,
        failure=failure,
        launched=tuple(launched(entrant.config) for entrant in running),
        figures=tuple(figures(timings, given, 0.95)),
        verdict=verdict_of(running, given, 0.95),
        sets=8,
        flushed=False,
        sm_clock_mhz=1755,
        throttle=("power_cap",),
    )


def outcome(kind: OutcomeKind, **facts: Any) -> Outcome:
    return Outcome(kind, 1.0, **facts)


class AnsweringWorker(Worker):
    """A worker whose process is replaced by reports and a ready outcome."""

    def __init__(self, ready: Outcome, *reports: dict[str, Any]) -> None:
        super().__init__()
        self._ready = ready
        self._reports = reports

    def call(self, function: object, *given: Any) -> Outcome:
        if function is gpu_lock.take:
            return outcome(OutcomeKind.OK)
        for each in self._reports:
            given[2](each)
        return self._ready


Verify = Callable[..., Any]


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> Verify:
    """Verifies on an H200 whose process ends so."""
    monkeypatch.setattr(kernels.verify, "host_gpu", lambda: H200)

    def run(ready: Outcome, *reports: dict[str, Any], pick: str = "strong", **more: Any) -> Any:
        request = NormVerificationRequest(PROBLEM, entrants(pick), seed=1)
        return verify_norm(replace(request, **more), worker=AnsweringWorker(ready, *reports))

    return run


def test_a_verification_has_every_kernels_figures_and_the_verdict(verified: Verify) -> None:
    given = times(10.0, 12.0, 10.7)
    found = verified(outcome(OutcomeKind.OK, value=result(given)))
    body = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (body["status"], body["reason"], body["op"]) == ("passed", None, "norm_activation")
    assert body["config"] == STRONG.to_dict()
    assert body["median_us"] == pytest.approx(10.0, rel=0.01)
    assert body["prediction_error"] == pytest.approx(10.0 / body["median_us"] - 1)
    assert [each["roles"] for each in body["entrants"]] == [
        ["verified", "strong"],
        ["plain"],
        ["specialised"],
    ]
    for each, middle in zip(body["entrants"], (10.0, 12.0, 10.7), strict=True):
        assert each["median_low_us"] <= each["median_us"] <= each["median_high_us"]
        assert each["median_us"] <= each["p95_us"] <= each["p99_us"]
        assert each["tail_ratio"] == pytest.approx(each["p99_us"] / each["median_us"])
        assert each["tail_ratio_low"] <= each["tail_ratio"] <= each["tail_ratio_high"]
        assert each["ratio_low"] <= each["ratio_to_verified"] <= each["ratio_high"]
        assert each["ratio_to_verified"] == pytest.approx(middle / 10, rel=0.01)
        assert each["replays"] == ROUNDS
    assert body["verdict"]["specialising"].startswith("specialising does not pay")
    assert body["throttle"] == ["power_cap"]


def test_a_specialised_pick_that_is_slower_is_failed_with_that_reason(verified: Verify) -> None:
    slow = result(times(10.8, 10.0, 12.0), "specialised")
    found = verified(outcome(OutcomeKind.OK, value=slow), pick="specialised")
    assert not found.passed
    assert found.reason is Reason.SLOWER_THAN_STRONG
    assert "1.08" in found.details
    assert found.median_us == pytest.approx(10.8, rel=0.01)


def test_a_wrong_output_comes_before_any_time(verified: Verify) -> None:
    wrong = ContestResult("13.5", {}, 132, "verified+strong: 3 wrong", (launched(STRONG),))
    found = verified(outcome(OutcomeKind.OK, value=wrong))
    assert (found.reason, found.details) == (Reason.WRONG_RESULT, "verified+strong: 3 wrong")
    assert found.kernel_id == "k_strong"
    assert (found.median_us, found.verdict) == (None, None)
    assert [set(each) & {"kernel_id"} for each in found.entrants] == [{"kernel_id"}, set(), set()]


def test_a_hang_says_which_kernel_was_reached(verified: Verify) -> None:
    killed = outcome(OutcomeKind.TIMEOUT, message="killed after 60 s")
    reached = {"stage": "checking", "round": 2, "rounds": 3, "entrant": "plain"}
    found = verified(killed, reached)
    assert found.reason is Reason.TIMEOUT
    assert "killed after 60 s (checking; the last kernel checked was plain)" in found.details


def test_an_illegal_entrant_never_reaches_the_gpu(verified: Verify) -> None:
    illegal = (*entrants(), Entrant(("ring",), replace(DIVIDED, depth=1), 1.0))
    found = verified(outcome(OutcomeKind.OK, value=None), entrants=illegal)
    assert found.reason is Reason.ILLEGAL
    assert "depth" in found.details


def test_a_gpu_that_the_family_does_not_run_on_is_told_which_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels.verify, "host_gpu", lambda: replace(H200, name="Tesla T4"))
    with pytest.raises(NoKernelFamily, match=r"norm_activation does not run on Tesla T4.*h200"):
        require_norm_gpu()


@pytest.fixture
def contest(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ContestResult]:
    """The GPU process's work, on a GPU whose clock the test sets; ``wrong``: outputs by kind."""
    pytest.importorskip("cupy")
    import kernels.norm.contest as contests
    import kernels.norm.run as running
    import kernels.session as sessions

    def run(
        spans_us: dict[str, float], wrong: tuple[str, ...] = (), problem: NormProblem = PROBLEM
    ) -> ContestResult:
        session, rng = fake_session(monkeypatch), random.Random(5)
        session.warm, session.sms, session.l2_bytes = True, 132, 60 << 20
        session.memory_bytes, session.gpu = 140 << 30, H200

        def sides_of(_: NormProblem, configs: list[NormConfig], seeds: range) -> list[Any]:
            return [
                side(
                    session,
                    config.kind,
                    lambda kind=config.kind: spans_us[kind] * rng.gauss(1, 0.01),
                    len(seeds),
                )
                for config in configs
            ]

        def checked(task: ContestTask, place: int) -> tuple[Launched, str | None]:
            config = task.entrants[place].config
            return launched(config), "3 wrong" if config.kind in wrong else None

        monkeypatch.setattr(sessions, "session", lambda: session)
        monkeypatch.setattr(running, "sides_of", sides_of)
        monkeypatch.setattr(running, "release", lambda: None)
        monkeypatch.setattr(contests, "_checked", checked)
        return run_contest(ContestTask(problem, entrants(), 1, NORM_VERIFY))

    return run


def test_kernels_that_pass_are_timed_in_turn_round_by_round(
    contest: Callable[..., ContestResult],
) -> None:
    found = contest({"strong": 10.0, "plain": 12.0, "specialised": 10.7})
    assert found.failure is None
    assert [each.timing.median_us for each in found.figures] == pytest.approx(
        [10.0, 12.0, 10.7], rel=0.01
    )
    assert {each.timing.replays for each in found.figures} == {NORM_VERIFY.min_rounds}
    assert found.verdict is not None
    assert found.verdict.specialising.startswith("specialising does not pay")
    assert found.sets == INPUTS_LEAST


def test_a_wrong_kernel_ends_the_contest_before_the_clock_runs(
    contest: Callable[..., ContestResult],
) -> None:
    found = contest({}, wrong=("plain",))
    assert found.failure == "plain: 3 wrong"
    assert len(found.launched) == 2
    assert (found.figures, found.verdict) == ((), None)


def test_no_rows_are_checked_and_not_timed(contest: Callable[..., ContestResult]) -> None:
    found = contest({}, problem=replace(PROBLEM, rows=0))
    assert (found.failure, found.verdict, len(found.launched)) == (None, None, 3)
