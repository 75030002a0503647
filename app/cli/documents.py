"""JSON that a user hands over, as text or in a file, and files that are written for one."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from errno import EISDIR
from pathlib import Path
from typing import Any, TypeVar

from pydantic import RootModel, ValidationError

from app.errors import EnvironmentLacks
from app.host import detect_host
from app.schemas.faults import describe
from app.schemas.norm_questions import NormVerificationRequest
from app.schemas.ops import AnyOptimize, AnyVerification, members
from app.schemas.questions import ConfigRequest, VerificationRequest
from app.strict_json import Refused, load
from solver.config import Config
from solver.constraints import NONE, Constraints
from solver.errors import IllegalConfig, InvalidInput
from solver.objective import DEFAULT, Objective, objective_from_dict
from solver.question import NormQuestion, Question


def read_json(field: str, path: Path) -> Any:
    """The JSON value in a file. Raises InvalidInput under the name ``field``."""
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InvalidInput(field, f"can't be read: {error}") from error
    return _parse(field, text, "must be JSON")


def given(field: str, text: str) -> Any:
    """The value of JSON text or, after an @, of a file."""
    if text.startswith("@"):
        return read_json(field, Path(text[1:]))
    return _parse(field, text, "must be JSON or @FILE")


def _parse(field: str, text: str, must: str) -> Any:
    try:
        return load(text)
    except Refused as refused:
        raise InvalidInput(field, f"{must}: {refused}") from None


def config_of(text: str) -> Config:
    """A product's configuration from JSON text or, after an @, from a file; of an answer, its
    `config`.

    Raises IllegalConfig naming the field that is wrong.
    """
    try:
        return ConfigRequest.model_validate(_config(text)).config()
    except ValidationError as error:
        field, message = describe(error.errors()[0], ConfigRequest)
        if field == "body":
            raise InvalidInput("config", message) from None
        raise IllegalConfig(field, message) from None


def _config(text: str) -> Any:
    """The members of a configuration, or of the one that an answer has."""
    values = given("config", text)
    if isinstance(values, dict) and isinstance(values.get("config"), dict):
        return values["config"]
    return values


def question_of(arguments: argparse.Namespace) -> Question | NormQuestion:
    """The question that the arguments ask: the one that the same members over HTTP are.

    Raises InvalidInput naming the field that is wrong.
    """
    values = request_values(arguments, AnyOptimize)
    for name in ("objective", "constraints"):
        if name in values:
            values[name] = given(name, values[name])
    request = _read(AnyOptimize, values).root
    return request.question(detect_host().device if request.device is None else request.device)


def wishes_of(arguments: argparse.Namespace) -> tuple[Objective, Constraints]:
    """What --objective and --constraints say, for commands that ask the same of many problems.

    Raises InvalidInput naming the path that is wrong.
    """
    objective: Objective = DEFAULT
    constraints = NONE
    if arguments.objective is not None:
        objective = objective_from_dict(given("objective", arguments.objective))
    if arguments.constraints is not None:
        constraints = Constraints.from_dict(given("constraints", arguments.constraints))
    return objective, constraints


def verification_of(
    arguments: argparse.Namespace,
) -> VerificationRequest | NormVerificationRequest:
    """What the arguments ask to be verified, as ``question_of``."""
    values = request_values(arguments, AnyVerification)
    if "config" in values:
        values["config"] = _config(values["config"])
    return _read(AnyVerification, values).root


def request_values(arguments: argparse.Namespace, union: type[RootModel[Any]]) -> dict[str, Any]:
    """The arguments that are members of one of a union's requests, where they were given."""
    names = {name: None for model in members(union).values() for name in model.model_fields}
    return {name: value for name in names if (value := getattr(arguments, name, None)) is not None}


Union = TypeVar("Union", bound=RootModel[Any])


def _read(union: type[Union], values: dict[str, Any]) -> Union:
    """As ``app.schemas.questions.read``, one fault at a time: a command has one line for it.

    A name that is unknown comes first: where it is misspelt another is missing for it.
    """
    try:
        return union.model_validate(values)
    except ValidationError as error:
        faults = sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
        raise InvalidInput(*describe(faults[0], union)) from None


def check_writable(path: Path) -> None:
    """See that ``write_whole`` can write there, before there is work to lose.

    Raises EnvironmentLacks as it does.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        if path.is_file() or not path.exists():
            with tempfile.TemporaryFile(dir=path.resolve().parent):
                pass
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error


def write_json(path: Path, document: Any) -> None:
    """Write a document whole or not at all. Raises EnvironmentLacks where that can't be done."""
    write_whole(path, json_text(document).encode())


def json_text(document: Any) -> str:
    """A document as it is written: one member a line."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; a device or a pipe is written as it is.

    Raises EnvironmentLacks where that can't be done.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        path = path.resolve()
        temporary = path.with_name(f".{secrets.token_hex(8)}.part")
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: Exception, what: str = "written") -> EnvironmentLacks:
    why = getattr(error, "strerror", None) or error
    return EnvironmentLacks(f"{path} can't be {what}: {why}")


def check_folder(folder: Path) -> None:
    """See that ``write_folder`` can write there, before there is work to lose; nothing is made.

    Raises EnvironmentLacks where that can't be done.
    """
    try:
        place = folder.resolve()
        while not place.exists():
            place = place.parent
        with tempfile.TemporaryFile(dir=place):
            pass
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error, "written" if os.path.isdir(folder) else "made") from error


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a folder, which is made where it is not there, in order, each whole.

    Raises EnvironmentLacks where that can't be done.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error, "made") from error
    for name, content in files.items():
        write_whole(folder / name, content)
