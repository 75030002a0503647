"""A kernel and its launch to take home: source, cubin, recipe and programs that follow it."""
