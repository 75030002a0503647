"""What the GPU tests of norm_activation run in a worker process. CUDA is imported inside."""

from __future__ import annotations

from kernels.norm.run_case import Case


def wrong_cases(cases: list[Case]) -> list[str]:
    """Those of the cases that give a wrong output, in words."""
    from kernels.norm.run import check_cases

    return [f"{case}: {finding}" for case, finding in check_cases(cases)]


def blocks_on_an_sm(cases: list[Case]) -> list[tuple[int, int]]:
    """Blocks that an SM holds, as the plan counts and as the driver does."""
    from kernels.norm.launch import blocks_by_driver
    from kernels.norm.run import bind

    counts = []
    for case in cases:
        plan, function = bind(case.problem, case.config, **case.options)
        counts.append((plan.resident_blocks, blocks_by_driver(plan, function)))
    return counts


def launch_contradicting(case: Case, field: str, value: int) -> str:
    """Launch with one argument changed; the error's words, empty where the kernel ran."""
    from cuda.bindings import driver

    from kernels.driver import checked
    from kernels.errors import LaunchFailed
    from kernels.norm.run import NormArrays, bind
    from kernels.session import session

    stream = session().stream
    arrays = NormArrays.of(case.problem, 1)
    plan, function = bind(case.problem, case.config)
    launch = arrays.launch(plan, function)
    if field == "threads":
        launch._config.blockDimX = value
    else:
        launch._block[field] = value
    try:
        launch.launch(stream)
        checked("the launch", driver.cuStreamSynchronize(driver.CUstream(stream.ptr)))
    except LaunchFailed as error:
        return str(error)
    return ""
