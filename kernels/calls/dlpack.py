"""Arrays of any library through DLPack, read off the capsule: no other library's types needed."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from solver.errors import InvalidProblem

CUDA, CUDA_MANAGED = 2, 13  # DLDeviceType
LEGACY_STREAM = 1  # CUDA's default stream in the protocol, where 0 is ambiguous
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    """DLTensor, the first member of DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """An array as its capsule describes it, strides in elements; the capsule keeps it alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    code: int
    bits: int
    device: int
    capsule: Any


def exchange(x: Any, name: str, stream: int) -> Exchanged:
    """The array of an object with DLPack, ready for work on the stream of this handle.

    The capsule is not consumed: dropping it gives the array back to its library. Raises
    InvalidProblem, naming the argument, for what has no DLPack or is not in GPU memory.
    """
    try:
        device_type, device = x.__dlpack_device__()
        export = x.__dlpack__
    except AttributeError:
        raise InvalidProblem(
            name,
            "must be an array of CuPy, a tensor of PyTorch or have __dlpack__, got "
            f"{type(x).__name__}",
        ) from None
    if device_type not in (CUDA, CUDA_MANAGED):
        raise InvalidProblem(
            name, f"must be in GPU memory, DLPack says device type {int(device_type)}"
        )
    capsule = export(stream=stream or LEGACY_STREAM)
    return described(capsule, name, int(device))


def described(capsule: Any, name: str, device: int) -> Exchanged:
    """What a capsule says of its array."""
    try:
        tensor = _Tensor.from_address(_pointer(capsule, _NAME))
    except ValueError as error:
        raise InvalidProblem(name, f"its DLPack capsule can't be read: {error}") from None
    if tensor.lanes != 1:
        raise InvalidProblem(name, f"must not be of vectors, got {tensor.lanes} lanes")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _packed(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return Exchanged(address, shape, strides, tensor.code, tensor.bits, device, capsule)


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array whose capsule has none: packed rows."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides[: len(shape)]))
