"""The kernels: CUDA sources, compile, launch, verify and measure."""
