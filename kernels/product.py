"""One product as BLAS defines it: C = alpha·A·B + beta·C, extents of zero included.

Needs a CUDA context: GPU processes only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.compile import check_compiled
from kernels.copies import scale
from kernels.errors import NoKernelFamily
from kernels.host import match_profile
from kernels.launch import GemmLaunch, Workspace
from kernels.launch_plan import plan_launch
from kernels.session import Session
from solver.config import Config
from solver.device import load_profile
from solver.errors import InvalidProblem
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.pick import best_rows
from solver.problem import MAX_EXTENT, OUT_BYTES, VECTOR_BYTES, Problem
from solver.space import tabulate

MODEL = "calibrated"


def _check_extents(**extents: Any) -> None:
    for field, value in extents.items():
        if type(value) is not int or not 0 <= value <= MAX_EXTENT:
            raise InvalidProblem(
                field, f"must be an integer between 0 and {MAX_EXTENT} (2^31 - 1), got {value!r}"
            )


def _offset(field: str, address: int, element_bytes: int) -> int:
    """Elements between a 16-byte boundary and an operand's first."""
    offset, odd = divmod(address % VECTOR_BYTES, element_bytes)
    if odd:
        raise InvalidProblem(
            field, f"must start on a whole element of {element_bytes} bytes, got {address:#x}"
        )
    return offset


def gemm(
    session: Session,
    m: int,
    n: int,
    k: int,
    a: int,
    b: int,
    c: int,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    config: Config | None = None,
    dtype: str = "bf16",
    **fields: Any,
) -> None:
    """Compute C = alpha·A·B + beta·C on the session's stream and wait for it.

    For code in a GPU process; what ships launches through ``kernels.worker``.

    ``a``, ``b`` and ``c`` are device addresses of the first elements; ``fields`` are Problem's
    ``layout``, ``out_dtype``, ``lda``, ``ldb`` and ``ldc``. ``config`` is the model's pick
    where omitted. As in BLAS: where m or n is zero nothing is done; where k or alpha is zero
    A and B are not read and C = beta·C; where beta is zero C is not read.

    Raises InvalidProblem and IllegalConfig for what can't be, NoKernelFamily on another GPU,
    and what compiling and launching raise.
    """
    _check_extents(m=m, n=n, k=k)
    # The other fields are checked as if the extents were there.
    sound = Problem(max(m, 1), max(n, 1), max(k, 1), dtype, **fields)
    name = match_profile(session.gpu)
    if name is None or family.NAME not in load_profile(name).families:
        raise NoKernelFamily(f"no kernel family runs on {session.gpu.name}")
    if m == 0 or n == 0:
        return
    # As the kernel has them: what fp32 rounds to zero is zero.
    alpha, beta = float(np.float32(alpha)), float(np.float32(beta))
    offset = _offset("c", c, OUT_BYTES[sound.out])
    if k == 0 or alpha == 0:
        if beta != 1:
            scale(sound, c, beta, session.stream)
            session.stream.synchronize()
        return
    problem = Problem(
        m,
        n,
        k,
        dtype,
        **fields,
        a_offset=_offset("a", a, sound.element_bytes),
        b_offset=_offset("b", b, sound.element_bytes),
        c_offset=offset,
    )
    device = load_profile(name)
    if config is None:
        config = best_rows(tabulate(problem, device, MODEL))[0].config
    legality.check(config, problem, device)
    kernel = session.kernel(family.compile_key(config, dtype, problem.kernel_layout))
    check_compiled(kernel.compiled, config, device)
    plan = plan_launch(problem, config, session.sms)
    workspace = Workspace(plan)
    launch = GemmLaunch(plan, kernel, a, b, c, workspace, alpha=alpha, beta=beta)
    launch.launch(session.stream)
    session.stream.synchronize()
