"""Certificates: optimize --certificate writes one, recheck verifies one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from app import answers
from app.cli.arguments import add_json
from app.cli.documents import check_writable, read_json, write_json
from app.cli.session import NEGATIVE, OK, Session
from app.cli.show import show_answer, show_verdict
from solver.device import check_profiles
from solver.errors import InvalidInput
from solver.question import Asked
from solver.recheck import recheck


def add_commands(commands: Any) -> None:
    """Register this module's command."""
    recheck_ = commands.add_parser(
        "recheck", help="verify a certificate with a second implementation, without Z3"
    )
    recheck_.add_argument("file", type=Path, metavar="FILE", help="what --certificate wrote")
    add_json(recheck_)
    recheck_.set_defaults(run=recheck_command)


def answer_with_certificate(question: Asked, path: Path, session: Session) -> int:
    """Answer, and write the certificate; exits 1, nothing written, where time ran out."""
    if question.proof != "full":
        raise InvalidInput("proof", "must be full: only what was proved is certified")
    check_writable(path)
    with session.waiting("solving"):
        body, certificate = answers.certify(question)
    if certificate is not None:
        write_json(path, certificate)

    def show(console: Console) -> None:
        show_answer(console, body)
        if certificate is not None:
            console.print(f"certificate: {path}", markup=False)

    session.emit(body, show)
    if certificate is None:
        session.say("no certificate: the time limit came before the end of the proof")
        return NEGATIVE
    return OK


def recheck_command(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright recheck FILE``; exits 1 where the certificate does not hold."""
    check_profiles()  # the rechecker reads them for itself, and believes what is there
    document = read_json("file", arguments.file)
    with session.waiting("rechecking"):
        verdict = recheck(document)
    body = {
        "holds": verdict.holds,
        "reasons": list(verdict.reasons),
        "checked": dict(verdict.checked),
    }
    session.emit(body, lambda console: show_verdict(console, body))
    return OK if verdict.holds else NEGATIVE
