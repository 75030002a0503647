"""Which kinds of jobs there are, and what runs each."""

from __future__ import annotations

from app.calibration import KIND as CALIBRATION
from app.calibration import run_calibration
from app.sweep import KIND as SWEEP
from app.sweep import run_sweep
from app.turn import Runner
from app.verification import KIND as VERIFICATION
from app.verification import run_verification

RUNNERS: dict[str, Runner] = {
    VERIFICATION: run_verification,
    CALIBRATION: run_calibration,
    SWEEP: run_sweep,
}
