"""The independent checker of certificates: a second implementation, standard library alone.

It shares no code with the rest of the package. From the question in a certificate and the
constants that ship it rebuilds the priced space, plays the event recurrence, ranks, and
compares every member of the answer with what it found. ``docs/model.md`` has the equations.
"""

from solver.recheck.verdict import Verdict, recheck

__all__ = ["Verdict", "recheck"]
