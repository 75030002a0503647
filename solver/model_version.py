"""Which equations constants are of: profiles, answers, certificates and records carry it."""

MODEL_VERSION = "6"
"""Raised with every change of an equation; constants have the profile's hash."""
