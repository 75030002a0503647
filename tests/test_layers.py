"""Imports point down, and a bare GPU host needs neither z3 nor the HTTP edge."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("solver", "kernels", "app")
EDGE = ("z3", "pydantic", "fastapi", "starlette", "uvicorn", "prometheus_client")


def imports(path: Path) -> Iterator[str]:
    """Top-level names that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_down(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1 :]) | {"tests", "bench"}
    for path in (ROOT / layer).rglob("*.py"):
        assert not above & set(imports(path)), path.relative_to(ROOT)


def test_modules_import_one_another_one_way() -> None:
    paths = [path for layer in (*LAYERS, "bench") for path in (ROOT / layer).rglob("*.py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    graph: dict[str, set[str]] = {name.removesuffix(".__init__"): set() for name in names}
    for module, path in zip(graph, paths, strict=True):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                used = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
                graph[module] |= used & graph.keys() - {module}
    order = [*graphlib.TopologicalSorter(graph).static_order()]  # CycleError names a cycle
    assert order.index("solver.families.sm90_gemm") < order.index("app.main")


def test_z3_is_imported_where_a_modules_name_says_so() -> None:
    users = [
        str(path.relative_to(ROOT))
        for layer in LAYERS
        for path in (ROOT / layer).rglob("*.py")
        if "z3" in imports(path)
    ]
    assert set(users) == {
        f"solver/z3_{name}.py"
        for name in (
            "algebra",
            "events",
            "ground",
            "induction",
            "questions",
            "ring",
            "stream",
            "stream_handover",
            "stream_slot",
        )
    }


def test_a_bare_gpu_host_picks_and_benches_without_z3_or_the_http_edge() -> None:
    program = f"""
import sys
for name in {EDGE}:
    sys.modules[name] = None
import kernels.bench, kernels.sweep, kernels.verify, kernels.table, kernels.norm.bench
import kernels.calibrate, bench.norm_grid
import kernels.calls.gemm, kernels.export.bundle, kernels.settings.cutlass, kernels.settings.triton
from solver.engine import Engine
from solver.question import Question
from solver.problem import Problem
answer = Engine().optimize(Question(Problem(512, 512, 512), proof="none"))
print(answer.to_dict()["proof"]["status"])
"""
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert run.stdout.strip() == "not_requested", run.stderr


def test_a_bare_gpu_host_makes_the_evidence_without_z3_or_the_http_edge() -> None:
    scripts = sorted(path.stem for path in (ROOT / "bench").glob("gpu_*.py"))
    program = f"""
import importlib, sys
for name in {EDGE}:
    sys.modules[name] = None
for name in {scripts}:
    importlib.import_module("bench." + name)
import pytest
sys.exit(pytest.main(["tests/gpu", "-m", "gpu", "--collect-only", "-q"]))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "tests/gpu/test_kernel.py::" in run.stdout


def test_arrays_come_to_the_host_in_one_place() -> None:
    """CuPy's copy of what is not contiguous loses the session's stream; ``to_host`` knows."""
    text = {
        path: path.read_text("utf-8")
        for layer in ("app", "bench", "kernels")
        for path in (ROOT / layer).rglob("*.py")
    }
    users = {path.relative_to(ROOT).as_posix() for path in text if ".asnumpy(" in text[path]}
    # follow.py runs by itself, with no more than CuPy and cuda-bindings.
    assert users == {"kernels/bits.py", "kernels/export/follow.py"}
