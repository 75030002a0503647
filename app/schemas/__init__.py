"""Shapes of requests and responses at the HTTP edge."""
