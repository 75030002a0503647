// Test only: a kernel with the GEMM's name and arguments that never ends, to prove that a
// deadline kills the process that launched it.

#include "sm90_gemm_args.cuh"

extern "C" __global__ void sm90_gemm(const __grid_constant__ warpwright::TensorMap,
                                     const __grid_constant__ warpwright::TensorMap,
                                     const __grid_constant__ warpwright::TensorMap,
                                     const __grid_constant__ warpwright::GemmArgs) {
  while (true) asm volatile("nanosleep.u32 1000;");
}
