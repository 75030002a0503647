"""What is wrong with a verification as it was asked for, whatever GPU there is: told before one is
looked for."""

from __future__ import annotations

from app.schemas.norm_questions import NormVerificationRequest
from app.schemas.questions import RACED_MAX, VerificationRequest
from solver.device import load_profile
from solver.errors import IllegalConfig, InvalidInput
from solver.families import norm_activation_legality, sm90_gemm_legality
from solver.limits import check_integer


def check_asked(asked: VerificationRequest | NormVerificationRequest, device: str) -> None:
    """Raise InvalidInput for a problem that is none, a race of what is no pick, or a configuration
    that is illegal on ``device``: the host's, or where there is none the one that answers are for.
    """
    profile = load_profile(device)
    if isinstance(asked, NormVerificationRequest):
        rows = asked.problem()
        if asked.config is not None:
            norm_activation_legality.check_legal(rows, asked.config.config(), profile)
        return
    problem = asked.problem()
    check_integer("top_k", asked.top_k, 1, RACED_MAX)
    if asked.top_k > 1 and (asked.config is not None or asked.against):
        raise InvalidInput("top_k", "must be 1 with config or against: it is for the pick alone")
    if asked.config is not None:
        sm90_gemm_legality.check(asked.config.config(), problem, profile)
    for place, other in enumerate(asked.against):
        try:
            sm90_gemm_legality.check(other.config(), problem, profile)
        except IllegalConfig as error:
            raise InvalidInput(f"against.{place}.{error.field}", error.message) from None
