"""Products of arrays that callers have: what ``kernels.gemm`` is made of."""
