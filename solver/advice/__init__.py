"""Whether to divide a kernel's warps into producers and consumers, by figures of the kernel."""
