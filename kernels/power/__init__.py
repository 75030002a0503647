"""What a GPU draws while a kernel's launches follow one another for a second, by NVML's energy
counter: docs/energy.md."""
