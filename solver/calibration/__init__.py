"""Constants of a device fitted to its own measured rows: which rows, from where, how sure."""
