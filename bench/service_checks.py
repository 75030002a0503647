"""Whether verifications that were handed in to a service that is killed ended as they must."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bench.hang_plants import fields_of
from bench.service_run import Course, key_of
from bench.service_work import Asked

LOST = "lost"
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is judged: the questions, what happened, the service's lists of jobs and of launches at
    the end, and the ids that the same questions got once more. ``uid`` is the service's user,
    ``kills`` how often it was to be killed."""

    asked: Sequence[Asked]
    course: Course
    jobs: Rows
    launches: Rows
    repeated: Mapping[str, str]
    uid: int
    kills: int

    def job(self, number: int) -> Mapping[str, Any] | None:
        """How a question's verification ended."""
        job_id = self.course.accepted.get(key_of(number))
        return next((job for job in self.jobs if job["id"] == job_id), None)

    @property
    def hung(self) -> list[Mapping[str, Any]]:
        """The verifications of kernels that hang."""
        found = (self.job(n) for n, each in enumerate(self.asked) if each.reason == "timeout")
        return [job for job in found if job is not None]


def faults_of(evidence: Evidence) -> list[str]:
    """Everything that is not as it must be, in words; none where all is."""
    return [
        *_lost_or_doubled(evidence),
        *_verdicts(evidence),
        *_runs(evidence),
        *_processes(evidence),
    ]


def _lost_or_doubled(evidence: Evidence) -> Iterator[str]:
    accepted = evidence.course.accepted
    ids = list(accepted.values())
    for number in range(len(evidence.asked)):
        if key_of(number) not in accepted:
            yield f"{key_of(number)} was not accepted"
    if len(set(ids)) != len(ids):
        yield "two questions have one verification"
    listed = [job["id"] for job in evidence.jobs]
    for job_id in sorted(set(ids) - set(listed)):
        yield f"verification {job_id} is lost"
    for job_id in sorted(set(listed) - set(ids)):
        yield f"verification {job_id} is nobody's"
    if len(set(listed)) != len(listed):
        yield "a verification is listed twice"
    for key, job_id in accepted.items():
        if evidence.repeated.get(key) != job_id:
            yield f"{key} asked once more is not {job_id} again"


def _verdicts(evidence: Evidence) -> Iterator[str]:
    for number, asked in enumerate(evidence.asked):
        job = evidence.job(number)
        if job is None:
            continue  # told already
        ended, must = (job["status"], job["reason"]), (asked.status, asked.reason)
        if ended != must:
            details = (job["result"] or {}).get("details") or ""
            yield f"{key_of(number)} ended {ended}, not {must}: {details[:300]}"
        elif asked.hang is not None:
            hang = (job["result"] or {}).get("hang")
            if hang is None or fields_of(hang) != asked.hang:
                yield f"{key_of(number)} says of the hang {hang}, not {dict(asked.hang)}"


def _runs(evidence: Evidence) -> Iterator[str]:
    """Each run is one line of the audit: the lost ones, then the one that counts."""
    lost = 0
    for job in evidence.jobs:
        mine = sorted(
            (row for row in evidence.launches if row["job_id"] == job["id"]),
            key=lambda row: row["attempt"],
        )
        outcomes = [row["outcome"] for row in mine]
        if [row["attempt"] for row in mine] != list(range(1, job["attempts"] + 1)):
            yield f"verification {job['id']} ran {job['attempts']} times, the audit has {outcomes}"
        elif outcomes != [LOST] * (len(mine) - 1) + [job["status"]]:
            yield f"verification {job['id']} is {job['status']}, its runs were {outcomes}"
        lost += outcomes.count(LOST)
    if len(evidence.course.kills) != evidence.kills:
        yield f"{len(evidence.course.kills)} of {evidence.kills} kills came while something ran"
    if lost > len(evidence.course.kills):
        yield f"{lost} runs were lost, with {len(evidence.course.kills)} kills"


def _processes(evidence: Evidence) -> Iterator[str]:
    """Whose the processes were, and that none outlived a hang."""
    course = evidence.course
    uids = set(course.service_uids).union(*(s.values() for s in course.launched_by.values()))
    if uids != {evidence.uid}:
        yield f"processes ran as {sorted(uids)}, not as {evidence.uid} alone"
    for job in evidence.hung:
        mine = set(course.launched_by.get(job["id"], ()))
        if not mine:
            yield f"no process was seen to launch the hanging {job['id']}"
        for pid in sorted(mine & course.left):
            yield f"process {pid} outlived the hang that it launched"
        for other in begun_after(job, evidence.jobs):
            if shared := mine & set(course.launched_by.get(other["id"], ())):
                yield f"{other['id']} was launched by {shared}, in which a kernel had hung"


def begun_after(job: Mapping[str, Any], jobs: Rows) -> list[Mapping[str, Any]]:
    """The jobs whose last run began after one had ended."""
    end = _moment(job["finished_at"])
    return [each for each in jobs if each["started_at"] and _moment(each["started_at"]) >= end]


def hang_facts(evidence: Evidence) -> list[dict[str, Any]]:
    """Of each hang: how long its last run held the GPU, by how many processes it was launched, and
    the seconds from its end until the next verification began."""
    facts = []
    for job in evidence.hung:
        rows = [row for row in evidence.launches if row["job_id"] == job["id"]]
        end = _moment(job["finished_at"])
        begins = [_moment(each["started_at"]) for each in begun_after(job, evidence.jobs)]
        hang = (job["result"] or {}).get("hang") or {}
        facts.append(
            {
                "status": job["status"],
                "reason": job["reason"],
                "attempts": job["attempts"],
                "gpu_seconds": rows[0]["gpu_seconds"] if rows else None,
                "processes": len(evidence.course.launched_by.get(job["id"], ())),
                "next_begun_s": (min(begins) - end).total_seconds() if begins else None,
                "lines": hang.get("lines"),
            }
        )
    return facts


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
