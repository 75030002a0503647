"""The exceptions of Warpwright, one tree.

WarpwrightError
├── InvalidInput            the user's value is wrong: names the field and the limit
│   ├── InvalidProblem      a problem no kernel family can take as it stands
│   ├── IllegalConfig       a configuration that breaks a device or family limit
│   └── UnusableProfile     a file in WARPWRIGHT_PROFILES that can't stand in: the host's fault
├── UnknownDevice           no profile of that name
├── Unsupported             a device, family or model that does not exist together
└── ProofError              the solver contradicts itself (a defect of ours)
"""

from __future__ import annotations


class WarpwrightError(Exception):
    """Base of every error this project raises on purpose."""


class InvalidInput(WarpwrightError):
    """A value of the user's that breaks a limit.

    ``field`` is the user's own name for the value; the message states the limit.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message

    def __reduce__(self) -> tuple[type[InvalidInput], tuple[str, str]]:
        """Pickled by its two parts: errors cross process pools."""
        return type(self), (self.field, self.message)


class InvalidProblem(InvalidInput):
    """A problem outside what the solver or a kernel family accepts."""


class IllegalConfig(InvalidInput):
    """A configuration that breaks at least one limit; ``field`` names the first."""


class UnusableProfile(InvalidInput):
    """A file in the folder that WARPWRIGHT_PROFILES names, which is the field, can't stand in for
    the profile that ships. Whoever asks a service can't mend it."""


class UnknownDevice(InvalidInput):
    """No device profile of the given name."""


class Unsupported(InvalidInput):
    """A combination that exists in no profile; the message says what does exist."""


class ProofError(WarpwrightError):
    """Z3 and the closed form disagree. Never the user's fault."""
