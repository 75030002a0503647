"""The command `warpwright`.

Exit codes: 0 done; 1 done, and the answer is no (a verification failed, nothing is allowed, a
certificate does not hold); 2 bad input; 3 something this needs is missing (a GPU, the compiler,
the port, a writable standard output); 70 a defect of ours; 130 interrupted; 141 the output's
reader (head, less) has gone. With --json an error is a problem document on standard output;
constraints that leave nothing print theirs there without it too, unless that is a terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from rich.markup import escape

from app import __version__
from app.cli import (
    advise,
    ask,
    bench,
    calibrate,
    certificates,
    export,
    gpu,
    keys,
    picks,
    profile,
    service,
    settings,
    sweep,
    table,
)
from app.cli.arguments import Parser
from app.cli.session import (
    DEFECT,
    ENVIRONMENT,
    INTERRUPTED,
    NEGATIVE,
    OK,
    UNREAD,
    USAGE,
    OutputLost,
    Session,
)
from app.errors import AddressInUse, EnvironmentLacks, NoPick, StoreUnavailable
from app.problem_documents import from_exception, is_expected
from kernels.errors import (
    CacheUnwritable,
    CompileFailed,
    CompilerAbsent,
    CompilerMismatch,
    GpuAbsent,
    GpuLost,
    NoKernelFamily,
    ProfilerUnusable,
    StepFailed,
)
from solver.conflict import Unsatisfiable
from solver.errors import InvalidInput, UnusableProfile

ENVIRONMENT_ERRORS = (
    AddressInUse,
    CacheUnwritable,
    StepFailed,
    CompilerAbsent,
    CompilerMismatch,
    EnvironmentLacks,
    GpuAbsent,
    GpuLost,
    NoKernelFamily,
    ProfilerUnusable,
    StoreUnavailable,
    UnusableProfile,
)
NEGATIVE_ERRORS = (CompileFailed, NoPick, Unsatisfiable)


def build_parser() -> Parser:
    """Every command and its arguments."""
    parser = Parser(
        prog="warpwright",
        description="The best configuration of a warp-specialised GPU kernel, proved and verified.",
        epilog="Exit codes: 0 done, 1 the answer is no, 2 bad input, 3 something is missing, "
        "70 a defect, 130 interrupted, 141 the output's reader has gone.",
    )
    parser.add_argument("--version", action="version", version=f"warpwright {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    shown_in_order = (
        *(ask, advise, certificates, gpu, profile, picks, export, table, settings),
        *(service, keys, bench, sweep, calibrate),
    )
    for module in shown_in_order:
        module.add_commands(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    session = Session(as_json="--json" in words)
    try:
        try:
            arguments = build_parser().parse_args(words)
            code: int = arguments.run(arguments, session)
            return code
        except (BrokenPipeError, OutputLost):
            raise
        except SystemExit as leaving:  # --help and --version, and a server that can't start
            return leaving.code if isinstance(leaving.code, int) else OK
        except Exception as error:
            return _fail(error, session)
    except KeyboardInterrupt:
        session.say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return UNREAD
    except OutputLost as error:
        _drop_output()
        session.say(f"[red]error:[/red] {error}")
        return ENVIRONMENT


def _drop_output() -> None:
    """Send what is still buffered nowhere: the interpreter must not fail on it at exit."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _fail(error: Exception, session: Session) -> int:
    if not is_expected(error):
        session.err.print_exception()
    problem = from_exception(error)
    # A script reads what clashes as JSON in any case; a person has been told by the line below.
    for_scripts = isinstance(error, Unsatisfiable) and not session.to_terminal
    if session.as_json or for_scripts:
        session.emit_json(problem.body())
    if not session.as_json:
        session.say(f"[red]error:[/red] {escape(problem.detail)}")
    if isinstance(error, ENVIRONMENT_ERRORS):
        return ENVIRONMENT
    if isinstance(error, NEGATIVE_ERRORS):
        return NEGATIVE
    return USAGE if isinstance(error, InvalidInput) else DEFECT


if __name__ == "__main__":
    sys.exit(main())
