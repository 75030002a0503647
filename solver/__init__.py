"""The solver: problem, device, legal space, model, simulator and Z3 proof. No GPU, no HTTP."""
