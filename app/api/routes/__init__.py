"""One module per group of routes; routes translate and nothing else."""
