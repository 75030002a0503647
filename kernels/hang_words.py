"""A launch that stands still, in words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from kernels.progress import Place
from kernels.waits import REDUCE_BARRIER, Cluster, Root, RootKind, Step, Wait, Warp, named_barrier

OTHERS_MAX = 3  # further kinds of clusters that are told one by one


def report(group: Sequence[Cluster], roots: Sequence[Root]) -> list[str]:
    """Where the warps of clusters that stand alike wait, and why."""
    cluster = group[0]
    return [
        f"{_title(group)}:",
        *(f"  {line}" for line in _places(cluster)),
        *(f"Cause: {line}." for line in _causes(cluster, roots)),
    ]


def elsewhere(others: Sequence[tuple[Sequence[Cluster], Sequence[Root]]]) -> tuple[str, ...]:
    """Clusters that wait otherwise than those of the report: a line for each kind."""
    lines = [
        f"{_title(group)}: {'; '.join(_causes(group[0], roots))}."
        for group, roots in others[:OTHERS_MAX]
    ]
    if more := sum(len(group) * len(group[0].ctas) for group, _ in others[OTHERS_MAX:]):
        lines.append(f"{_ctas(more)} more: they wait elsewhere.")
    return tuple(lines)


def standing_still(groups: Sequence[Sequence[Cluster]]) -> tuple[str, ...]:
    """Clusters none of whose warps wait at a barrier: a line for each kind."""
    lines = []
    for group in groups[:OTHERS_MAX]:
        count = _ctas(len(group) * len(group[0].ctas))
        places = {w.place for w in group[0].warps}
        if places == {Place.DONE}:
            lines.append(f"{count}: all warps have done their work.")
        elif places == {Place.NOT_STARTED}:
            lines.append(f"{count}: no warp has started.")
        else:
            where = "; ".join(_places(group[0]))
            lines.append(f"{_title(group)}: no warp waits at a barrier; {where}.")
    if more := sum(len(group) * len(group[0].ctas) for group in groups[OTHERS_MAX:]):
        lines.append(f"{_ctas(more)} more: no warp waits at a barrier.")
    return tuple(lines)


def _ctas(count: int) -> str:
    return f"{count} {'CTA' if count == 1 else 'CTAs'}"


def _title(group: Sequence[Cluster]) -> str:
    ctas, more = group[0].ctas, len(group) - 1
    if len(ctas) == 1:
        return f"CTA {ctas[0]}" + (f" and {more} more that stand alike" if more else "")
    pair = f"CTAs {ctas[0]} and {ctas[-1]}, a cluster"
    return pair + (f", and {more} more clusters that stand alike" if more else "")


def _listed(warps: Sequence[Warp], home: int) -> str:
    """Warps in words; those of another CTA than ``home`` with their CTA."""
    parts: list[str] = []
    for cta, own in groupby(warps, key=lambda w: w.cta):
        where = "" if cta == home else f" of CTA {cta}"
        for run in _runs(list(own)):
            if len(run) > 2:
                parts.append(f"{run[0].name} to {run[-1].name}{where}")
            else:
                parts += [f"{w.name}{where}" for w in run]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _runs(warps: Sequence[Warp]) -> list[list[Warp]]:
    """Warps of one role that follow one another."""
    runs: list[list[Warp]] = []
    for warp in warps:
        last = runs[-1][-1] if runs else None
        if last and last.index + 1 == warp.index and last.name[:3] == warp.name[:3]:
            runs[-1].append(warp)
        else:
            runs.append([warp])
    return runs


def _verb(warps: Sequence[Warp], one: str, several: str) -> str:
    return one if len(warps) == 1 else several


def _step(step: Step) -> str:
    return f"unit {step.unit}, k-iteration {step.iteration + 1} of {step.of}"


def _at(wait: Wait) -> str:
    """A barrier, and when it is waited for."""
    if wait.step is None:
        return f"the {wait.barrier}"
    if wait.slot is None:
        part = "split-K reduction" if _reduces(wait) else "epilogue"
        return f"{wait.barrier} (unit {wait.step.unit}, {part})"
    return f"{wait.barrier} ({_step(wait.step)})"


def _reduces(wait: Wait) -> bool:
    return wait.barrier == named_barrier(REDUCE_BARRIER)


def _places(cluster: Cluster) -> list[str]:
    """Where each warp that has not ended stands; a CTA like the first is not told again."""
    lines: list[str] = []
    seen: list[tuple[object, ...]] = []
    for cta in cluster.ctas:
        own = [w for w in cluster.warps if w.cta == cta]
        state = tuple((w.place, w.iterations) for w in own)
        if state in seen:
            lines.append(f"CTA {cta}: the same")
            continue
        seen.append(state)
        prefix = f"CTA {cta}: " if len(cluster.ctas) > 1 else ""
        lines += [f"{prefix}{line}" for line in _cta_places(cluster, own)]
    return lines


def _cta_places(cluster: Cluster, warps: Sequence[Warp]) -> list[str]:
    together: dict[tuple[object, ...], list[Warp]] = {}
    for warp in warps:
        wait = cluster.wait_of(warp)
        if wait is not None or warp.place is not Place.DONE:
            together.setdefault((warp.place, warp.iterations, wait), []).append(warp)
    return [_place(cluster, some) for some in together.values()]


def _place(cluster: Cluster, warps: Sequence[Warp]) -> str:
    """Where warps stand that stand alike."""
    warp = warps[0]
    who, wait = _listed(warps, warp.cta), cluster.wait_of(warp)
    if wait is not None:
        return f"{who} {_verb(warps, 'waits', 'wait')} for {_at(wait)}: {_why(wait, warp.cta)}"
    if warp.place == Place.NOT_STARTED:
        return f"{who} {_verb(warps, 'has', 'have')} not started"
    doing = "where loads are issued" if warp.place == Place.LOADS else "in products or behind them"
    step = cluster.step(warp)
    at = "" if step is None else f" ({_step(step)})"
    return f"{who} {_verb(warps, 'stands', 'stand')} {doing}{at}"


def _why(wait: Wait, home: int) -> str:
    """Who has not come to a barrier."""
    missing, passed = wait.missing, wait.passed
    if not missing and passed:
        return f"{_listed(passed, home)} {_verb(passed, 'is', 'are')} past it"
    if not missing:
        return "all that it needs have come" if wait.needs else "for nobody"
    has = f"{_listed(missing, home)} {_verb(missing, 'has', 'have')}"
    if wait.reuses is not None:
        same = wait.step is not None and wait.reuses.unit == wait.step.unit
        unit = "" if same else f"unit {wait.reuses.unit}, "
        return f"{has} not given back {unit}k-iteration {wait.reuses.iteration + 1}"
    return f"{has} not {'come' if wait.slot is None else 'filled it'}"


def _causes(cluster: Cluster, roots: Sequence[Root]) -> list[str]:
    """Each root in words; one of those that the CTAs of a cluster, or one warp, have in common."""
    told: dict[object, str] = {}
    for root in roots:
        absent = root.kind is RootKind.ABSENT
        common = root.culprits if absent else (root.wait.barrier, root.wait.step)
        told.setdefault(common, _cause(cluster, root))
    return list(told.values())


def _cause(cluster: Cluster, root: Root) -> str:
    wait, culprits = root.wait, root.culprits
    home = wait.cta
    barrier = f"{'' if wait.step else 'the '}{wait.barrier} of CTA {home}"
    if root.kind is RootKind.COMPLETE:
        whole_warps = wait.slot is None
        return _uneven(cluster, root, barrier) if whole_warps else _short(cluster, wait, barrier)
    who = _listed(culprits, home)
    if root.kind is RootKind.CIRCLE:
        return f"{barrier} is waited for in a circle, by way of {who}"
    if all(w.place == Place.NOT_STARTED for w in culprits):
        return f"{who} {_verb(culprits, 'has', 'have')} not started"
    return (
        f"{who} {_verb(culprits, 'has', 'have')} not come to {barrier} and "
        f"{_verb(culprits, 'waits', 'wait')} at no barrier of the protocol: an instruction that "
        "does not complete, a barrier of another kind, or a loop without an end"
    )


def _short(cluster: Cluster, wait: Wait, barrier: str) -> str:
    """A barrier of the ring to which all have come, by their records."""
    if not wait.needs:
        return (
            f"nobody has to come to {barrier} on the first visit to its slot: the wait is for "
            "another phase than the protocol's, or the barrier is not initialised"
        )
    who = f"{_listed(wait.needs, wait.cta)} {_verb(wait.needs, 'is', 'are')}"
    plan = cluster.plan
    if wait.reuses is None:
        arrivals = plan.config.dma_warps
        return (
            f"{barrier} takes {arrivals} {'arrival' if arrivals == 1 else 'arrivals'} and "
            f"{plan.a.tx_bytes + plan.b.tx_bytes} bytes; {who} past the loads for it, and it is "
            "not complete: its count is higher, fewer bytes land than were announced, or the "
            "wait is for another phase"
        )
    remote = ", a peer's by way of the cluster" if plan.cluster > 1 else ""
    return (
        f"{barrier} takes {len(wait.needs)} arrivals{remote}; {who} past the place where "
        f"{_step(wait.reuses)} is given back, and it is not complete: an arrival is left out, "
        "its count is higher, or the wait is for another phase"
    )


def _uneven(cluster: Cluster, root: Root, barrier: str) -> str:
    """A barrier of whole warps to which all have come, or which some have left behind."""
    past = root.culprits
    stores = root.wait.step is not None and not _reduces(root.wait)
    or_store = ", or a store by TMA does not end" if stores else ""
    if not past:
        return (
            f"all that {barrier} takes are there: it counts more threads than come, or some take "
            f"it once more than others{or_store}"
        )
    gone = f"{_listed(past, root.wait.cta)} {_verb(past, 'is', 'are')} past {barrier}"
    if root.wait.step is not None:
        return f"{gone}, others are not: some take it once less than others{or_store}"
    registers = ", or for registers (setmaxnreg)" if cluster.plan.config.register_split else ""
    return (
        f"{gone}, so that it is complete; others wait between it and the first step of their "
        f"role: at a barrier that not all warps take{registers}"
    )
