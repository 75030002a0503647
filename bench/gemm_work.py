"""What ``bench.gpu_gemm`` and the GPU tests of ``kernels.gemm`` run in a GPU process. CUDA is
imported inside the functions."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from solver.config import Config
from solver.families import sm90_gemm as family

CALLS = 100  # between two waits: fewer than the driver queues before it blocks
ROUNDS = 50
SMALL = (128, 128, 256)
NONZEROS = 256  # of a row of A: sums of so many signs are whole numbers that bf16 holds
SPLIT = Config(family.NAME, 64, 64, 64, 4, split_k=4)


def has_torch() -> bool:
    """Whether PyTorch is installed and sees a GPU."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def signs(rows: int, columns: int, seed: int) -> Any:
    """Whole numbers of -1, 0 and 1, few enough in a row that their sums are exact in bf16."""
    random = np.random.default_rng(seed)
    values = random.integers(0, 2, (rows, columns)) * 2 - 1
    if columns > NONZEROS:
        values *= random.random((rows, columns)) * columns < NONZEROS / 2
    return values.astype(np.float32)


def matrices(library: str, m: int, n: int, k: int, seed: int) -> tuple[Any, Any, Any, Any]:
    """A, B and C of a library in its 16-bit type, and what A·B is in float32 (numpy)."""
    import cupy as cp

    a, b = signs(m, k, seed), np.sign(signs(k, n, seed + 1))
    wanted = a @ b
    if library == "torch":
        import torch

        made = [torch.from_numpy(x).cuda().to(torch.bfloat16) for x in (a, b)]
        return made[0], made[1], torch.full((m, n), torch.nan, device="cuda").bfloat16(), wanted
    halves = [cp.asarray(x).astype(cp.float16) for x in (a, b)]
    return halves[0], halves[1], cp.full((m, n), cp.nan, cp.float16), wanted


def to_numpy(array: Any) -> Any:
    """The elements as float32."""
    import cupy as cp

    from kernels.bits import to_host

    if isinstance(array, cp.ndarray):
        return to_host(cp, array).astype(np.float32)
    return array.float().cpu().numpy()


def wait() -> None:
    """Return once the GPU has done everything."""
    import cupy as cp

    cp.cuda.runtime.deviceSynchronize()


def overhead(library: str) -> dict[str, float]:
    """What calls cost the CPU, in µs, medians of rounds that alternate: ``bare_us`` the launch as
    it is bound, ``gemm_us`` a call with ``out``, ``new_out_us`` without, and PyTorch's own."""
    from kernels.calls.gemm import Gemm

    gemm = Gemm()
    a, b, out, _ = matrices(library, *SMALL, seed=1)
    gemm.gemm(a, b, out)
    (bare,) = gemm.launches
    calls: dict[str, Callable[[], Any]] = {
        "bare_us": bare,
        "gemm_us": lambda: gemm.gemm(a, b, out),
        "new_out_us": lambda: gemm.gemm(a, b),
    }
    if library == "torch":
        import torch

        calls["torch_us"] = lambda: torch.mm(a, b, out=out)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            wait()
            begun = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - begun) / CALLS * 1e6)
    wait()
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {**medians, "over_us": medians["gemm_us"] - medians["bare_us"]}


def _on_gpu(m: int, n: int, k: int, seed: int) -> tuple[Any, Any, Any]:
    """PyTorch's ``matrices`` made on the GPU, where a host would need seconds: A, B as a linear
    layer has it, and the product, summed in float32 without tensor cores and so exact."""
    import torch

    random = torch.Generator("cuda").manual_seed(seed)

    def signs(rows: int, columns: int) -> Any:
        return torch.randint(0, 2, (rows, columns), generator=random, device="cuda").float() * 2 - 1

    a, b = signs(m, k), signs(n, k).t()
    if k > NONZEROS:
        a *= torch.rand((m, k), generator=random, device="cuda") * k < NONZEROS / 2
    torch.backends.cuda.matmul.allow_tf32 = False
    return a.bfloat16(), b.bfloat16(), a @ b


def beside_torch(m: int, n: int, k: int) -> dict[str, Any]:
    """GPU time of ``kernels.gemm`` and of ``torch.mm`` on the same tensors, B as a linear layer has
    it, in µs: medians of rounds that alternate, and how many elements are wrong."""
    import torch

    from kernels import gemm

    a, b, wanted = _on_gpu(m, n, k, seed=m + n + k)
    out = torch.full_like(wanted, torch.nan, dtype=torch.bfloat16)

    def ours() -> Any:
        return gemm(a, b, out)

    def theirs() -> Any:
        return torch.mm(a, b, out=out)

    theirs()
    out.fill_(torch.nan)
    ours()
    wrong = int((out.float() != wanted).sum())
    times: dict[str, list[float]] = {"gemm_us": [], "torch_us": []}
    for _ in range(20):
        for name, call in (("gemm_us", ours), ("torch_us", theirs)):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            wait()
            torch.cuda._sleep(400_000)  # calls are enqueued before the first begins
            first.record()
            for _ in range(20):
                call()
            last.record()
            wait()
            times[name].append(first.elapsed_time(last) * 1e3 / 20)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = medians["torch_us"] / medians["gemm_us"]
    return {"m": m, "n": n, "k": k, **medians, "torch_over_gemm": ratio, "wrong": wrong}


def at_once(library: str, threads: int, streams: int, calls: int) -> dict[str, int]:
    """Products from so many threads on so many streams at once, each of other operands, whole,
    split and with copies first: how many calls gave a wrong element."""
    import cupy as cp

    from kernels import gemm

    made = [cp.cuda.Stream(non_blocking=True) for _ in range(streams)]
    kinds: list[tuple[tuple[int, int, int], Config | None]] = [
        ((130, 264, 512), None),
        ((64, 192, 1024), SPLIT),
        ((65, 127, 333), None),
    ]
    sets = [
        (*matrices(library, *kinds[i % len(kinds)][0], seed=i), kinds[i % len(kinds)][1])
        for i in range(threads)
    ]
    wait()
    together = threading.Barrier(threads)

    def work(number: int) -> int:
        a, b, out, wanted, config = sets[number]
        stream = made[number % streams]
        wrong = 0
        together.wait()
        for _ in range(calls):
            gemm(a, b, out, config=config, stream=stream)
            stream.synchronize()
            wrong += not np.array_equal(to_numpy(out), wanted)
        return wrong

    with ThreadPoolExecutor(threads) as pool:
        return {"calls": threads * calls, "wrong": sum(pool.map(work, range(threads)))}
