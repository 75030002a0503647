"""optimize, explain, simulate and devices: questions that need no GPU."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app import answers
from app.cli.arguments import (
    add_cache,
    add_config,
    add_device,
    add_json,
    add_model,
    add_problem,
    add_question,
    device_of,
    integer,
    leave_defaults,
    problem_of,
)
from app.cli.certificates import answer_with_certificate
from app.cli.documents import config_of, question_of
from app.cli.memory import VARIABLE, memory
from app.cli.session import OK, Session
from app.cli.show import show_answer, show_devices, show_explanation, show_simulation
from app.host import detect_host
from app.measured_answer import Winner
from solver.question import TIME_LIMIT_MS_MAX, TOP_K_MAX, NormQuestion, Question


def add_commands(commands: Any) -> None:
    """Register this module's commands."""
    optimize_ = commands.add_parser("optimize", help="the best configuration, with its proof")
    add_question(optimize_, any_op=True)
    optimize_.add_argument(
        "--top-k",
        type=integer("top_k", 1, TOP_K_MAX),
        default=1,
        metavar="N",
        help="list the N best configurations, the pick included",
    )
    optimize_.add_argument(
        "--time-limit-ms",
        type=integer("time_limit_ms", 1, TIME_LIMIT_MS_MAX),
        metavar="N",
        help="answer by then, and say what is not proved",
    )
    optimize_.add_argument(
        "--certificate",
        type=Path,
        metavar="FILE",
        help="write the proved answer there, for recheck",
    )
    optimize_.add_argument(
        "--model-only",
        action="store_true",
        help=f"answer from the model, whatever verifications measured: with {VARIABLE} set, a "
        "configuration that one found faster than the pick here is answered",
    )
    leave_defaults(optimize_)
    optimize_.set_defaults(run=optimize)

    explain_ = commands.add_parser(
        "explain", help="why this pick: what bounds it, what is next, what would change it"
    )
    add_question(explain_)
    explain_.set_defaults(run=explain)

    simulate_ = commands.add_parser("simulate", help="time, wait and timeline of your own")
    add_problem(simulate_)
    add_config(simulate_, required=True)
    add_device(simulate_)
    add_model(simulate_)
    add_cache(simulate_)
    simulate_.set_defaults(run=simulate)

    devices_ = commands.add_parser("devices", help="device profiles, and this machine's GPU")
    add_json(devices_)
    devices_.set_defaults(run=devices)


def optimize(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright optimize M N K``, or of another --op; exits 1 where a certificate was wanted and
    time ran out."""
    question = question_of(arguments)
    if arguments.certificate is not None:
        return answer_with_certificate(question, arguments.certificate, session)
    with session.waiting("solving"):
        body, _ = answers.optimize(question, winner=_winner(question, arguments.model_only))
    session.emit(body, lambda console: show_answer(console, body))
    return OK


def _winner(question: Question | NormQuestion, model_only: bool) -> Winner | None:
    """What verifications here found faster than the pick, where that is remembered."""
    if model_only:
        return None
    with memory(make=False) as learning:
        return None if learning is None else learning.winners.find(question)


def explain(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright explain M N K``."""
    question = question_of(arguments)
    assert isinstance(question, Question)  # there is no --op
    with session.progress("looking for what would change it") as bar:
        body = answers.explain(question, bar)
    session.emit(body, lambda console: show_explanation(console, body))
    return OK


def simulate(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright simulate M N K --config JSON``."""
    problem, config = problem_of(arguments), config_of(arguments.config)
    with session.waiting("simulating"):
        body = answers.simulate(
            problem,
            config,
            device_of(arguments),
            arguments.model,
            arguments.divergence,
            arguments.cache,
        )
    session.emit(body, lambda console: show_simulation(console, body))
    return OK


def devices(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright devices``."""
    host = detect_host()
    gpu = None if host.gpu is None else {"name": host.gpu.name, "profile": host.profile}
    profiles = answers.devices()
    session.emit(
        {"host": gpu, "devices": profiles},
        lambda console: show_devices(console, gpu, profiles),
    )
    return OK
