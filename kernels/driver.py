"""Calls into the CUDA driver, with its errors as exceptions of ours."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from kernels.errors import LaunchFailed


def checked(what: str, result: tuple[Any, ...]) -> Any:
    """The values of a driver call, or LaunchFailed that names the call and CUDA's error."""
    error, *values = result
    if error != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(error)
        reason = text.decode() if isinstance(text, bytes) else "unknown error"
        raise LaunchFailed(f"{what}: {driver.CUresult(error).name} ({reason})")
    return values[0] if len(values) == 1 else tuple(values)
