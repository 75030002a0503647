"""``kernels.gemm``: a product of arrays that callers have, on their own stream.

What a call costs after the first is a look-up: of the arrays' addresses, shapes, strides and
types, the scalars and the stream, in a bounded table of launches that are bound to them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import cupy as cp
from cuda.bindings import driver

from kernels.calls.arrays import Array, Reader, exchanged, reader_of
from kernels.calls.device import PER_THREAD, GpuDevice
from kernels.calls.layout import Product, output_type, product_of
from kernels.calls.once import Once
from kernels.calls.scratch import StreamScratch
from kernels.copies import scale
from kernels.copy_plan import copies_needed
from kernels.driver import checked
from kernels.errors import GpuAbsent, LaunchFailed
from kernels.host import why_absent
from kernels.launch import GemmLaunch
from kernels.picks import TABLE_VARIABLE, PickTable, load_table
from kernels.scalars import scalar
from solver.config import Config
from solver.errors import InvalidInput, InvalidProblem
from solver.problem import OUT_BYTES, Operands, Problem

BOUND_MAX = 1024
"""Launches that are kept bound to their addresses; the oldest goes first."""

Launch = Callable[[], None]
_cached_table = lru_cache(maxsize=16)(load_table)


class Gemm:
    """Products of arrays; one for a process. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._bound: dict[tuple[Any, ...], Launch] = {}
        self._devices: Once[GpuDevice] = Once()
        self._lock = threading.Lock()

    def gemm(
        self,
        a: Any,
        b: Any,
        out: Any = None,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
        dtype: str | None = None,
        out_dtype: str | None = None,
        config: Config | None = None,
        table: PickTable | str | Path | None = None,
        stream: Any = None,
    ) -> Any:
        """C = alpha·A·B + beta·C, enqueued on the caller's stream; returns ``out``.

        ``a`` [m, k], ``b`` [k, n] and ``out`` [m, n] are CuPy arrays, PyTorch tensors or objects
        with DLPack on one GPU, A and B of bf16 or fp16, C of these or fp32. Each has contiguous
        rows or columns, any pitch and any start: views and transposes are multiplied as they
        lie. ``out`` is made where it is omitted, of type ``out_dtype`` or A's. Arrays of uint16
        hold the bits of ``dtype`` (``out`` of ``out_dtype``). As in BLAS, C is not read where
        ``beta`` is 0, and A and B are not where k or ``alpha`` is.

        ``config`` is launched, else what ``table`` (a table or its file, by default that of
        WARPWRIGHT_TABLE) has for the problem, else the model's pick. ``stream`` is a CUDA handle or
        a stream of CuPy's or PyTorch's; omitted, the current one of the library of ``a``.

        The first call of a problem compiles or loads its kernel. Raises InvalidProblem, which
        names the argument, for what can't be multiplied, IllegalConfig, TableRefused,
        GpuAbsent without a GPU, NoKernelFamily on another one, and what compiling and launching
        raise.
        """
        reader = reader_of(a)
        b_reader = reader_of(b)
        out_reader = reader if out is None else reader_of(out)
        if reader is None or b_reader is None or out_reader is None:
            handle = 0 if stream is None else _handle(stream)
            return self._exchanged(
                (a, b, out),
                handle,
                stream,
                alpha=alpha,
                beta=beta,
                dtype=dtype,
                out_dtype=out_dtype,
                config=config,
                table=table,
            )
        if out is None:
            out = _new(reader, a, b, beta, dtype, out_dtype)
        handle = reader.stream(a) if stream is None else _handle(stream)
        key = (
            reader.key(a),
            b_reader.key(b),
            out_reader.key(out),
            handle if handle != PER_THREAD else (handle, threading.get_ident()),
            alpha,
            beta,
            dtype,
            out_dtype,
            config,
            table,
        )
        try:
            launch = self._bound.get(key)
        except TypeError:  # a scalar or a configuration that can't be one: named below
            launch = None
        if launch is None:
            arrays = reader.array(a, "a"), b_reader.array(b, "b"), out_reader.array(out, "out")
            launch = self._bind(
                key, arrays, handle, (alpha, beta), (dtype, out_dtype), config, table
            )
        try:
            launch()
        except LaunchFailed:
            # A thread without a context, or with another device's: this one's, and once more.
            with cp.cuda.Device(reader.array(a, "a").device):
                cp.cuda.runtime.free(0)
                launch()
        return out

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches that are kept, the oldest first: what a call costs without its look-up."""
        with self._lock:
            return tuple(self._bound.values())

    def release(self) -> None:
        """Give up all launches, kernels and scratch. No launch may be under way, and graphs that
        hold one must not be replayed afterwards."""
        with self._lock:
            self._bound.clear()
            self._devices.clear()

    def _exchanged(
        self, arrays: tuple[Any, Any, Any], handle: int, stream: Any, **options: Any
    ) -> Any:
        """A product some of whose arrays come through DLPack."""
        a, b, out = arrays
        if stream is None:
            known = reader_of(a)
            handle = _current_stream() if known is None else known.stream(a)
        named = [
            None if array is None else exchanged(array, name, handle)
            for name, array in (("a", a), ("b", b), ("out", out))
        ]
        result = self.gemm(*named, stream=handle, **options)
        return result if out is None else out

    def _bind(
        self,
        key: tuple[Any, ...],
        arrays: tuple[Array, Array, Array],
        handle: int,
        scalars: tuple[Any, Any],
        types: tuple[str | None, str | None],
        config: Config | None,
        table: PickTable | str | Path | None,
    ) -> Launch:
        """The launch of a call, made ready and kept."""
        alpha, beta = scalar("alpha", scalars[0]), scalar("beta", scalars[1])
        if not isinstance(config, Config | None):
            raise InvalidInput("config", f"must be a Config, got {type(config).__name__}")
        product = product_of(*arrays, *types)
        index = arrays[0].device
        with cp.cuda.Device(index):
            _ensure_context()
            device = self._devices.get(index, lambda: GpuDevice(index))
            stream = cp.cuda.ExternalStream(handle, index)
            launch = _launch(device, product, stream, alpha, beta, config, _table(table))
        with self._lock:
            while len(self._bound) >= BOUND_MAX:
                del self._bound[next(iter(self._bound))]
            self._bound[key] = launch
        return launch


def _launch(
    device: GpuDevice,
    product: Product,
    stream: Any,
    alpha: float,
    beta: float,
    config: Config | None,
    table: PickTable | None,
) -> Launch:
    """A product's launch on a stream of the current device."""
    m, n, k = product.m, product.n, product.k
    if m == 0 or n == 0:
        return _nothing
    if k == 0 or alpha == 0:
        if beta == 1:
            return _nothing
        operands = Operands(m, n, max(k, 1), **product.fields)
        return lambda: scale(operands, product.c, beta, stream)
    problem = Problem(m, n, k, **product.fields)
    scratch = device.scratch(stream)
    if not device.is_ready(problem, config, table):
        _refuse_capture(stream)
    plan, kernel = device.prepare(problem, config, table)
    if not scratch.fits(plan):
        _refuse_capture(stream)
    bound = GemmLaunch(
        plan,
        kernel,
        product.a,
        product.b,
        product.c,
        scratch.places(plan),
        alpha=alpha,
        beta=beta,
    ).on(stream)
    return _together(bound, scratch) if copies_needed(plan) else bound


def _current_stream() -> int:
    """CuPy's current stream. Raises GpuAbsent where there is no GPU to have one."""
    try:
        return int(cp.cuda.get_current_stream().ptr)
    except cp.cuda.runtime.CUDARuntimeError as error:
        raise GpuAbsent(f"{why_absent()}: {error}") from error


def _ensure_context() -> None:
    """Make the device's context current in a thread that has none. Where there is one nothing is
    called that a stream's capture might forbid."""
    if not int(checked("cuCtxGetCurrent", driver.cuCtxGetCurrent())):
        cp.cuda.runtime.free(0)


def _refuse_capture(stream: Any) -> None:
    """Raise LaunchFailed where loading a kernel or allocating would break a stream's capture."""
    if stream.is_capturing():
        raise LaunchFailed(
            "the stream is being captured, and this product has no kernel or scratch yet: call "
            "it once on the stream before the capture"
        )


def _nothing() -> None:
    """A product that leaves C as it is."""


def _together(launch: Launch, scratch: StreamScratch) -> Launch:
    """Copies and the launch that reads them, with no other thread's between them."""

    def locked() -> None:
        with scratch.lock:
            launch()

    return locked


def _new(
    reader: Reader, a: Any, b: Any, beta: Any, dtype: str | None, out_dtype: str | None
) -> Any:
    """An ``out`` for a call that gave none."""
    if beta != 0:
        raise InvalidProblem("out", "must be given where beta is not 0: C is read")
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise InvalidProblem("a", f"and b must be matrices, got shapes {a.shape} and {b.shape}")
    kind = out_dtype or dtype or reader.dtype(a)
    if kind not in OUT_BYTES:  # said in words
        array = reader.array(a, "a")
        kind = output_type(array, array, None, dtype, out_dtype)
    return reader.empty(a, a.shape[0], b.shape[1], kind)


def _table(table: PickTable | str | Path | None) -> PickTable | None:
    """The table of a call: its own, else the environment's, else none."""
    chosen = os.environ.get(TABLE_VARIABLE) or None if table is None else table
    return chosen if chosen is None or isinstance(chosen, PickTable) else _cached_table(chosen)


def _handle(stream: Any) -> int:
    """The CUDA handle of a stream of any library's, or of a number."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    for name in ("ptr", "cuda_stream"):
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise InvalidInput(
        "stream", f"must be a CUDA stream or its handle, got {type(stream).__name__}"
    )


gemm = Gemm().gemm
