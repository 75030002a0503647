"""Where the time goes on shapes that lose to cuBLAS, in words for docs/results.md."""

from __future__ import annotations

from typing import Any

from bench.records import Row

METRICS = {
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed [%]": "tensor pipe",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed [%]": "L2",
    "l1tex__throughput.avg.pct_of_peak_sustained_active [%]": "SM's memory path",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed [%]": "device memory",
}
TIME, GRID, CLUSTER = (
    "gpu__time_duration.sum [ns]",
    "launch__grid_size",
    "launch__cluster_size",
)


def losses_part(record: dict[str, Any] | None) -> str | None:
    """What ``bench.gpu_profile`` recorded: a line for our kernel and each of cuBLAS's."""
    if record is None:
        return None
    title = "## Where the time goes"
    bound = f"{record['below']:.2f}"
    if not record["rows"]:
        return f"{title}\n\nNo best is surely below {bound} of cuBLAS."
    head = [
        f"| m | n | k | kernel | µs | CTAs | cluster | {' | '.join(METRICS.values())} |",
        f"|{'---|' * (7 + len(METRICS))}",
    ]
    lines = [line for row in record["rows"] for line in _lines(row)]
    return "\n\n".join(
        [
            title,
            f"Bests of the LLM suite whose interval lies below {bound} of cuBLAS, one cold launch "
            f"each under Nsight Compute ({record['date'][:10]}), in % of what the hardware can do.",
            "\n".join([*head, *lines]),
        ]
    )


def _lines(row: Row) -> list[str]:
    shape = f"| {row['m']} | {row['n']} | {row['k']} "
    if row["reason"]:
        return [f"{shape}| not profiled: {row['reason'][:80]} |{' |' * (3 + len(METRICS))}"]
    config = row["config"]
    ours = f"ours, {config['tile_m']}x{config['tile_n']}x{config['tile_k']}"
    lines = []
    for kernel in row["kernels"]:
        metrics = kernel["metrics"]
        name = ours if kernel["kernel"].startswith("sm90_gemm") else f"`{kernel['kernel']}`"
        shares = " | ".join(f"{metrics[m]:.0f}" if m in metrics else "-" for m in METRICS)
        # One that was launched without clusters is said to have one of none.
        cluster = max(1, round(metrics.get(CLUSTER, 1)))
        lines.append(
            f"{shape}| {name} | {metrics[TIME] / 1e3:.1f} | {metrics[GRID]:.0f} | {cluster} "
            f"| {shares} |"
        )
    return lines
