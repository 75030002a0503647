"""Our side of a measurement: a configuration's launches over the input sets of a problem.

Needs a CUDA context: worker processes only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernels.compile import check_compiled
from kernels.errors import KernelError
from kernels.launch import GemmLaunch, LoadedKernel, Workspace
from kernels.launch_plan import plan_launch
from kernels.placed import OperandSet
from kernels.protocol import Protocol, rotation_sets
from kernels.replay import Side
from kernels.session import Session
from solver.config import Config
from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm_operands import memory_bytes
from solver.problem import Problem


def kernel_of(session: Session, problem: Problem, config: Config, device: str) -> LoadedKernel:
    """A configuration's kernel, loaded, its registers held against the device profile's.

    Raises CompileFailed, CompilerAbsent, CompilerMismatch and LaunchFailed.
    """
    kernel = session.kernel(family.compile_key(config, problem.dtype, problem.kernel_layout))
    check_compiled(kernel.compiled, config, load_profile(device))
    return kernel


def input_sets(
    session: Session, problem: Problem, protocol: Protocol
) -> tuple[list[OperandSet], bool]:
    """The sets that a protocol rotates, and whether the L2 is flushed between replays.

    The same memory and values for the same problem and protocol, as long as the session's pools
    don't grow.
    """
    most = int(session.memory_bytes * protocol.memory_share) // memory_bytes(problem)
    count, flush = rotation_sets(problem.operand_bytes, session.l2_bytes, protocol, most)
    return session.operand_sets(problem, count), flush


def own_side(
    session: Session,
    problem: Problem,
    config: Config,
    kernel: LoadedKernel,
    sms: int | None,
    sets: Sequence[OperandSet],
    progress: int = 0,
) -> Side:
    """One launch for each set, on ``sms`` SMs at most (None: on all). ``progress``: where a kernel
    that keeps records keeps them, each launch in the place of the one before."""
    plan = plan_launch(problem, config, most_sms(session, sms))
    workspace = Workspace(plan)
    launches = [
        GemmLaunch(
            plan, kernel, s.a.address, s.b.address, s.c.address, workspace, progress=progress
        )
        for s in sets
    ]

    def enqueue() -> None:
        for launch in launches:
            launch.launch(session.stream)

    return Side(enqueue, len(launches))


def loaded_sides(
    session: Session,
    problem: Problem,
    configs: Mapping[int, Config],
    device: str,
    sms: int | None,
    sets: Sequence[OperandSet],
) -> tuple[dict[int, Side], dict[int, str]]:
    """The sides of several configurations by their place, and why those have none that can't be
    compiled or loaded."""
    sides, failures = {}, {}
    for place, config in configs.items():
        try:
            kernel = kernel_of(session, problem, config, device)
            sides[place] = own_side(session, problem, config, kernel, sms, sets)
        except KernelError as error:
            failures[place] = f"{type(error).__name__}: {error}"
    return sides, failures


def most_sms(session: Session, sms: int | None) -> int:
    """SMs that a launch may take: all of the device, or fewer where told so."""
    return session.sms if sms is None else min(sms, session.sms)
