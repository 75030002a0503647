"""The closed form, the event simulator and the recurrence's stated properties."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.recurrence import NUMPY, Pipeline, chain_ticks, end_ticks, wait_ticks
from solver.simulator import simulate, simulate_rows

FIELDS = ("load", "latency", "math", "early", "epilogue", "slots", "iterations", "units")


def random_pipeline(seed: int, rows: int, longest: int = 20) -> Pipeline:
    rng = np.random.default_rng(seed)
    math = rng.integers(0, 40, rows)
    return Pipeline(
        load=rng.integers(0, 40, rows),
        latency=rng.integers(0, 150, rows),
        math=math,
        early=(math * rng.random(rows) * (rng.random(rows) < 0.5)).astype(np.int64),
        epilogue=rng.integers(0, 300, rows) * (rng.random(rows) < 0.7),
        slots=rng.integers(1, 13, rows),
        iterations=rng.integers(1, longest + 1, rows),
        units=rng.integers(1, 8, rows),
    )


def test_closed_form_equals_the_simulator_on_random_rows() -> None:
    pipeline = random_pipeline(seed=20261129, rows=8000)
    end = end_ticks(pipeline)
    wait = wait_ticks(pipeline, end)
    for i in range(len(end)):
        run = simulate(**{name: int(getattr(pipeline, name)[i]) for name in FIELDS})
        assert (run.end, run.wait) == (end[i], wait[i]), i


@settings(max_examples=300, deadline=None)
@given(
    load=st.integers(0, 2000),
    latency=st.integers(0, 4000),
    math=st.integers(0, 2000),
    release=st.floats(0, 1),
    epilogue=st.integers(0, 5000),
    slots=st.integers(1, 12),
    iterations=st.integers(1, 80),
    units=st.integers(1, 9),
)
def test_closed_form_equals_the_simulator_wherever_hypothesis_looks(
    load: int,
    latency: int,
    math: int,
    release: float,
    epilogue: int,
    slots: int,
    iterations: int,
    units: int,
) -> None:
    row = {
        "load": load,
        "latency": latency,
        "math": math,
        "early": int(math * release),
        "epilogue": epilogue,
        "slots": slots,
        "iterations": iterations,
        "units": units,
    }
    pipeline = Pipeline(**{name: np.array([value]) for name, value in row.items()})
    run = simulate(**row)
    assert end_ticks(pipeline)[0] == run.end
    assert wait_ticks(pipeline, end_ticks(pipeline))[0] == run.wait


def test_rows_played_in_lockstep_are_the_rows_played_alone() -> None:
    pipeline = random_pipeline(seed=11, rows=600)
    end, wait = simulate_rows(pipeline)
    for i in range(len(end)):
        run = simulate(**{name: int(getattr(pipeline, name)[i]) for name in FIELDS})
        assert (run.end, run.wait) == (end[i], wait[i]), i


def test_one_unit_is_the_published_recurrence() -> None:
    """Liu and Grover's events, written out here once more with nothing shared."""
    rng = np.random.default_rng(7)
    for _ in range(500):
        b, lam, c = (int(x) for x in rng.integers(0, 60, 3))
        q, n = int(rng.integers(1, 9)), int(rng.integers(1, 40))
        issue, end, wait = -b, [0] * n, 0
        for i in range(n):
            issue = max(issue + b, end[i - q] if i >= q else 0)
            before = end[i - 1] if i else 0
            start = max(before, issue + lam + b)
            wait += start - before
            end[i] = start + c
        run = simulate(
            load=b, latency=lam, math=c, early=0, epilogue=0, slots=q, iterations=n, units=1
        )
        assert (run.end, run.wait) == (end[-1], wait)


def test_no_parameter_makes_a_run_shorter_by_growing() -> None:
    base = random_pipeline(seed=3, rows=4000)
    reference = end_ticks(base)
    columns = {name: getattr(base, name) for name in FIELDS}
    for name in ("load", "latency", "math", "epilogue", "iterations", "units"):
        grown = Pipeline(**{**columns, name: columns[name] + 1})
        assert (end_ticks(grown) >= reference).all(), name
    for name in ("slots", "early"):  # beyond C too: a group's best parameters need not be a row's
        grown = Pipeline(**{**columns, name: columns[name] + 1})
        assert (end_ticks(grown) <= reference).all(), name


def test_the_end_at_the_best_of_two_rows_parameters_is_below_both() -> None:
    """What a group's bound rests on, over parameters no single row has."""
    first, second = (random_pipeline(seed, rows=20_000, longest=40) for seed in (5, 6))
    pick = {
        name: (np.maximum if name in ("slots", "early") else np.minimum)(
            getattr(first, name), getattr(second, name)
        )
        for name in FIELDS
    }
    bound = end_ticks(Pipeline(**pick))
    assert (pick["early"] > pick["math"]).any()
    assert (bound <= end_ticks(first)).all()
    assert (bound <= end_ticks(second)).all()


def test_the_chain_bound_is_never_above_the_end() -> None:
    pipeline = random_pipeline(seed=4, rows=4000)
    assert (chain_ticks(pipeline, NUMPY) <= end_ticks(pipeline)).all()


def test_gating_every_load_at_a_boundary_changes_few_realistic_runs() -> None:
    """The recurrence lets Q-1 loads run ahead ungated; how much that leaves out."""
    rng = np.random.default_rng(1)
    off = []
    for _ in range(1500):
        b, q = int(rng.integers(220, 700)), int(rng.integers(2, 11))
        c = int(rng.choice([64, 128, 256, 512, 1024]))
        lam = int(rng.choice([953, 1506]))
        n, u = int(rng.choice([2, 4, 8, 16, 32, 64])), int(rng.integers(2, 9))
        epilogue = int(rng.integers(850, 2500))
        row = {"load": b, "latency": lam, "math": c, "early": 0, "epilogue": epilogue}
        model = simulate(**row, slots=q, iterations=n, units=u).end
        issue, ready, end = -b, 0, []
        for i in range(n * u):
            issue = max(issue + b, end[i - q] if i >= q else 0)
            ready += epilogue if i and i % n == 0 else 0
            ready = max(ready, issue + lam + b) + c
            end.append(ready)
        off.append(end[-1] / model - 1)
    assert min(off) >= 0, "the model is a lower bound of the fully gated run"
    assert np.percentile(off, 90) == 0
    assert np.percentile(off, 99) < 0.10
    assert max(off) < 0.30
