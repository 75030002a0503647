"""compile and verify: the kernel itself, built here or run on this machine's GPU."""

from __future__ import annotations

import argparse
import uuid
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from app import answers, norm_verification
from app.cli.arguments import (
    ANY_INPUTS,
    add_any_problem,
    add_cache,
    add_config,
    add_device,
    add_problem,
    bounded,
    device_of,
    leave_defaults,
    problem_of,
)
from app.cli.documents import check_writable, config_of, verification_of, write_whole
from app.cli.memory import memory
from app.cli.session import ENVIRONMENT, NEGATIVE, OK, Session
from app.cli.show import show_record
from app.cli.show_contest import show_contest
from app.cli.show_norm import show_rows_verified
from app.errors import EnvironmentLacks, StoreUnavailable
from app.host import check_memory, detect_host
from app.plan import candidates
from app.schemas.norm_questions import NormVerificationRequest
from app.schemas.questions import RACED_MAX, VerificationRequest
from app.timeline import timeline_svg, trace_words
from app.verification import verify_here
from app.verification_input import check_asked
from kernels.compile import check_compiled, compile_kernel
from kernels.norm.verify import require_norm_gpu
from kernels.protocol import VERIFY
from kernels.verify import VerificationRequest as Verification
from kernels.verify import require_gpu
from solver.config import Config
from solver.device import load_profile
from solver.families import sm90_gemm
from solver.problem import Problem
from solver.question import Question
from solver.report import problem_words

DEADLINE_S = 120


def add_commands(commands: Any) -> None:
    """Register this module's commands."""
    compile_ = commands.add_parser(
        "compile", help="compile the pick's kernel, or your configuration's; needs no GPU"
    )
    add_problem(compile_)
    add_config(compile_, required=False)
    add_device(compile_)
    compile_.add_argument("--out", metavar="FILE", type=Path, help="write the cubin there")
    compile_.set_defaults(run=compile_command)

    verify_ = commands.add_parser(
        "verify", help="compile, launch, check and time a kernel on this machine's GPU"
    )
    add_any_problem(verify_)
    add_config(verify_, required=False)
    add_cache(verify_, ANY_INPUTS)
    verify_.add_argument(
        "--top-k",
        type=bounded("top_k", 1, RACED_MAX),
        metavar="N",
        help=f"race the pick against alternatives, N in all, at most {RACED_MAX}; 1",
    )
    verify_.add_argument(
        "--deadline",
        type=bounded("deadline", 1, 3600),
        default=DEADLINE_S,
        metavar="SECONDS",
        help=f"when a kernel that hangs is killed ({DEADLINE_S})",
    )
    verify_.add_argument(
        "--trace", action="store_true", help="lay the GPU's own timeline over the model's"
    )
    verify_.add_argument(
        "--trace-svg", metavar="FILE", type=Path, help="--trace, and write a picture of both there"
    )
    leave_defaults(verify_, "deadline")
    verify_.set_defaults(run=verify)


def _choose(arguments: argparse.Namespace, problem: Problem, device: str) -> dict[str, Any]:
    config = None if arguments.config is None else config_of(arguments.config)
    return answers.choose(problem, config, device)


def compile_command(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright compile M N K``."""
    device = device_of(arguments)
    problem = problem_of(arguments)
    if arguments.out is not None:
        check_writable(arguments.out)
    with session.waiting("compiling"):
        answer = _choose(arguments, problem, device)
        config = Config.from_dict(answer["config"])
        compiled = compile_kernel(
            sm90_gemm.compile_key(config, problem.dtype, problem.kernel_layout)
        )
        check_compiled(compiled, config, load_profile(device))
    if arguments.out is not None:
        write_whole(arguments.out, compiled.cubin)
    record = {
        "kernel_id": compiled.kernel_id,
        "registers_per_thread": compiled.registers,
        "spill_bytes": compiled.spill_bytes,
        "stack_bytes": compiled.stack_bytes,
        "smem_bytes": answer["kernel"]["smem_bytes"],
        "cubin_bytes": len(compiled.cubin),
        "nvrtc": compiled.nvrtc,
        "source_hash": compiled.source_hash,
        "from_cache": compiled.from_cache,
        "out": None if arguments.out is None else str(arguments.out),
        "config": answer["config"],
    }
    session.emit(record, lambda console: show_record(console, "compiled", record))
    return OK


def verify(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright verify M N K``, or of another --op; exits 1 where the verification fails, 3
    where it could not be remembered, or its picture written."""
    asked = verification_of(arguments)
    check_asked(asked, detect_host().device)
    if isinstance(asked, NormVerificationRequest):
        return _verify_rows(asked, arguments, session)
    return _verify_product(asked, arguments, session)


def _verify_rows(
    asked: NormVerificationRequest, arguments: argparse.Namespace, session: Session
) -> int:
    problem = asked.problem()
    config = None if asked.config is None else asked.config.config()
    gpu, device = require_norm_gpu()
    check_memory(problem, gpu)
    with session.waiting(f"verifying on {gpu.name}"):
        request = norm_verification.verification(problem, config, device, asked.cache)
        outcome = verify_here(request, deadline_s=arguments.deadline)
    record = outcome.result
    session.emit(record, lambda console: show_rows_verified(console, record))
    return OK if outcome.status == "passed" else NEGATIVE


def _verify_product(
    asked: VerificationRequest, arguments: argparse.Namespace, session: Session
) -> int:
    problem = asked.problem()
    gpu, device = require_gpu()
    check_memory(problem, gpu)
    with session.waiting(f"verifying on {gpu.name}"), memory(make=True) as learning:
        answer = answers.choose(
            problem, None if asked.config is None else asked.config.config(), device, asked.cache
        )
        question = Question(problem, device=device, cache=asked.cache)
        raced = candidates(question, asked.top_k)[1:] if asked.top_k > 1 else []
        outcome = verify_here(
            Verification(
                problem,
                Config.from_dict(answer["config"]),
                answer["predicted"]["time_us"],
                protocol=VERIFY.with_cache(asked.cache),
                trace=asked.trace or arguments.trace_svg is not None,
                alternatives=tuple((Config.from_dict(each), time_us) for each, time_us in raced),
                picked=asked.config is None,
            ),
            deadline_s=arguments.deadline,
        )
        taught, lost = None, None
        if learning is not None and asked.config is None:
            try:
                taught = learning.remember(uuid.uuid4().hex, outcome)
            except StoreUnavailable as error:
                lost = error
    record = {
        **outcome.result,
        **(taught or {}),
        "config": answer["config"],
        "kernel": answer["kernel"],
    }
    trace = record["trace"]
    shown = record if trace is None else {**record, "trace": trace_words(trace)}

    def show(console: Console) -> None:
        show_record(console, outcome.status, shown)
        if record.get("contest"):
            show_contest(console, record["contest"])

    session.emit(record, show)  # what was measured is told whatever becomes of the rest
    lacks = [] if lost is None else [f"not remembered: {lost}"]
    if arguments.trace_svg is not None and trace is not None:
        picture = timeline_svg(trace, problem_words(problem))
        try:
            write_whole(arguments.trace_svg, picture.encode())
        except EnvironmentLacks as error:
            lacks.append(str(error))
    for words in lacks:
        session.say(f"[red]error:[/red] {escape(words)}")
    if lacks:
        return ENVIRONMENT
    return OK if outcome.status == "passed" else NEGATIVE
