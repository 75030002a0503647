"""Files of the user's: what is wrong with one is told with its name, the place and the limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from app.problem_documents import FAULTS_SHOWN
from app.schemas.faults import describe
from app.schemas.questions import Request
from solver.errors import InvalidInput

BYTES_MAX = 16 << 20
"""Largest file that is read: many times what a thousand picks take."""

Model = TypeVar("Model", bound=Request)


def read_text(path: Path) -> str:
    """A file's text. Raises InvalidInput, whose field is the file."""
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(str(path), f"can't be read: {why}") from None
    if len(content) > BYTES_MAX:
        raise InvalidInput(str(path), f"must be at most {BYTES_MAX} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InvalidInput(str(path), f"line {line}: must be UTF-8 text") from None


def validated(path: Path, values: Any, model: type[Model], whole: str, table: str) -> Model:
    """The values of a file as a ``model``; ``whole`` is what the file is and ``table`` what its
    format calls an object. Raises InvalidInput naming each field that is wrong and its limit.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = error.errors()
    named = [describe(fault, model, whole) for fault in faults[:FAULTS_SHOWN]]
    words = [f"{field}: {message}" for field, message in named]
    words += [f"and {len(faults) - len(named)} more"] if len(faults) > len(named) else []
    raise InvalidInput(str(path), "; ".join(words).replace("JSON object", table))
