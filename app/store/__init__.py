"""What the service keeps: jobs, their events, keys and launches, in SQLite or PostgreSQL."""

ANONYMOUS = ""
"""The key of requests that carry none, which a service on loopback takes."""
