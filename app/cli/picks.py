"""lock and check: picks that a CI job guards."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from app.cli.arguments import add_json, bounded
from app.cli.documents import check_writable, json_text, write_json, write_whole
from app.cli.session import ENVIRONMENT, NEGATIVE, OK, Session
from app.errors import EnvironmentLacks
from app.problem_documents import from_exception
from solver.device import load_profile
from solver.errors import InvalidInput, WarpwrightError

if TYPE_CHECKING:
    from app.picks.file import Picks
    from app.picks.gpu import Runner
    from app.picks.report import Report
    from app.schemas.locks import LockFile

JOBS_MAX = 256


def add_commands(commands: Any) -> None:
    """Register this module's commands."""
    lock_ = commands.add_parser("lock", help="write the picks of a picks file beside it")
    _add_file(lock_)
    lock_.set_defaults(run=lock)

    check_ = commands.add_parser(
        "check", help="hold the picks of a picks file to its lock, the proof, the compiler, a GPU"
    )
    _add_file(check_)
    check_.add_argument(
        "--static",
        action="store_true",
        help="solve, prove, prove again, simulate and compile: needs no GPU; what is done where "
        "neither --gpu nor --server is given",
    )
    check_.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML there")
    check_.add_argument(
        "--github",
        action="store_true",
        help="print annotations for GitHub Actions, as where GITHUB_ACTIONS is true",
    )
    check_.set_defaults(run=check)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="PICKS.toml", help="the picks file")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--gpu", action="store_true", help="run the kernels on this machine's GPU")
    where.add_argument(
        "--server",
        metavar="URL",
        help="run them by a service next to a GPU; WARPWRIGHT_API_KEY holds its key",
    )
    parser.add_argument(
        "--jobs",
        type=bounded("jobs", 1, JOBS_MAX),
        metavar="N",
        help="processes that solve and compile (one a core, up to 16)",
    )
    add_json(parser)


@contextmanager
def _runner(arguments: argparse.Namespace, picks: Picks) -> Iterator[Runner | None]:
    """Where kernels are run, None where they are not."""
    from app.picks.gpu import LocalRunner
    from app.picks.server import ServerRunner

    if arguments.server is not None:
        with ServerRunner(arguments.server, picks.device) as server:
            yield server
    elif arguments.gpu:
        with LocalRunner(picks.device) as local:
            yield local
    else:
        yield None


def lock(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright lock PICKS.toml``; exits 1, nothing written, where a question has no pick."""
    from app.picks.check import Asked, solve_all
    from app.picks.file import read_picks
    from app.picks.lock import read_lock
    from app.picks.locking import make_lock
    from app.picks.parallel import usual_jobs
    from app.picks.reports.table import show_made

    picks = read_picks(arguments.file)
    load_profile(picks.device)  # a file that can't stand in is the host's fault, and no pick's
    path = picks.lock_path
    old = None
    if path.exists():
        try:
            old = read_lock(picks.path, path)
        except InvalidInput as error:
            words = f"the old lock can't be read and is made anew: {error}"
            session.say(escape(words))
    if arguments.gpu or arguments.server:  # minutes of measuring: not to be lost
        check_writable(path)
    with _runner(arguments, picks) as runner:
        asked = Asked(False, None, arguments.jobs or usual_jobs(), time.monotonic())
        with session.progress("solving") as bar:
            solved = solve_all(picks, asked, bar)
        with _measuring(session, runner) as bar:
            made = make_lock(picks, old, solved, runner, bar)
    written = _text_of(path) != json_text(made.document)
    if written:
        write_json(path, made.document)
    body = {
        "lock_file": str(path),
        "written": written,
        "picks": len(made.document["picks"]),
        "causes": list(made.causes),
        "changes": [change.to_dict() for change in made.changes],
    }
    session.emit(body, lambda console: show_made(console, str(path), made, written))
    return OK


def check(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright check PICKS.toml``; exits 1 where a pick fails, 3 where one can't be checked."""
    from app.picks.file import read_picks
    from app.picks.lock import read_lock
    from app.picks.step import Status

    began_s = time.monotonic()
    with _told_where_it_ends(arguments, session, began_s):
        picks = read_picks(arguments.file)
        locked = read_lock(picks.path, picks.lock_path)
        report = _report(arguments, session, picks, locked, began_s)
    code = {Status.FAILS: NEGATIVE, Status.LACKS: ENVIRONMENT}.get(report.status, OK)
    try:
        _tell(arguments, session, report, picks)
    except EnvironmentLacks as lacks:
        if code != NEGATIVE:
            raise
        session.say(escape(f"error: {lacks}"))  # that a pick fails outweighs it
    return code


def _report(
    arguments: argparse.Namespace,
    session: Session,
    picks: Picks,
    locked: LockFile,
    began_s: float,
) -> Report:
    from app.picks.check import Asked, check, solve_all
    from app.picks.parallel import usual_jobs

    static = arguments.static or not (arguments.gpu or arguments.server)
    with _runner(arguments, picks) as runner:
        asked = Asked(static, runner, arguments.jobs or usual_jobs(), began_s)
        with session.progress("proving and compiling" if static else "solving") as bar:
            solved = solve_all(picks, asked, bar)
        with _measuring(session, runner) as bar:
            return check(picks, locked, solved, asked, bar)


@contextmanager
def _told_where_it_ends(
    arguments: argparse.Namespace, session: Session, began_s: float
) -> Iterator[None]:
    """Around what may end before there is a report: GitHub shows why at the picks file and in the
    job's summary, and JUnit XML says it too, so that none of an earlier check is taken for this
    one's."""
    from app.picks.report import unfinished
    from app.picks.reports.github import append_summary, error_command, in_github
    from app.picks.reports.junit import junit

    try:
        yield
    except WarpwrightError as error:
        words = from_exception(error).detail
        report = unfinished(str(arguments.file), words, time.monotonic() - began_s)
        if arguments.github or in_github():
            session.command(error_command(str(arguments.file), 1, "check", words, os.environ))
            with suppress(EnvironmentLacks):  # what ended the check is told
                append_summary(report, os.environ)
        if arguments.junit is not None:
            with suppress(EnvironmentLacks):
                write_whole(arguments.junit, junit(report))
        raise


def _measuring(
    session: Session, runner: Runner | None
) -> AbstractContextManager[Callable[[int, int], None]]:
    """A bar where kernels are run."""
    if runner is None:
        return nullcontext(lambda done, total: None)
    return session.progress(f"measuring on {escape(runner.where)}")


def _tell(arguments: argparse.Namespace, session: Session, report: Report, picks: Picks) -> None:
    from app.picks.reports.github import (
        append_summary,
        commands_stopped,
        error_commands,
        in_github,
    )
    from app.picks.reports.junit import junit
    from app.picks.reports.table import show_report

    github = arguments.github or in_github()
    with commands_stopped(github and not session.as_json):
        session.emit(report.to_dict(), lambda console: show_report(console, report))
    if github:
        for line in error_commands(report, _text_of(picks.lock_path), os.environ):
            session.command(line)
    if arguments.junit is not None:
        write_whole(arguments.junit, junit(report))
    if github:
        append_summary(report, os.environ)


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return ""
