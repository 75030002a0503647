"""What the commands of a bare GPU host end with: those that need neither z3 nor pydantic."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from solver.errors import InvalidInput, UnusableProfile, WarpwrightError


def exit_code(work: Callable[[], bool], console: Console, interrupted: str) -> int:
    """Do ``work``; 0 where it is well, 1 where something failed, 2 for bad input, 3 where what it
    needs is missing, 130 where it was ``interrupted``, which the console is told in these words."""
    try:
        return 0 if work() else 1
    except InvalidInput as error:
        code = 3 if isinstance(error, UnusableProfile) else 2
        console.print(f"error: {error}", markup=False)
    except WarpwrightError as error:
        code = 3
        console.print(f"error: {error}", markup=False)
    except KeyboardInterrupt:
        code = 130
        console.print(interrupted)
    return code
