"""calibrate: the model's constants, measured on this machine's GPU."""

from __future__ import annotations

import argparse
from typing import Any

from app.cli.arguments import add_json, bounded
from app.cli.session import NEGATIVE, OK, Session
from app.cli.show import show_record
from kernels.calibrate import add_arguments, perform

SHOWN = ("status", "reason", "details", "out", "rows", "fresh_rows", "seconds")
ERRORS = ("error_present", "error")


def add_commands(commands: Any) -> None:
    """Register this module's command."""
    calibrate_ = commands.add_parser(
        "calibrate", help="fit the model's constants to this machine's GPU; under three minutes"
    )
    add_arguments(calibrate_, bounded)
    add_json(calibrate_)
    calibrate_.set_defaults(run=calibrate)


def calibrate(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright calibrate``; exits 1 where the result is refused."""
    record = perform(arguments, session.err)
    shown = {name: record[name] for name in SHOWN if record.get(name) is not None}
    shown |= {name: f"{record[name]:.2%}" for name in ERRORS if name in record}
    session.emit(record, lambda console: show_record(console, "calibrated", shown))
    return NEGATIVE if record["status"] == "refused" else OK
