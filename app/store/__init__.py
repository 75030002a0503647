"""What the service keeps: jobs, their events, keys and launches, in SQLite or PostgreSQL."""
