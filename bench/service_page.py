"""What the runs of the service say, beside a GPU and under load, in words for docs/results.md."""

from __future__ import annotations

from typing import Any

NAME = "service_gpu"
TITLE = "## The service beside a GPU"
HTTP_TITLE = "## Suites over HTTP"
LOAD_TITLE = "## The service under load"


def service_part(record: dict[str, Any] | None) -> str:
    """The section. Raises SystemExit for a record that was cut short."""
    if record is None:
        return f"{TITLE}\n\nNot run: `bench.gpu_service`."
    if not record["complete"]:
        raise SystemExit(f"{NAME}.json was cut short")
    stand, kills = record["stand"], record["kills"]
    wrong = sum(row["reason"] == "wrong_result" for row in record["rows"])
    lines = [
        f"- {record['verifications']} verifications in {record['elapsed_s']:.0f} s: "
        f"{record['passed']} passed, {wrong} of a kernel that was planted to be wrong failed with "
        f"`wrong_result`, {len(record['hangs'])} of a kernel planted to hang. "
        f"{_faults(record['faults'])}",
        f"- As uid {stand['uid']}, on a program that it can't write to, with a folder for the "
        "database and one for compiled kernels.",
        *([_killed(record, kills)] if kills else []),
        *(_hang(hang) for hang in record["hangs"]),
    ]
    about = f"{record['device']}, driver {record['driver']}, {record['date'][:10]}"
    commit = str(record["commit"])[:12]
    return f"{TITLE}\n\n`bench.gpu_service`, {about}, commit {commit}.\n\n" + "\n".join(lines)


def _faults(faults: list[str]) -> str:
    if not faults:
        return "Every verdict was the right one; nothing was lost, nothing doubled."
    return f"**Not as it must be**: {'; '.join(faults)}."


def _killed(record: dict[str, Any], kills: list[dict[str, Any]]) -> str:
    ready = ", ".join(f"{kill['ready_s']:.1f}" for kill in kills)
    next_ = ", ".join("-" if k["next_end_s"] is None else f"{k['next_end_s']:.1f}" for k in kills)
    return (
        f"- `kill -9` of all its processes {len(kills)} times while one was verified: ready again "
        f"after {ready} s, the next verdict after {next_} s; {record['lost_runs']} runs were lost "
        "and run again."
    )


def _hang(hang: dict[str, Any]) -> str:
    cause = next(
        (each for each in hang["lines"] or () if each.startswith("Cause")), "no cause told"
    )
    begun_s = hang["next_begun_s"]
    next_ = "" if begun_s is None else f", and the next verification began {begun_s:.1f} s later"
    return (
        f"- The kernel that hangs: `{hang['status']}`, `{hang['reason']}` after "
        f"{hang['gpu_seconds']:.0f} s, in which it was run again to find out where; its process "
        f"was replaced{next_}. {cause}"
    )


def http_part(record: dict[str, Any] | None) -> str:
    """The section on ``bench.http_verify``."""
    if record is None:
        return f"{HTTP_TITLE}\n\n`bench.http_verify`: not run."
    rows = record["rows"]
    proven, passed = (
        sum(row[name] == good for row in rows)
        for name, good in (("proof", "optimal"), ("status", "passed"))
    )
    cut = "" if record["complete"] else f" of {record['planned']}, cut short"
    return (
        f"{HTTP_TITLE}\n\n`{record['command']}`, {record['device']}, {record['date'][:10]}: "
        f"{len(rows)} problems{cut}, {proven} picks proved, {passed} passed their verification."
    )


def load_part(record: dict[str, Any] | None) -> str:
    """The section on ``make bench-service``."""
    if record is None:
        return f"{LOAD_TITLE}\n\n`make bench-service`: not run."
    clients, single_ms = record["clients"], record["uncached_single_p50_ms"]
    growth = record["memory_growth"]
    lines = [
        f"- A cached `GET /v1/optimize` from {clients['cached']} clients: "
        f"{record['cached_per_s']:,.0f} answers a second, {record['cached_ratio']:.2f} of a bare "
        f"route that returns the same bytes; p99 {record['cached_p99_ms']:.1f} ms, "
        f"{record['cached_p99_ratio']:.2f} of its.",
        f"- Uncached `POST /v1/optimize` from {clients['uncached']} clients for "
        f"{record['seconds']:.0f} s: {record['uncached_requests']:,} answers, "
        f"{record['uncached_errors']} errors, p99 {record['uncached_p99_ms']:,.0f} ms, "
        f"{record['uncached_p99_ms'] / single_ms:.0f} times the median of a single client "
        f"({single_ms:.0f} ms); the most memory held after the first minute is "
        f"{abs(growth):.1%} {'more' if growth > 0 else 'less'} than within it.",
    ]
    about = f"{record['cores']} cores, {record['date'][:10]}, commit {record['commit'][:12]}"
    return f"{LOAD_TITLE}\n\n`make bench-service`, {about}.\n\n" + "\n".join(lines)
