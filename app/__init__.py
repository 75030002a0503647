"""The service and the command line: thin over solver and kernels."""

__version__ = "0.1.0"
