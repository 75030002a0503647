"""GPU tests run where a kernel family does; elsewhere each is skipped with the reason."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.errors import GpuAbsent, NoKernelFamily
from kernels.process import Worker
from kernels.verify import require_gpu

sys.path.insert(0, str(Path(__file__).parent))  # spawn hands sys.path on to the child


def _why_not() -> str | None:
    try:
        require_gpu()
    except (GpuAbsent, NoKernelFamily) as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if Path(__file__).parent in Path(item.path).parents]
    reason = _why_not() if ours else None
    for item in ours:
        item.add_marker(pytest.mark.gpu)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """One warm GPU process; a test that kills it leaves a fresh one to the next."""
    with Worker() as made:
        yield made


@pytest.fixture(scope="session")
def device() -> str:
    """The profile of the GPU that the tests run on."""
    return require_gpu()[1]
