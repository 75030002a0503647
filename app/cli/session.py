"""What a command runs in: standard output for its answer, standard error for the rest."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

OK, NEGATIVE, USAGE, ENVIRONMENT, DEFECT, INTERRUPTED, UNREAD = 0, 1, 2, 3, 70, 130, 141
"""Exit codes: done; done and the answer is no; bad input; something is missing; our fault;
ended by Ctrl-C; the reader of the output has gone (as a shell reports SIGINT and SIGPIPE)."""

SHOW_AFTER_S = 2.0


class OutputLost(Exception):
    """Standard output takes nothing, for another reason than a reader that has gone."""


@contextmanager
def writing() -> Iterator[None]:
    """Around what is printed: written at once, while an exit code can still say it wasn't.

    Raises BrokenPipeError where the reader has gone, OutputLost for any other reason.
    """
    if sys.stdout is None:
        raise OutputLost("standard output is closed")
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(f"standard output can't be written: {error.strerror}") from error


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would leave with 1, which here means that the answer is no


class Session:
    """One command's output. With ``as_json`` standard output carries JSON alone."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        out: Any = sys.stdout
        if isinstance(out, io.TextIOWrapper):  # a person's table survives any locale
            out.reconfigure(errors="replace")
        self.to_terminal = out is not None and out.isatty()
        self.out = _Output(soft_wrap=not self.to_terminal)
        self.err = Console(stderr=True)

    def emit(self, body: Any, show: Callable[[Console], None]) -> None:
        """Print an answer: as JSON, or as ``show`` lays it out."""
        if self.as_json:
            self.emit_json(body)
        else:
            with writing():
                show(self.out)

    def emit_json(self, body: Any) -> None:
        """Print a document as JSON, whoever reads it."""
        with writing():
            print(json.dumps(body, indent=2, allow_nan=False))

    def say(self, words: str) -> None:
        """A line on standard error; where that can't be written, the exit code says it too."""
        with suppress(OSError):
            self.err.print(words, soft_wrap=True)

    def command(self, line: str) -> None:
        """A line for the CI system that runs this: on standard output, unless that is JSON's."""
        if self.as_json:
            with suppress(OSError):
                print(line, file=sys.stderr, flush=True)
        else:
            with writing():
                print(line)

    @contextmanager
    def waiting(self, words: str) -> Iterator[None]:
        """Say what is being waited for, once that has taken two seconds."""
        status = self.err.status(words)
        timer = threading.Timer(SHOW_AFTER_S, status.start)
        timer.daemon = True
        if self.err.is_terminal:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            status.stop()

    @contextmanager
    def progress(self, words: str) -> Iterator[Callable[[int, int], None]]:
        """A bar on standard error; yields a function that is told (done, total)."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.err, disable=not self.err.is_terminal) as bar:
            task = bar.add_task(words, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
