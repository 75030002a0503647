"""What a DLPack capsule says of its array, read without its library."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

from kernels.calls.dlpack import CUDA, LEGACY_STREAM, described, exchange
from solver.errors import InvalidProblem


class OnGpu:
    """An array of numpy's that says it is in GPU memory."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 3

    def __dlpack__(self, stream: Any = None) -> Any:
        self.streams.append(stream)
        return self.array.__dlpack__()


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 5), np.float16),
        np.zeros((7, 4), np.float32).T,
        np.zeros((6, 8), np.uint16)[1::2, :3],
        np.zeros((0, 4), np.float16),
    ],
)
def test_a_capsule_tells_address_shape_strides_and_type(array: Any) -> None:
    got = exchange(OnGpu(array), "a", 0)
    assert (got.address, got.shape, got.device) == (array.ctypes.data, array.shape, 3)
    assert got.strides == tuple(stride // array.itemsize for stride in array.strides)
    assert (got.code, got.bits) == (1 if array.dtype == np.uint16 else 2, 8 * array.itemsize)


def test_the_array_lives_as_long_as_what_was_read_of_it() -> None:
    array = np.zeros((3, 5), np.float16)
    held = sys.getrefcount(array)
    got = described(array.__dlpack__(), "a", 0)
    assert sys.getrefcount(array) == held + 1
    del got
    gc.collect()
    assert sys.getrefcount(array) == held


@pytest.mark.parametrize(("stream", "told"), [(0, LEGACY_STREAM), (1, 1), (2, 2), (99, 99)])
def test_the_library_is_told_on_which_stream_its_array_is_used(stream: int, told: int) -> None:
    given = OnGpu(np.zeros((3, 5), np.float16))
    exchange(given, "a", stream)
    assert given.streams == [told]


def test_host_memory_and_what_has_no_dlpack_are_refused_by_name() -> None:
    with pytest.raises(InvalidProblem, match="b: must be in GPU memory"):
        exchange(np.zeros((3, 5)), "b", 0)
    with pytest.raises(InvalidProblem, match=r"a: must be an array of CuPy.*got list"):
        exchange([[1.0]], "a", 0)


def test_a_capsule_that_was_consumed_is_refused() -> None:
    capsule = np.zeros((3, 5), np.float16).__dlpack__()
    np.from_dlpack(Handed(capsule))
    with pytest.raises(InvalidProblem, match="capsule can't be read"):
        described(capsule, "a", 0)


class Handed:
    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0
