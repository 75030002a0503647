"""The picks file: TOML in, questions out."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from app.picks.reading import read_text, validated
from app.schemas.picks import DEVICES, SHARED, PickRequest, PicksRequest, Tolerances
from solver.device import device_names
from solver.errors import InvalidInput
from solver.limits import check_choice, shortened
from solver.question import Question
from solver.report import problem_words

SUFFIX = ".toml"
LOCK_SUFFIX = ".lock.json"


@dataclass(frozen=True, slots=True)
class Pick:
    """One question whose pick is guarded, by its name."""

    name: str
    question: Question


@dataclass(frozen=True, slots=True)
class Picks:
    """A picks file's content."""

    path: Path
    device: str
    tolerances: Tolerances
    picks: tuple[Pick, ...]

    @property
    def lock_path(self) -> Path:
        """The lock beside it: picks.lock.json of picks.toml."""
        return self.path.with_name(self.path.name.removesuffix(SUFFIX) + LOCK_SUFFIX)


def read_picks(path: Path) -> Picks:
    """The picks file at ``path``. Raises InvalidInput that names the file, the place, the limit."""
    text = read_text(path)
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise InvalidInput(str(path), "is nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError is one, and so is an integer of 5,000 digits
        raise InvalidInput(str(path), f"is no TOML: {error}") from None
    request = validated(path, values, PicksRequest, "a picks file", "table")
    try:
        check_choice("device", request.device, device_names())
        check_choice("device", request.device, DEVICES)
        picks = tuple(
            _pick(request, place, problem) for place, problem in enumerate(request.problems)
        )
        _check_names(picks)
    except InvalidInput as error:
        raise InvalidInput(str(path), f"{error.field}: {error.message}") from None
    return Picks(path, request.device, request.tolerances, picks)


def _pick(request: PicksRequest, place: int, own: PickRequest) -> Pick:
    try:
        question = request.whole(own).question(request.device)
    except InvalidInput as error:
        member = error.field.partition(".")[0]
        files = member in SHARED and member not in own.model_fields_set
        field = error.field if files else f"problems.{place}.{error.field}"
        raise InvalidInput(field, error.message) from None
    warm = ", warm" if question.cache == "warm" else ""
    return Pick(own.name or problem_words(question.problem) + warm, question)


def _check_names(picks: tuple[Pick, ...]) -> None:
    """Raise InvalidInput for a name that can't be shown in a line, or that is there twice."""
    first: dict[str, int] = {}
    for place, pick in enumerate(picks):
        field = f"problems.{place}.name"
        if not pick.name.isprintable() or pick.name != pick.name.strip():
            got = shortened(repr(pick.name))
            raise InvalidInput(field, f"must be printable and have no space at its ends, got {got}")
        if pick.name in first:
            raise InvalidInput(
                field,
                f"must be there once, {shortened(repr(pick.name))} is that of "
                f"problems.{first[pick.name]} too",
            )
        first[pick.name] = place
