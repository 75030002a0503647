"""How arrays of CuPy and tensors of PyTorch are read, with as much of each as is asked of it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.calls import arrays
from kernels.calls.arrays import BITS, Array, reader_of
from solver.errors import InvalidInput, InvalidProblem


class CupyArray:
    """cupy.ndarray, as far as it is looked at."""

    def __init__(self, array: Any, address: int = 4096, device: int = 1) -> None:
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.itemsize = array.itemsize
        self.data = SimpleNamespace(ptr=address, device_id=device)


class Tensor:
    """torch.Tensor, as far as it is looked at."""

    def __init__(
        self,
        dtype: str = "bfloat16",
        shape: tuple[int, ...] = (4, 6),
        device: int = 1,
        **more: Any,
    ) -> None:
        self.dtype = f"torch.{dtype}"
        self.shape = shape
        self.requires_grad = False
        self.layout = "strided"
        self.index = device
        self.__dict__ |= more

    is_cuda = property(lambda self: self.index >= 0)
    device = property(lambda self: f"cuda:{self.index}" if self.is_cuda else "cpu")

    def data_ptr(self) -> int:
        return 8192

    def stride(self) -> tuple[int, ...]:
        return (self.shape[1], 1)

    def get_device(self) -> int:
        return self.index

    def new_empty(self, shape: tuple[int, int], dtype: str) -> Tensor:
        return Tensor(dtype.removeprefix("torch."), shape, self.index)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Both libraries, imported; PyTorch records gradients where ``grad`` is true."""
    state = SimpleNamespace(grad=True, raw=lambda device: 70 + device)
    cupy: Any = ModuleType("cupy")
    cupy.ndarray = CupyArray
    cupy.float16, cupy.float32, cupy.uint16 = np.float16, np.float32, np.uint16
    cupy.empty = lambda shape, dtype: CupyArray(np.empty(shape, dtype))
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=77))
    torch: Any = ModuleType("torch")
    torch.Tensor = Tensor
    torch.strided = "strided"
    for name in ("float16", "bfloat16", "float32"):
        setattr(torch, name, f"torch.{name}")
    torch.is_grad_enabled = lambda: state.grad
    torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: state.raw(device))
    torch.cuda = SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=90 + device)
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(arrays, "_READERS", dict(arrays._READERS))
    state.torch = torch
    return state


def reader(x: Any) -> arrays.Reader:
    found = reader_of(x)
    assert found is not None
    return found


def test_an_array_of_cupy_is_read_in_elements(libraries: SimpleNamespace) -> None:
    x = CupyArray(np.zeros((6, 9), np.float16)[:, :5].T)
    assert reader(x).array(x, "a") == Array(4096, (5, 6), (1, 9), "fp16", 1)
    assert reader(x).dtype(x) == "fp16"
    assert reader(x).stream(x) == 77
    bits = CupyArray(np.zeros((6, 9), np.uint16))
    assert reader(bits).array(bits, "a").dtype == BITS


@pytest.mark.parametrize(
    ("own", "asked", "made"),
    [
        (np.float16, "fp16", np.float16),
        (np.float16, "fp32", np.float32),
        (np.float16, "bf16", np.uint16),
        (np.uint16, "bf16", np.uint16),
        (np.uint16, "fp16", np.uint16),
        (np.uint16, "fp32", np.float32),
    ],
)
def test_a_new_array_of_cupy_is_of_the_type_or_holds_its_bits(
    libraries: SimpleNamespace, own: Any, asked: str, made: Any
) -> None:
    x = CupyArray(np.zeros((2, 2), own))
    new = reader(x).empty(x, 3, 4, asked)
    assert (new.shape, new.dtype) == ((3, 4), made)


def test_a_tensor_of_pytorch_is_read(libraries: SimpleNamespace) -> None:
    x = Tensor()
    assert reader(x).array(x, "a") == Array(8192, (4, 6), (6, 1), "bf16", 1)
    assert (reader(x).dtype(x), reader(x).stream(x)) == ("bf16", 71)
    new = reader(x).empty(x, 3, 4, "fp32")
    assert (new.shape, new.dtype, new.index) == ((3, 4), "torch.float32", 1)
    assert reader_of(Tensor()) is reader(x)


def test_the_stream_is_found_without_pytorchs_own_short_cut(libraries: SimpleNamespace) -> None:
    del libraries.torch._C._cuda_getCurrentRawStream
    x = Tensor()
    assert reader(x).stream(x) == 91


def test_keys_tell_arrays_apart_by_all_that_decides(libraries: SimpleNamespace) -> None:
    halves = np.zeros((4, 6), np.float16)
    of_cupy = [
        CupyArray(halves),
        CupyArray(halves, address=4098),
        CupyArray(halves, device=0),
        CupyArray(halves.astype(np.uint16)),
        CupyArray(halves.T),
        CupyArray(np.zeros((4, 8), np.float16)[:, :6]),
    ]
    of_torch = [Tensor(), Tensor("float16"), Tensor(device=0), Tensor(shape=(6, 4))]
    for group in (of_cupy, of_torch):
        keys = [reader(x).key(x) for x in group]
        assert len(set(keys)) == len(group)
        assert [reader(x).key(x) for x in group] == keys


def test_what_would_need_a_gradient_is_refused_while_they_are_recorded(
    libraries: SimpleNamespace,
) -> None:
    x = Tensor(requires_grad=True)
    with pytest.raises(InvalidInput, match="gemm does not differentiate") as refused:
        reader(x).key(x)
    assert refused.value.field == "requires_grad"  # whose it is, b's perhaps, a key doesn't know
    libraries.grad = False
    assert reader(x).key(x) == reader(Tensor()).key(Tensor())


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (CupyArray(np.zeros((2, 2), np.float64)), "must not be of float64"),
        (Tensor("float64"), "must not be of torch.float64"),
        (Tensor(device=-1), "must be in GPU memory, got a tensor on cpu"),
        (Tensor(layout="sparse"), "must be a strided tensor, got sparse"),
    ],
)
def test_what_no_launch_takes_names_its_argument(
    libraries: SimpleNamespace, x: Any, words: str
) -> None:
    with pytest.raises(InvalidProblem, match=words) as raised:
        reader(x).array(x, "out")
    assert raised.value.field == "out"


def test_a_tensor_in_host_memory_has_no_stream(libraries: SimpleNamespace) -> None:
    x = Tensor(device=-1)
    with pytest.raises(InvalidProblem, match="must be in GPU memory"):
        reader(x).stream(x)


def test_what_neither_library_has_is_nobodys(libraries: SimpleNamespace) -> None:
    assert reader_of(np.zeros((2, 2))) is None
    assert reader_of([1.0]) is None
