"""One product as BLAS defines it: C = alpha·A·B + beta·C, extents of zero included.

Needs a CUDA context: GPU processes only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernels.compile import check_compiled
from kernels.copies import scale
from kernels.host import require_family
from kernels.launch import GemmLaunch, Workspace
from kernels.launch_plan import plan_launch
from kernels.scalars import scalar
from kernels.session import Session
from solver.config import Config
from solver.device import load_profile
from solver.errors import InvalidProblem
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.limits import check_integer
from solver.pick import best_rows
from solver.problem import MAX_EXTENT, MAX_EXTENT_WORDS, VECTOR_BYTES, Operands, Problem
from solver.space import tabulate

MODEL = "calibrated"
FIELDS = ("layout", "out_dtype", "lda", "ldb", "ldc")
ADDRESS_MAX = 2**64 - 1


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if name not in FIELDS:
            raise InvalidProblem(
                name,
                f"is no field of a product; there are {', '.join(FIELDS)} (where an operand "
                "starts, its address says)",
            )


def _check_extents(**extents: Any) -> None:
    for field, value in extents.items():
        check_integer(
            field, value, 0, MAX_EXTENT, high_words=MAX_EXTENT_WORDS, error=InvalidProblem
        )


def _offset(field: str, address: int, element_bytes: int) -> int:
    """Elements between a 16-byte boundary and an operand's first."""
    check_integer(
        field,
        address,
        1,
        ADDRESS_MAX,
        low_words="device address 1",
        high_words=f"{ADDRESS_MAX} (2^64 - 1)",
        error=InvalidProblem,
    )
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
    A and B are not read and C = beta·C, however large m·n·k is; where beta is zero C is not
    read; infinities and NaN in alpha and beta go through to C.

    Raises InvalidProblem and IllegalConfig for what can't be, naming the argument (a finite
    scalar beyond fp32's range can't), NoKernelFamily on another GPU, and what compiling and
    launching raise.
    """
    _check_names(fields)
    _check_extents(m=m, n=n, k=k)
    alpha, beta = scalar("alpha", alpha), scalar("beta", beta)
    # The other fields are checked as if the extents were there.
    operands = Operands(max(m, 1), max(n, 1), max(k, 1), dtype, **fields)
    device = load_profile(require_family(session.gpu))
    if m == 0 or n == 0:
        return
    c_offset = _offset("c", c, operands.out_bytes)
    if k == 0 or alpha == 0:
        if beta != 1:
            scale(operands, c, beta, session.stream)
            session.stream.synchronize()
        return
    problem = Problem(
        m,
        n,
        k,
        dtype,
        **fields,
        a_offset=_offset("a", a, operands.element_bytes),
        b_offset=_offset("b", b, operands.element_bytes),
        c_offset=c_offset,
    )
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
