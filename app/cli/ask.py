"""optimize, simulate and devices: questions that need no GPU."""

from __future__ import annotations

import argparse
from typing import Any

from app import answers
from app.cli.arguments import (
    add_cache,
    add_config,
    add_device,
    add_json,
    add_model,
    add_problem,
    config_of,
    integer,
    problem_of,
)
from app.cli.session import OK, Session
from app.cli.show import show_answer, show_devices, show_simulation
from app.host import detect_host
from solver.engine import PROOFS, TOP_K_MAX, Question


def add_commands(commands: Any) -> None:
    """Register this module's commands."""
    optimize_ = commands.add_parser("optimize", help="the best configuration, with its proof")
    add_problem(optimize_)
    add_device(optimize_)
    add_model(optimize_)
    add_cache(optimize_)
    optimize_.add_argument("--proof", default="full", metavar="|".join(PROOFS))
    optimize_.add_argument(
        "--top-k",
        type=integer("top_k", 1, TOP_K_MAX),
        default=1,
        metavar="N",
        help="list the N best configurations, the pick included",
    )
    optimize_.set_defaults(run=optimize)

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


def _device(arguments: argparse.Namespace) -> str:
    return detect_host().device if arguments.device is None else str(arguments.device)


def optimize(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright optimize M N K``."""
    question = Question(
        problem_of(arguments),
        device=_device(arguments),
        model=arguments.model,
        proof=arguments.proof,
        top_k=arguments.top_k,
        cache=arguments.cache,
        divergence=arguments.divergence,
    )
    with session.waiting("solving"):
        body, _ = answers.optimize(question)
    session.emit(body, lambda console: show_answer(console, body))
    return OK


def simulate(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright simulate M N K --config JSON``."""
    problem, config = problem_of(arguments), config_of(arguments.config)
    with session.waiting("simulating"):
        body = answers.simulate(
            problem,
            config,
            _device(arguments),
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
