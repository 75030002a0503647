"""The protocol by which DMA and MATH warps share a ring of shared-memory slots, and its proof."""
