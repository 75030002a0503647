// Wrappers of the PTX instructions the kernels use: barriers, bulk copies, matrix stores.
// Shared-memory addresses are 32-bit offsets into the shared window throughout.
#pragma once

namespace warpwright {

using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

// A TMA descriptor as the driver encodes it (CUtensorMap), opaque to the kernel.
struct alignas(64) TensorMap {
  u64 opaque[16];
};

namespace ptx {

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ u32 dynamic_smem_bytes() {
  u32 bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  return bytes;
}

// True in one lane of a converged warp, always the same one.
__device__ __forceinline__ bool elect_one() {
  u32 elected;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(elected));
  return elected != 0;
}

// ---- mbarriers

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to other threads and to the async proxy (TMA).
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_arrive_expect(u32 barrier, u32 tx_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(tx_bytes)
               : "memory");
}

// Arrives at the barrier at the same place in the shared memory of another CTA of the cluster.
__device__ __forceinline__ void barrier_arrive_remote(u32 barrier, u32 rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Returns once the phase of the given parity is complete. A fresh barrier counts as having
// completed parity 1.
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
  u32 complete;
  do {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(complete)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!complete);
}

// Barrier over `threads` threads of whole warps; id 0 is __syncthreads.
__device__ __forceinline__ void named_barrier(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- programmatic dependent launch: both do nothing where the launch was not told to overlap

// Lets the stream's next launch begin as soon as every CTA of this one has said so or has ended.
__device__ __forceinline__ void let_next_launch_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Returns once the launch before this one has ended and what it wrote is visible.
__device__ __forceinline__ void wait_for_launch_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// ---- clusters

__device__ __forceinline__ u32 cluster_ctas() {
  u32 count;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(count));
  return count;
}

// Returns once every thread of the cluster that has not exited is here; what each wrote before
// is visible to all. Lanes of a warp may come one by one.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// ---- what the L2 is to do with lines that a copy brings in

__device__ __forceinline__ u64 evict_first() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ u64 evict_last() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// ---- bulk tensor copies

__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<u64>(&map)) : "memory");
}

__device__ __forceinline__ void tma_load(u32 destination, const TensorMap& map, u32 barrier,
                                         int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(destination),
      "l"(reinterpret_cast<u64>(&map)), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}

// The same, and what the L2 is to do with the lines.
__device__ __forceinline__ void tma_load(u32 destination, const TensorMap& map, u32 barrier,
                                         int column, int row, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination),
      "l"(reinterpret_cast<u64>(&map)), "r"(barrier), "r"(column), "r"(row), "l"(policy)
      : "memory");
}

// The same for every CTA of the cluster in `ctas`, a bit each: the box lands at this address of
// its shared memory and reports to its barrier.
__device__ __forceinline__ void tma_load_multicast(u32 destination, const TensorMap& map,
                                                   u32 barrier, int column, int row,
                                                   unsigned short ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination),
      "l"(reinterpret_cast<u64>(&map)), "r"(barrier), "r"(column), "r"(row), "h"(ctas)
      : "memory");
}

__device__ __forceinline__ void tma_load_multicast(u32 destination, const TensorMap& map,
                                                   u32 barrier, int column, int row,
                                                   unsigned short ctas, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(destination),
      "l"(reinterpret_cast<u64>(&map)), "r"(barrier), "r"(column), "r"(row), "h"(ctas),
      "l"(policy)
      : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap& map, u32 source, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
          reinterpret_cast<u64>(&map)),
      "r"(source), "r"(column), "r"(row)
      : "memory");
}

__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Returns once every store this thread committed has read its shared memory.
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Orders this thread's shared-memory writes before later reads by TMA.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- matrix stores and loads: 8×8 blocks of 16-bit elements, one row address per lane

__device__ __forceinline__ void stmatrix(u32 address, const u32 (&d)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(d[0]), "r"(d[1]), "r"(d[2]), "r"(d[3])
               : "memory");
}

__device__ __forceinline__ void stmatrix(u32 address, const u32 (&d)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address),
               "r"(d[0]), "r"(d[1])
               : "memory");
}

__device__ __forceinline__ void ldmatrix(u32 address, u32 (&d)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix(u32 address, u32 (&d)[2]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(d[0]), "=r"(d[1])
               : "r"(address)
               : "memory");
}

// ---- plain accesses of shared memory

__device__ __forceinline__ void store_shared_f32x2(u32 address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ void load_shared_f32x2(u32 address, float& x, float& y) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(address) : "memory");
}

__device__ __forceinline__ void copy_from_shared(unsigned short* to, u32 address) {
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(*to) : "r"(address) : "memory");
}

__device__ __forceinline__ void copy_from_shared(u32* to, u32 address) {
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(*to) : "r"(address) : "memory");
}

__device__ __forceinline__ void store_shared(u32 address, unsigned short value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(value) : "memory");
}

__device__ __forceinline__ void store_shared(u32 address, u32 value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ u32 load_shared_u32(u32 address) {
  u32 value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// ---- global memory shared between CTAs: .cg keeps it out of the L1, which is not coherent

__device__ __forceinline__ void fence_gpu() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

__device__ __forceinline__ void store_global(float* address, const float* values) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "f"(values[0]),
               "f"(values[1]), "f"(values[2]), "f"(values[3])
               : "memory");
}

__device__ __forceinline__ void add_global(float* sums, const float* address) {
  float x, y, z, w;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
               : "l"(address)
               : "memory");
  sums[0] += x;
  sums[1] += y;
  sums[2] += z;
  sums[3] += w;
}

// ---- registers

// Both are executed by every warp of a warpgroup, once, before it uses more than `Count`.
template <int Count>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

template <int Count>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

}  // namespace ptx
}  // namespace warpwright
