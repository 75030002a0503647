"""What a service gives as a verification's result, held to what is used of it: the service may be
of another version, or another program."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from app.errors import EnvironmentLacks
from app.schemas.locks import Ratio, Time
from app.schemas.questions import ConfigRequest


class _Used(BaseModel):
    """Members that are used; a result has more."""

    model_config = ConfigDict(strict=True)


class _Against(_Used):
    config: ConfigRequest | None
    ratio: Ratio | None
    low: Ratio | None
    high: Ratio | None
    rounds: int
    note: str | None
    failure: str | None
    tried: list[Any]


class _Passed(_Used):
    device: str
    driver: str
    nvrtc: str
    kernel_id: str
    exact_draws: int
    rel_error: float
    median_us: Time
    median_low_us: Time
    median_high_us: Time
    replays: int
    comparison: str | None
    ratio_to_cublas: Ratio | None
    ratio_low: Ratio | None
    ratio_high: Ratio | None
    against: _Against | None = None


def check_result(result: dict[str, Any], where: str) -> None:
    """Raise EnvironmentLacks where a result that passed lacks something or has it wrong."""
    try:
        _Passed.model_validate(result)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise EnvironmentLacks(
            f"{where} gives a result that this version can't use: {place}: {fault['msg']}"
        ) from None
