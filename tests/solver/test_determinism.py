"""The same question gets the same bytes, whatever was asked before and in whatever process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 20
AT_A_TIME = 4

PROGRAM = """
import hashlib, json, random, sys
from solver.certificate import certificate
from solver.conflict import Unsatisfiable
from solver.constraints import Constraints
from solver.engine import Engine
from solver.objective import objective_from_dict
from solver.problem import Problem
from solver.question import Question

seed = int(sys.argv[1])
held = {"smem_bytes": {"max": 98304}, "sms": {"max": 100}}
none = {"smem_bytes": {"max": 20000}, "config": {"stages": {"min": 4}}}
asked = [
    ((4096, 4096, 4096), {}, {"top_k": 5}),
    ((64, 4096, 4096), {}, {}),
    ((64, 4096, 4096), held, {"cache": "warm"}),
    ((1, 8192, 28672), {}, {}),
    ((77, 1000, 72), none, {}),
    ((512, 512, 512), {}, {"objective": {"kind": "weighted", "weights": {"time": 1, "smem": 0.1}}}),
    ((512, 512, 512), {}, {"objective": {"kind": "pareto", "axes": ["time", "wait", "smem"]}}),
    ((512, 512, 512), {}, {"objective": {"kind": "lexicographic", "order": ["wait"]}}),
    ((512, 512, 512), {}, {"model": "paper", "device": "a6000"}),
]
order = list(range(len(asked)))
random.Random(seed).shuffle(order)
engine, found = Engine(), {}
for i in order:
    size, constraints, rest = asked[i]
    rest = dict(rest)
    if "objective" in rest:
        rest["objective"] = objective_from_dict(rest["objective"])
    question = Question(Problem(*size), constraints=Constraints.from_dict(constraints), **rest)
    try:
        answer = engine.optimize(question)
        body = [answer.body, certificate(answer.solution)]
    except Unsatisfiable as conflict:
        body = [conflict.core, conflict.relaxations, conflict.message]
    found[i] = hashlib.sha256(json.dumps(body, ensure_ascii=False).encode()).hexdigest()
print(json.dumps([found[i] for i in sorted(found)]))
"""


def test_twenty_processes_in_shuffled_order_answer_with_the_same_bytes() -> None:
    answers = []
    for first in range(0, PROCESSES, AT_A_TIME):
        running = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(seed)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in range(first, first + AT_A_TIME)
        ]
        for process in running:
            out, _ = process.communicate(timeout=120)
            assert process.returncode == 0
            answers.append(json.loads(out))
    assert len(answers) == PROCESSES
    assert len(set(answers[0])) == len(answers[0])
    assert all(answer == answers[0] for answer in answers)
