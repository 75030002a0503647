"""NVRTC, the CUDA compiler as a library. Needs neither a GPU nor a driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from kernels.errors import CompileFailed, CompilerAbsent

# NVRTC's own cache on disk, from 12.9 on, gives back a cubin without ptxas' report.
_CACHING_SINCE = (12, 9)
_NO_CACHE = "--no-cache"
_HINT = (
    "NVRTC is not installed: install Warpwright with the extra for your CUDA major, "
    "warpwright[gpu] (CUDA 13) or warpwright[gpu-cuda12]"
)


@dataclass(frozen=True, slots=True)
class Build:
    """What one run of the compiler left: ``cubin`` is empty where it failed."""

    cubin: bytes
    log: str


@cache
def _binding() -> ModuleType:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise CompilerAbsent(f"{_HINT} ({error})") from error
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:  # the binding is here, the library it loads is not
        raise CompilerAbsent(f"{_HINT} ({str(error).splitlines()[0]})") from error
    return nvrtc  # type: ignore[no-any-return]


def _values(call: str, result: tuple[Any, ...]) -> tuple[Any, ...]:
    if int(result[0]):
        raise RuntimeError(f"{call} failed: {result[0]!r}")
    return result[1:]


def version() -> str:
    """NVRTC's own version, ``major.minor``. Raises CompilerAbsent."""
    major, minor = _version()
    return f"{major}.{minor}"


def _version() -> tuple[int, int]:
    major, minor = _values("nvrtcVersion", _binding().nvrtcVersion())
    return major, minor


@contextmanager
def _compiled(
    name: str, source: str, headers: Mapping[str, str], options: Sequence[str]
) -> Iterator[tuple[Any, bool, str]]:
    """A program after one run of the compiler, whether it was refused, and the log."""
    nvrtc = _binding()
    if _version() >= _CACHING_SINCE:
        options = [*options, _NO_CACHE]
    (program,) = _values(
        "nvrtcCreateProgram",
        nvrtc.nvrtcCreateProgram(
            source.encode(),
            name.encode(),
            len(headers),
            [text.encode() for text in headers.values()],
            [include.encode() for include in headers],
        ),
    )
    try:
        (result,) = nvrtc.nvrtcCompileProgram(
            program, len(options), [option.encode() for option in options]
        )
        refused = result == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION
        if int(result) and not refused:
            _values("nvrtcCompileProgram", (result,))
        (size,) = _values("nvrtcGetProgramLogSize", nvrtc.nvrtcGetProgramLogSize(program))
        log = bytearray(size)
        _values("nvrtcGetProgramLog", nvrtc.nvrtcGetProgramLog(program, log))
        yield program, refused, log.rstrip(b"\0").decode(errors="replace").strip()
    finally:
        _values("nvrtcDestroyProgram", nvrtc.nvrtcDestroyProgram(program))


def build(name: str, source: str, headers: Mapping[str, str], options: Sequence[str]) -> Build:
    """Compile ``source`` to a cubin. ``headers`` maps include names to their text.

    A refused program is a Build without a cubin, not an error. Raises CompilerAbsent.
    """
    nvrtc = _binding()
    with _compiled(name, source, headers, options) as (program, refused, log):
        cubin = bytearray()
        if not refused:
            (size,) = _values("nvrtcGetCUBINSize", nvrtc.nvrtcGetCUBINSize(program))
            cubin = bytearray(size)
            _values("nvrtcGetCUBIN", nvrtc.nvrtcGetCUBIN(program, cubin))
        return Build(bytes(cubin), log)


def ptx(name: str, source: str, headers: Mapping[str, str], options: Sequence[str]) -> str:
    """Compile ``source`` to PTX text, arguments as for ``build``.

    Options for a virtual architecture (``compute_90a``) and for the real one give the same
    text; the virtual one leaves ptxas out. Raises CompileFailed where the program is refused,
    and CompilerAbsent.
    """
    nvrtc = _binding()
    with _compiled(name, source, headers, options) as (program, refused, log):
        if refused:
            reason = next((line for line in log.splitlines() if "error" in line), "refused")
            raise CompileFailed(name, reason, log)
        (size,) = _values("nvrtcGetPTXSize", nvrtc.nvrtcGetPTXSize(program))
        text = bytearray(size)
        _values("nvrtcGetPTX", nvrtc.nvrtcGetPTX(program, text))
        return text.rstrip(b"\0").decode()
