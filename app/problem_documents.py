"""Every error as an RFC 9457 problem document, over HTTP and on the command line alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.errors import (
    AddressInUse,
    AlreadyEnded,
    EnvironmentLacks,
    InvalidRequest,
    NoPick,
    NotFound,
    QueueFull,
    QuotaExceeded,
    Unavailable,
)
from app.schemas.faults import describe
from kernels.errors import (
    CacheUnwritable,
    CompileFailed,
    CompilerAbsent,
    CompilerMismatch,
    GpuAbsent,
    GpuLost,
    NoKernelFamily,
    ProfilerUnusable,
    StepFailed,
    UnknownKernel,
)
from solver.conflict import Unsatisfiable
from solver.errors import IllegalConfig, InvalidInput, UnusableProfile, WarpwrightError

MEDIA_TYPE = "application/problem+json"
URN = "urn:warpwright:problem:"
REQUEST_URN = "urn:warpwright:request:"

FAULTS_SHOWN = 32
"""Faults that one document names: a body can hold thousands."""


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A kind of problem: the end of its type URN, its HTTP status and its title."""

    name: str
    status: int
    title: str

    @property
    def type(self) -> str:
        """The document's ``type`` member."""
        return URN + self.name


MALFORMED = ProblemKind("malformed-json", 400, "The body is not JSON")
NO_KEY = ProblemKind("key-needed", 401, "A valid API key is needed")
NO_SCOPE = ProblemKind("scope-needed", 403, "The API key lacks a scope")
BAD_ORIGIN = ProblemKind("foreign-origin", 403, "Requests from other origins are refused")
NOT_FOUND = ProblemKind("not-found", 404, "There is nothing at this address")
BAD_METHOD = ProblemKind("method-not-allowed", 405, "The address does not take this method")
SLOW_BODY = ProblemKind("body-timeout", 408, "The body did not arrive in time")
ENDED = ProblemKind("already-ended", 409, "The job has ended")
TOO_LARGE = ProblemKind("body-too-large", 413, "The body is too large")
NOT_JSON = ProblemKind("unsupported-media-type", 415, "The body must be JSON")
BAD_HOST = ProblemKind("foreign-host", 421, "Requests for other hosts are refused")
INVALID = ProblemKind("invalid-input", 422, "A value breaks a limit")
UNSATISFIABLE = ProblemKind("unsatisfiable", 422, "No legal configuration is allowed")
NO_FAMILY = ProblemKind("no-kernel-family", 422, "No kernel family runs on this GPU")
NO_PICK = ProblemKind("no-pick", 422, "A question has no pick that can be locked")
REFUSED = ProblemKind("compile-failed", 422, "The CUDA compiler refused the kernel")
RATE_LIMITED = ProblemKind("rate-limited", 429, "The API key makes too many requests")
QUOTA = ProblemKind("quota-exceeded", 429, "The API key's quota is used up")
QUEUE_FULL = ProblemKind("queue-full", 429, "Too many jobs wait for the GPU")
DEFECT = ProblemKind("internal-error", 500, "The service failed")
NO_GPU = ProblemKind("gpu-absent", 503, "There is no GPU to run this on")
NO_COMPILER = ProblemKind("compiler-absent", 503, "The CUDA compiler is not installed")
LACKS = ProblemKind("environment", 503, "The machine lacks something this needs, or is in its way")
UNAVAILABLE = ProblemKind("unavailable", 503, "The service can't answer now")

KINDS = tuple(value for value in list(globals().values()) if isinstance(value, ProblemKind))


class FieldError(BaseModel):
    """One value that breaks a limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: str = Field(description="the value's path in the request, as `config.tile_m`")
    message: str = Field(description="the limit, and what was given")


class Relaxation(BaseModel):
    """One of the constraints that clash, and the least change of it that leaves something."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(description="as `constraints.config.stages.max`")
    given: int | list[int]
    relaxed: int | list[int] | None = Field(
        description="null where no change of this one alone is enough"
    )


class ProblemDocument(BaseModel):
    """RFC 9457 problem details; `errors` is present where fields are to blame, `core` and
    `relaxations` where constraints clash.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str = Field(description="a URN that names the kind of problem")
    title: str = Field(description="the kind in words, the same for every occurrence")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="this occurrence in words: the field, the limit, the value")
    instance: str | None = Field(
        None, description="this occurrence as a URN: the request, as X-Request-ID has it"
    )
    errors: list[FieldError] = Field(default_factory=list)
    core: list[str] = Field(
        default_factory=list,
        description="paths of constraints that leave nothing together, and would without any one",
    )
    relaxations: list[Relaxation] = Field(default_factory=list)

    def body(self) -> dict[str, Any]:
        """JSON-ready members, the lists only where there is something in them."""
        members = self.model_dump()
        return {name: value for name, value in members.items() if value not in ([], None)}


def document(
    kind: ProblemKind, detail: str, errors: Sequence[tuple[str, str]] = (), **more: Any
) -> ProblemDocument:
    """The document of one occurrence; ``errors`` are (field, message) pairs, ``more`` are
    further members.
    """
    return ProblemDocument(
        type=kind.type,
        title=kind.title,
        status=kind.status,
        detail=detail,
        errors=[FieldError(field=field, message=message) for field, message in errors],
        **more,
    )


def invalid(errors: Sequence[tuple[str, str]], left_out: int = 0) -> ProblemDocument:
    """The document for fields that break limits; its detail names them all.

    ``left_out`` says how many more there are.
    """
    words = [f"{field}: {message}" for field, message in errors]
    if left_out:
        words.append(f"and {left_out} more")
    return document(INVALID, "; ".join(words), errors)


def invalid_request(faults: Sequence[Mapping[str, Any]], model: type[BaseModel]) -> ProblemDocument:
    """The document for what pydantic found wrong with a request of ``model``."""
    named = [describe(fault, model) for fault in faults[:FAULTS_SHOWN]]
    return invalid(named, left_out=len(faults) - len(named))


def from_exception(error: Exception) -> ProblemDocument:
    """The document of an exception; one that nobody expected says nothing of its inside."""
    match error:
        case IllegalConfig():
            return invalid([(f"config.{error.field}", error.message)])
        case Unsatisfiable():
            return document(
                UNSATISFIABLE, error.message, core=error.core, relaxations=error.relaxations
            )
        case InvalidRequest():
            return invalid_request(error.faults, error.model)
        case NoKernelFamily():
            return document(NO_FAMILY, str(error))
        case UnusableProfile():
            return document(UNAVAILABLE, str(error))
        case InvalidInput():
            return invalid([(error.field, error.message)])
        case NoPick():
            return document(NO_PICK, str(error))
        case CompileFailed():
            return document(REFUSED, str(error))
        case GpuAbsent():
            return document(NO_GPU, str(error))
        case CompilerAbsent():
            return document(NO_COMPILER, str(error))
        case EnvironmentLacks() | AddressInUse() | CacheUnwritable() | CompilerMismatch():
            return document(LACKS, str(error))
        case GpuLost() | StepFailed() | ProfilerUnusable():
            return document(LACKS, str(error))
        case NotFound() | UnknownKernel():
            return document(NOT_FOUND, str(error))
        case QuotaExceeded():
            return document(QUOTA, str(error))
        case AlreadyEnded():
            return document(ENDED, str(error))
        case QueueFull():
            return document(QUEUE_FULL, str(error))
        case Unavailable():
            return document(UNAVAILABLE, str(error))
        case _:
            return document(DEFECT, "an unexpected error; the service's log has the details")


def is_expected(error: Exception) -> bool:
    """Whether an exception is one of the project's own that a user can act on."""
    return isinstance(error, WarpwrightError) and from_exception(error).status != DEFECT.status
