"""Benchmarks and the commands that remake what the README shows."""
