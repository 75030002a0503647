"""The service beside a GPU, as it stands in production, killed while it verifies.

    python -m bench.gpu_service --out bench/results/h200/service_gpu.json

Installs the program into a folder that belongs to root and that nobody can write to, with folders
of their own for the database and for compiled kernels, and runs `warpwright serve` there as another
user on loopback. Hands in ``--jobs`` seeded verifications, three of them of a kernel that gives a
wrong result, and one of a kernel that never ends (bench/service_work.py says how these come in).
Ends the service and all its processes by ``kill -9`` ``--kills`` times while something runs, at
seeded moments, and starts it again. At the end nothing may be lost or doubled, and each verdict
must be the right one; where something is not so, the service's log lies beside the record.

For root, which gives the program away; needs what the service needs, z3 and pydantic included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.evidence import begin, parser_of, progress_bar
from bench.files import write
from bench.service_checks import LOST, Evidence, faults_of, hang_facts
from bench.service_process import UNREACHABLE, NotInTime, ServiceFault, ServiceProcess
from bench.service_run import Run, facts_of
from bench.service_stand import Stand, StandUnusable, stand, user_of
from bench.service_work import Asked, plant, work
from kernels.bench_result import package_versions
from kernels.cache import KernelCache
from kernels.errors import KernelError
from kernels.protocol import VERIFY
from solver.device import DeviceProfile

JOBS, KILLS = 200, 2
PACKAGES = ("fastapi", "pydantic", "sqlalchemy", "starlette", "uvicorn", "z3-solver")
FEWEST, FAULTS_TOLD = 20, 10
DEADLINE_S = 30.0
"""Of a verification: the first of a fresh process imports CuPy and makes a CUDA context."""
HOW = (
    "verifications handed in over HTTP with idempotency keys; kill -9 of the service's whole "
    "process group at seeded moments while one runs; judged by the service's own lists of "
    "verifications and launches, and by asking everything once more"
)


@dataclass(frozen=True, slots=True)
class Site:
    """What runs: the words after the interpreter, further folders and variables that these need,
    what is put into the kernel cache first, and what is asked of it."""

    command: tuple[str, ...] = ("-m", "app.cli.main", "serve", "--port", "0", "--json")
    folders: tuple[str, ...] = ()
    variables: Callable[[Stand], Mapping[str, str]] = lambda stand: {}
    plant: Callable[[KernelCache], None] = plant
    work: Callable[[int, int, DeviceProfile], list[Asked]] = work


def main(arguments: Sequence[str] | None = None, site: Site | None = None) -> int:
    """0: all is as it must be; 1: something is not, or the budget ran out; 2: wrong arguments;
    3: not root, no GPU or no family, or the user can't run the program."""
    site = site or Site()
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.jobs < FEWEST:
        parser.error(f"--jobs must be at least {FEWEST}")
    if not 0 <= chosen.kills <= chosen.jobs // 2:
        parser.error(f"--kills must be 0 to {chosen.jobs // 2}, half of the jobs")
    if os.geteuid() != 0:
        parser.exit(3, "error: needs root, to run the service as another user than its program's\n")
    _, facts, device = begin(parser, arguments)
    try:
        with stand(user_of(chosen.uid), chosen.python, site.folders) as made:
            found = made.probe()
            site.plant(KernelCache(made.cache))
            made.hand_over()
            asked = site.work(chosen.jobs, chosen.seed, device)
            ended = carry_out(made, asked, chosen, site)
            if ended.faults:
                chosen.out.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(made.log, chosen.out.with_suffix(".log"))
    except (StandUnusable, KernelError) as error:
        parser.exit(3, f"error: {error}\n")
    packages = facts.get("packages", {}) | package_versions(PACKAGES)
    record = facts | {"packages": packages, "stand": found} | record_of(ended, chosen)
    write(chosen.out, record)
    for fault in ended.faults[:FAULTS_TOLD]:
        print(f"error: {fault}", file=sys.stderr)
    told = ("verifications", "passed", "failed", "lost_runs", "complete", "elapsed_s")
    print(json.dumps({**{name: record[name] for name in told}, "faults": len(ended.faults)}))
    return 0 if ended.complete and not ended.faults else 1


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that is over: whether every verification had ended, the service's exit code after
    SIGTERM (None: it did not come to that), and what is not as it must be."""

    evidence: Evidence
    complete: bool
    exit_code: int | None
    faults: list[str]


def carry_out(made: Stand, asked: Sequence[Asked], chosen: argparse.Namespace, site: Site) -> Ended:
    """Run the service until all has ended or the budget has gone.

    Raises StandUnusable where it sees no GPU.
    """
    settings = {
        "WARPWRIGHT_WORKERS": str(chosen.workers),
        "WARPWRIGHT_VERIFY_DEADLINE_S": str(chosen.deadline_s),
        "WARPWRIGHT_VERIFICATIONS_WAITING": str(len(asked)),
        "WARPWRIGHT_VERIFICATIONS_KEPT": str(len(asked)),
        **site.variables(made),
    }
    service = ServiceProcess(
        [made.python, *site.command],
        made.environment(**settings),
        made.log,
        folder=made.state,
        user=made.user,
    )
    before, faults = made.contents(), []
    jobs: list[dict[str, Any]] = []
    launches: list[dict[str, Any]] = []
    repeated: dict[str, str] = {}
    complete, exit_code = False, None
    with progress_bar() as bar:
        task = bar.add_task("verifications", total=len(asked), failed="")

        def tell(ended: int, kills: int) -> None:
            bar.update(task, completed=ended, failed=f"{kills} of {chosen.kills} kills")

        run = Run(service, asked, made.cache, kills=chosen.kills, seed=chosen.seed, tell=tell)
        try:
            with service:
                if service.read("/readyz")["gpu"] == "absent":
                    raise StandUnusable(f"the service sees no GPU as uid {made.user.uid}")
                complete = run.to_the_end(chosen.budget_s)
                jobs, launches = service.jobs(), service.launches()
                service.hand_in(run.questions, repeated)
                exit_code = service.stop()
        except (ServiceFault, NotInTime, *UNREACHABLE) as error:
            faults.append(f"{type(error).__name__}: {error}")
    evidence = Evidence(asked, run.course, jobs, launches, repeated, made.user.uid, chosen.kills)
    faults += faults_of(evidence)
    if exit_code != 0:
        faults.append(f"the service ended with {exit_code} after SIGTERM")
    if made.contents() != before:
        faults.append("the program's folder is not as it was")
    return Ended(evidence, complete, exit_code, faults)


def record_of(ended: Ended, chosen: argparse.Namespace) -> dict[str, Any]:
    """What is kept of a run."""
    evidence = ended.evidence
    ends = [job["status"] for job in evidence.jobs]
    return {
        "protocol": {"how": HOW, "timing": VERIFY.to_dict(), "deadline_s": chosen.deadline_s},
        "seed": chosen.seed,
        "verifications": len(evidence.asked),
        **{status: ends.count(status) for status in ("passed", "failed")},
        "lost_runs": [row["outcome"] for row in evidence.launches].count(LOST),
        "kills": [asdict(kill) for kill in evidence.course.kills],
        "hangs": hang_facts(evidence),
        "gpu_seconds": round(sum(row["gpu_seconds"] for row in evidence.launches), 1),
        "complete": ended.complete,
        "elapsed_s": evidence.course.elapsed_s,
        "exit_code": ended.exit_code,
        "faults": ended.faults,
        "rows": [facts_of(job) for job in reversed(evidence.jobs)],
    }


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("gpu_service", __doc__)
    parser.add_argument("--jobs", type=int, default=JOBS, help="verifications beside the hanging")
    parser.add_argument("--kills", type=int, default=KILLS, help="of the service, meanwhile")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--uid", type=int, help="the service's user (nobody)")
    parser.add_argument("--python", default=sys.executable, help="interpreter it is run by")
    parser.add_argument("--workers", type=int, default=1, help="solver processes")
    parser.add_argument(
        "--deadline-s", type=float, default=DEADLINE_S, help="longest time of a verification"
    )
    parser.add_argument("--budget-s", type=float, default=600.0, help="then give up")
    return parser


if __name__ == "__main__":
    sys.exit(main())
