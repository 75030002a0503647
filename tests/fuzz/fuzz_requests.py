"""Coverage-guided fuzzing of requests: whatever a body holds, a question or a problem document.

Needs the extra ``fuzz`` (atheris). From the root of a checkout:

    python -m tests.fuzz.fuzz_requests                         until a finding or Ctrl-C
    python -m tests.fuzz.fuzz_requests -runs=100000            libFuzzer's own options
    python -m tests.fuzz.fuzz_requests --seconds 600 --out bench/results/solver/fuzz.json

A finding is any exception but the project's own, an error document of status 500, a value
that cannot be written as JSON, or a question that does not survive being written and read.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["app", "solver"]):
    from pydantic import BaseModel, ValidationError

    from app import __version__
    from app.problem_documents import (
        MALFORMED,
        ProblemDocument,
        document,
        from_exception,
        invalid_request,
    )
    from app.schemas.questions import (
        ExplainRequest,
        OptimizeRequest,
        SimulateRequest,
        VerificationRequest,
    )
    from app.strict_json import Refused, load, parse
    from solver.constraints import Constraints
    from solver.errors import InvalidInput
    from solver.objective import Pareto, objective_from_dict
    from solver.problem import Problem

REQUESTS: tuple[type[BaseModel], ...] = (
    OptimizeRequest,
    ExplainRequest,
    SimulateRequest,
    VerificationRequest,
)
SLOW_S = 5
MEMORY_MB = 4096
SEEDS: tuple[Any, ...] = (
    *(example for request in REQUESTS for example in request.model_json_schema()["examples"]),
    {
        "m": 8, "n": 8, "k": 8, "top_k": 4, "time_limit_ms": 5, "proof": "none", "cache": "warm",
        "objective": {"kind": "lexicographic", "order": ["smem", "registers"]},
        "constraints": {"sms": {"min": 1, "max": 9}, "registers_per_thread": {"in": [64]}},
    },
    {
        "m": 8, "n": 8, "k": 8, "model": "paper", "device": "a6000", "divergence": 2,
        "objective": {"kind": "pareto", "axes": ["time", "wait"], "within": 1.5, "cap": 4},
    },
    {
        "m": 7, "n": 9, "k": 5, "dtype": "fp16", "layout": "nt", "out_dtype": "fp32", "lda": 8,
        "ldb": 9, "ldc": 11, "a_offset": 1, "b_offset": 7, "c_offset": 3,
    },
)  # fmt: skip
VALUES = (
    None, True, 0, 1, -1, 64, 2**31 - 1, 2**31, 10**59, -0.0, 0.5, 1e-9, 1e308, float("nan"),
    "", "time", "tn", "tt", "fp32", "x" * 61, "\ud800", "é", [], {}, [1, 2], ["time", "wait"],
    {"min": 1}, {"in": [64, 128]}, {"stages": {"max": 4}}, {"kind": "pareto", "axes": ["smem"]},
    {"kind": "weighted", "weights": {"time": 1}},
    {"kind": "lexicographic", "order": ["registers"]},
)  # fmt: skip


def answer_to(body: bytes, request: type[BaseModel]) -> ProblemDocument | None:
    """What the edge says to a body: a document, or None for one it would answer."""
    try:
        value = parse(body)
    except Refused as refused:
        return document(MALFORMED, str(refused))
    try:
        asked = request.model_validate(value, from_attributes=True)
    except ValidationError as error:
        return invalid_request(error.errors(), request)
    try:
        read(asked)
    except InvalidInput as error:
        return from_exception(error)
    return None


def read(asked: BaseModel) -> None:
    """Hand a request to the solver's types, which check what they are given."""
    if isinstance(asked, OptimizeRequest | ExplainRequest):
        question = asked.question("h200")
        assert Problem(**question.problem.to_dict()) == question.problem
        echo = json.loads(json.dumps(question.to_dict(), allow_nan=False))
        assert Constraints.from_dict(echo["constraints"]) == question.constraints
        echo["objective"].pop("units", None)
        assert objective_from_dict(echo["objective"]).to_dict() == question.objective.to_dict()
        if not isinstance(question.objective, Pareto):
            assert question.objective.ranking.names
    elif isinstance(asked, SimulateRequest | VerificationRequest):
        assert asked.problem().flops > 0
        if asked.config is not None:
            assert asked.config.config().to_dict() == asked.config.model_dump()


def fuzz(data: bytes) -> None:
    """One input: the first byte chooses the request, the rest is its body."""
    if not data:
        return
    problem = answer_to(data[1:], REQUESTS[data[0] % len(REQUESTS)])
    if problem is not None:
        assert 400 <= problem.status < 500, problem.detail
        json.dumps(problem.body(), ensure_ascii=False).encode()
    try:  # as the command line reads the same text
        load(data[1:])
    except Refused as refused:
        str(refused).encode()


def members(schema: Any) -> Iterator[str]:
    """Names of members and values of names, anywhere in a schema."""
    if isinstance(schema, Mapping):
        yield from schema.get("properties", {})
        yield from (value for value in schema.get("enum", ()) if isinstance(value, str))
        for below in schema.values():
            yield from members(below)
    elif isinstance(schema, list):
        for below in schema:
            yield from members(below)


NAMES = sorted({name for request in REQUESTS for name in members(request.model_json_schema())})


def mutate(data: bytes, longest: int, seed: int) -> bytes:
    """Change a body as JSON where it is an object, by its bytes now and then and otherwise."""
    chance = random.Random(seed)
    try:
        value = json.loads(data[1:])
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or chance.random() < 0.2:
        return bytes(atheris.Mutate(data, longest))
    for _ in range(chance.randint(1, 3)):
        change(value, chance)
    first = bytes([chance.randrange(256)]) if chance.random() < 0.1 else data[:1]
    return (first + json.dumps(value).encode())[:longest]


def change(value: Any, chance: random.Random) -> None:
    """Set, add or remove one thing somewhere in a JSON value."""
    place = value
    while chance.random() < 0.6:
        below = place.values() if isinstance(place, dict) else place
        containers = [each for each in below if isinstance(each, dict | list) and each]
        if not containers:
            break
        place = chance.choice(containers)
    new = json.loads(json.dumps(chance.choice(VALUES)))
    names = list(place) if isinstance(place, dict) else list(range(len(place)))
    kind = chance.random()
    if names and kind < 0.2:
        del place[chance.choice(names)]
    elif names and kind < 0.6:
        place[chance.choice(names)] = new
    elif isinstance(place, dict):
        place[chance.choice(NAMES)] = new
    else:
        place.append(new)


def record(seconds: int, out: Path) -> int:
    """Fuzz in a process of its own and write what came of it; 1 where there was a finding."""
    with tempfile.TemporaryDirectory() as folder:
        corpus, found, words = (Path(folder) / name for name in ("corpus", "found", "words"))
        corpus.mkdir()
        found.mkdir()
        words.write_text("".join(f'"\\"{name}\\""\n' for name in NAMES))
        for number, seed in enumerate(SEEDS):
            for kind in range(len(REQUESTS)):
                file = corpus / f"seed-{number}-{kind}"
                file.write_bytes(bytes([kind]) + json.dumps(seed).encode())
        begun = time.monotonic()
        run = subprocess.run(
            [
                sys.executable, "-m", "tests.fuzz.fuzz_requests", f"-max_total_time={seconds}",
                f"-timeout={SLOW_S}", f"-rss_limit_mb={MEMORY_MB}", "-max_len=4096",
                f"-dict={words}", f"-artifact_prefix={found}{os.sep}", "-print_final_stats=1",
                str(corpus),
            ],
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )  # fmt: skip
        elapsed = time.monotonic() - begun
        inputs = [base64.b64encode(file.read_bytes()).decode() for file in found.iterdir()]
    status = re.findall(r"^#(\d+)\s.*?cov: (\d+) ft: (\d+) corp: (\d+)/", run.stderr, re.MULTILINE)
    if not status:
        print(run.stderr, file=sys.stderr)
        return 2
    executions, coverage, features, kept = map(int, status[-1])
    result = {
        "target": "requests",
        "seconds": round(elapsed),
        "executions": executions,
        "executions_per_s": round(executions / elapsed),
        "coverage_edges": coverage,
        "coverage_features": features,
        "corpus": kept,
        "findings": inputs,
        "warpwright": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("atheris", "pydantic", "numpy")},
    }
    out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    if run.returncode or inputs:
        print(run.stderr[-4000:], file=sys.stderr)
        return 1
    return 0


def main() -> int:
    """Fuzz here with libFuzzer's options, or for a time in a process of its own and record."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--out", type=Path)
    arguments, rest = parser.parse_known_args()
    if arguments.seconds is not None and arguments.out is not None:
        return record(arguments.seconds, arguments.out)
    atheris.Setup([sys.argv[0], *rest], fuzz, custom_mutator=mutate)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
