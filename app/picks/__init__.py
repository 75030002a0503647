"""Picks that a CI job guards: the picks file, its lock, what is checked, and how that is told."""
