"""sweep: the ground truth that the model is held against, timed on this machine's GPU."""

from __future__ import annotations

import argparse
from typing import Any

from app.cli.arguments import add_json, bounded
from app.cli.session import NEGATIVE, OK, Session
from app.cli.show import show_record
from kernels.sweep import add_arguments, perform


def add_commands(commands: Any) -> None:
    """Register this module's command."""
    sweep_ = commands.add_parser(
        "sweep", help="time thousands of configurations on this machine's GPU; may be resumed"
    )
    add_arguments(sweep_, bounded)
    add_json(sweep_)
    sweep_.set_defaults(run=sweep)


def sweep(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright sweep``; exits 1 where some row failed."""
    record = perform(arguments, session.err)
    shown = record | {"repeat_noise": _noise_words(record)} if arguments.merge else record
    session.emit(record, lambda console: show_record(console, "swept", shown))
    return NEGATIVE if record["failed"] else OK


def _noise_words(record: dict[str, Any]) -> str:
    return ", ".join(
        f"{suite} {noise['median']:.1%} (p95 {noise['p95']:.1%})"
        for suite, noise in record["repeat_noise"].items()
    )
