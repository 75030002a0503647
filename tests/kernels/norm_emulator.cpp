// Runs a norm_activation kernel on the CPU, thread by thread: fibers that switch where a thread would
// wait, in a random order, with copies that land whenever they like. Deadlocks, traps, arrivals beyond
// a count and named barriers of two counts are found. The kernel's headers follow, with the bodies of
// functions made of PTX left to this file (tests/kernels/norm_emulator.py).
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#define __CUDA_ARCH__ 900
#define __device__
#define __forceinline__ inline
#define __global__

struct uint2 {
  unsigned x, y;
};
struct float4 {
  float x, y, z, w;
};
struct Index {
  unsigned x;
};
static Index threadIdx, blockIdx, blockDim, gridDim;

template <class T>
static T min(T a, T b) {
  return a < b ? a : b;
}
static float __uint_as_float(unsigned x) {
  float y;
  std::memcpy(&y, &x, 4);
  return y;
}
static unsigned __float_as_uint(float x) {
  unsigned y;
  std::memcpy(&y, &x, 4);
  return y;
}
template <class T>
static T __ldg(const T* from) {
  return *from;
}
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
#define __expf(x) expf(x)
static float __fdividef(float x, float y) { return x / y; }

namespace emulated {

constexpr int kStack = 1 << 16;

struct Fault {
  std::string words;
};

struct Mbarrier {
  int expected = 0, pending = 0;
  long bytes = 0;
  unsigned phase = 0;

  void settle() {
    if (pending == 0 && bytes == 0) phase ^= 1, pending = expected;
  }
  void arrive() {
    if (pending == 0) throw Fault{"an arrival beyond an mbarrier's count"};
    --pending;
    settle();
  }
};

struct Named {
  unsigned threads = 0, come = 0, generation = 0;

  void come_in(unsigned count) {
    if (come != 0 && threads != count) throw Fault{"a named barrier of two counts"};
    threads = count;
    if (++come == threads) come = 0, ++generation;
  }
};

struct Landing {
  unsigned to;
  const char* from;
  unsigned bytes;
  unsigned barrier;
  int thread;  // of an asynchronous copy or arrival; -1: bulk
};

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  bool done = false;
};

struct Machine {
  std::vector<Fiber> fibers;
  ucontext_t scheduler;
  int current = 0;
  std::vector<char> smem;
  std::map<unsigned, Mbarrier> mbarriers;
  Named named[17];              // 16: the block's
  std::vector<Named> warps;
  std::vector<float> exchanged;
  std::vector<Landing> landings;
  std::mt19937 random;
  long progress = 0;
  std::string fault;
  void (*body)() = nullptr;

  void land() {
    for (size_t i = 0; i < landings.size(); ++i) {
      if (random() % 4 != 0) continue;
      const Landing it = landings[i];
      // A thread's asynchronous copies land before the arrival that follows them.
      bool blocked = false;
      for (size_t j = 0; j < i && it.thread >= 0 && it.bytes == 0; ++j) {
        blocked |= landings[j].thread == it.thread;
      }
      if (blocked) continue;
      landings.erase(landings.begin() + i--);
      ++progress;
      if (it.bytes != 0) std::memcpy(smem.data() + it.to, it.from, it.bytes);
      if (it.thread < 0) {
        mbarriers[it.barrier].bytes -= it.bytes;
        mbarriers[it.barrier].settle();
      } else if (it.bytes == 0) {
        mbarriers[it.barrier].arrive();
      }
    }
  }
  void run() {
    std::vector<int> order(fibers.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    size_t left = fibers.size();
    long idle = 0;
    while (left > 0) {
      const long before = progress;
      std::shuffle(order.begin(), order.end(), random);
      for (int i : order) {
        if (fibers[i].done) continue;
        current = i;
        threadIdx.x = i;
        swapcontext(&scheduler, &fibers[i].context);
        if (!fault.empty()) return;
        if (fibers[i].done) --left, ++progress;
      }
      land();
      idle = progress == before && landings.empty() ? idle + 1 : 0;
      if (idle > 4) {
        fault = "deadlock: " + std::to_string(left) + " threads wait";
        return;
      }
    }
    if (!landings.empty()) fault = "the block ended before its copies";
  }
};

static Machine* machine;

static void enter() {
  try {
    machine->body();
  } catch (const Fault& fault) {
    machine->fault = fault.words;
  }
  machine->fibers[machine->current].done = true;
  swapcontext(&machine->fibers[machine->current].context, &machine->scheduler);
}

template <class Condition>
static void until(Condition condition) {
  while (!condition()) {
    swapcontext(&machine->fibers[machine->current].context, &machine->scheduler);
  }
  ++machine->progress;
}

static void sync(Named& barrier, unsigned threads) {
  const unsigned generation = barrier.generation;
  barrier.come_in(threads);
  ++machine->progress;
  until([&] { return barrier.generation != generation; });
}
static void sync_warp() { sync(machine->warps[threadIdx.x / 32], 32); }

}  // namespace emulated

static void __syncwarp() { emulated::sync_warp(); }
static void __syncthreads() { emulated::sync(emulated::machine->named[16], blockDim.x); }
static void __trap() { throw emulated::Fault{"trap"}; }
static float __shfl_xor_sync(unsigned, float x, int lanes) {
  auto& all = emulated::machine->exchanged;
  all[threadIdx.x] = x;
  emulated::sync_warp();
  const float other = all[threadIdx.x ^ lanes];
  emulated::sync_warp();
  return other;
}

namespace warpwright {
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

namespace ptx {
static u32 shared_address(const void* pointer) {
  return static_cast<u32>(static_cast<const char*>(pointer) - emulated::machine->smem.data());
}
static u32 dynamic_smem_bytes() { return static_cast<u32>(emulated::machine->smem.size()); }
static void fence_barrier_init() {}
static void fence_async_proxy() {}
static void tma_store_commit() {}
static void tma_store_wait_read() {}
template <int kCount>
static void give_registers() {}
template <int kCount>
static void take_registers() {}
static void barrier_init(u32 barrier, u32 arrivals) {
  auto& made = emulated::machine->mbarriers[barrier];
  made.expected = made.pending = arrivals;
}
static void barrier_arrive_expect(u32 barrier, u32 bytes) {
  auto& it = emulated::machine->mbarriers.at(barrier);
  it.bytes += bytes;
  it.arrive();
  ++emulated::machine->progress;
}
static void barrier_wait(u32 barrier, u32 parity) {
  auto& it = emulated::machine->mbarriers.at(barrier);
  emulated::until([&] { return it.phase != parity; });
}
static void named_barrier(u32 id, u32 threads) {
  if (id >= 16) throw emulated::Fault{"a named barrier beyond 15"};
  emulated::sync(emulated::machine->named[id], threads);
}
}  // namespace ptx
}  // namespace warpwright

//HEADERS//

#undef WARPWRIGHT_NORM
#define WARPWRIGHT_NORM(blocks, ...)   \
  namespace warpwright::norm {         \
  using Kernel = __VA_ARGS__;          \
  }

//KERNEL//

static warpwright::norm::Args arguments;

static void body() {
  warpwright::norm::launched<warpwright::norm::Kernel>(arguments, emulated::machine->smem.data());
}

// Every block in turn; 0, or 1 with what went wrong in `words`.
extern "C" int emulate(const void* args, unsigned size, unsigned grid, unsigned threads,
                       unsigned smem_bytes, unsigned seed, char* words, unsigned room) {
  if (size != sizeof(arguments)) return 2;
  std::memcpy(&arguments, args, size);
  gridDim.x = grid, blockDim.x = threads;
  for (unsigned block = 0; block < grid; ++block) {
    emulated::Machine machine;
    emulated::machine = &machine;
    blockIdx.x = block;
    machine.random.seed(seed + block);
    machine.smem.assign(smem_bytes, static_cast<char>(0x7f));
    machine.warps.resize((threads + 31) / 32);
    machine.exchanged.resize(threads);
    machine.body = body;
    machine.fibers.resize(threads);
    for (auto& fiber : machine.fibers) {
      fiber.stack.resize(emulated::kStack);
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = fiber.stack.size();
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, emulated::enter, 0);
    }
    machine.run();
    if (!machine.fault.empty()) {
      std::strncpy(words, machine.fault.c_str(), room - 1);
      return 1;
    }
  }
  return 0;
}
