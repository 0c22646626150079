#include "simt/threadgroup.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

#include "cpu/pool.h"
#include "native_test.h"
#include "pyturbo/simt.h"
#include "simt/executor.h"

namespace {

using namespace pyturbo;
using pyturbo::cpu::ThreadPool;

using Body = void (*)(const Arguments&, const Position&);

KernelInfo kernel(const char* name, Body body) {
  KernelInfo info{};
  info.name = info.function = name;
  info.file = "cases.metal";
  info.line = 1;
  info.body = body;
  return info;
}

void run(const char* name, Body body, const Arguments& arguments, const Dispatch& dispatch) {
  ThreadPool pool(2);
  simt::run_reference(kernel(name, body), arguments, dispatch, pool);
}

template <typename T>
Arguments bound(std::vector<T>& data) {
  Arguments arguments;
  arguments.buffers[0] = data.data();
  arguments.bytes[0] = data.size() * sizeof(T);
  return arguments;
}

uint32_t* out(const Arguments& a) { return static_cast<uint32_t*>(a.buffers[0]); }

uint32_t value_of(const simt::Exchange& e, uint32_t lane) {
  uint32_t v;
  std::memcpy(&v, e.values[lane], sizeof(v));
  return v;
}

uint32_t simd_sum(uint32_t v, uint32_t site) {
  const simt::Exchange& e = simt::exchange(&v, sizeof(v), site);
  uint32_t sum = 0;
  for (uint32_t m = e.active; m; m &= m - 1) sum += value_of(e, uint32_t(std::countr_zero(m)));
  return sum;
}

uint32_t thread_in_grid(const Position& p) { return p.group.x * p.threads_per_group.x + p.index; }

}  // namespace

NATIVE_TEST(threadgroup_positions) {
  std::vector<uint32_t> seen(3 * 2 * 5 * 7 * 3 * 2);
  const Body body = [](const Arguments& a, const Position& p) {
    const Extent &t = p.threads_per_group, &g = p.groups;
    const uint32_t group = p.group.x + g.x * (p.group.y + g.y * p.group.z);
    if (p.index != p.thread.x + t.x * (p.thread.y + t.y * p.thread.z)) return;
    if (simt::lane() != p.index % 32) return;
    ++out(a)[group * uint32_t(t.count()) + p.index];
  };
  run("positions", body, bound(seen), {{3, 2, 5}, {7, 3, 2}});
  for (uint32_t count : seen) CHECK_EQ(count, 1u);
}

NATIVE_TEST(threadgroup_without_blocking_uses_one_stack) {
  std::vector<uint32_t> seen(1024);
  const KernelInfo info =
      kernel("plain", [](const Arguments& a, const Position& p) { out(a)[p.index] = p.index; });
  const Arguments arguments = bound(seen);
  simt::Threadgroup executor;
  executor.run({info, arguments, {{1, 1, 1}, {1024, 1, 1}}}, {0, 0, 0});
  CHECK_EQ(executor.stacks_created(), 1u);
  for (uint32_t i = 0; i < 1024; ++i) CHECK_EQ(seen[i], i);
}

NATIVE_TEST(threadgroup_exchange_sums_each_simdgroup) {
  for (uint32_t threads : {1u, 5u, 32u, 33u, 100u, 1024u}) {
    std::vector<uint32_t> sums(3 * threads);
    const Body body = [](const Arguments& a, const Position& p) {
      uint32_t v = p.index;
      for (int i = 0; i < 7; ++i) v = simd_sum(v, 10) % 1000 + p.index + simd_sum(v, 11) % 10;
      out(a)[thread_in_grid(p)] = v;
    };
    run("sums", body, bound(sums), {{3, 1, 1}, {threads, 1, 1}});
    std::vector<uint32_t> v(threads), next(threads);
    std::iota(v.begin(), v.end(), 0);
    for (int i = 0; i < 7; ++i) {
      for (uint32_t t = 0; t < threads; ++t) {
        const uint32_t first = t / 32 * 32, last = std::min(first + 32, threads);
        const uint32_t sum = std::accumulate(v.begin() + first, v.begin() + last, 0u);
        next[t] = sum % 1000 + t + sum % 10;
      }
      v.swap(next);
    }
    for (uint32_t t = 0; t < 3 * threads; ++t) CHECK_EQ(sums[t], v[t % threads]);
  }
}

NATIVE_TEST(threadgroup_exchange_carries_every_size) {
  std::vector<uint32_t> wrong(64);
  const Body body = [](const Arguments& a, const Position& p) {
    for (uint32_t size = 1; size <= simt::kExchangeBytes; ++size) {
      unsigned char mine[simt::kExchangeBytes];
      for (uint32_t i = 0; i < size; ++i) mine[i] = static_cast<unsigned char>(p.index * 7 + i * 3 + size);
      const simt::Exchange& e = simt::exchange(mine, size, 5);
      const uint32_t lane = (simt::lane() + size) % 32, other = p.index / 32 * 32 + lane;
      for (uint32_t i = 0; i < size; ++i) {
        if (e.values[lane][i] != std::byte(static_cast<unsigned char>(other * 7 + i * 3 + size)))
          ++out(a)[p.index];
      }
      if (e.reduced || e.active != ~0u) ++out(a)[p.index];
    }
  };
  run("sizes", body, bound(wrong), {{1, 1, 1}, {64, 1, 1}});
  for (uint32_t w : wrong) CHECK_EQ(w, 0u);
}

NATIVE_TEST(threadgroup_divergent_branches_meet_again) {
  std::vector<uint32_t> masks(3 * 32);
  const Body body = [](const Arguments& a, const Position& p) {
    uint32_t v = 1u << p.index, *o = out(a) + p.index;
    o[0] = p.index % 3 == 0 ? simd_sum(v, 20) : simd_sum(v, 22);
    o[32] = simd_sum(v, 24);
    // Lanes stay in the loop for different numbers of turns.
    uint32_t last = 0;
    for (uint32_t i = 0; i <= p.index / 8; ++i) last = simd_sum(v, 26);
    o[64] = last;
    if (simd_sum(v, 28) != ~0u) o[64] = 0;
  };
  run("branches", body, bound(masks), {{1, 1, 1}, {32, 1, 1}});
  const uint32_t thirds = 0x49249249;
  for (uint32_t i = 0; i < 32; ++i) {
    CHECK_EQ(masks[i], i % 3 == 0 ? thirds : ~thirds);
    CHECK_EQ(masks[32 + i], ~0u);
    CHECK_EQ(masks[64 + i], ~0u << i / 8 * 8);
  }
}

NATIVE_TEST(threadgroup_finished_lanes_are_inactive) {
  std::vector<uint32_t> masks(40);
  const Body body = [](const Arguments& a, const Position& p) {
    if (p.index % 4 == 1) return;
    out(a)[p.index] = simd_sum(1u << p.index % 32, 7);
    if (p.index % 4 == 2) return;
    out(a)[p.index] ^= simd_sum(1u << p.index % 32, 9);
  };
  run("finished", body, bound(masks), {{1, 1, 1}, {40, 1, 1}});
  CHECK_EQ(masks[0], 0xddddddddu ^ 0x99999999u);
  CHECK_EQ(masks[2], 0xddddddddu);
  CHECK_EQ(masks[32], 0xddu ^ 0x99u);
}

NATIVE_TEST(threadgroup_barrier_and_variables) {
  for (uint32_t threads : {32u, 96u, 250u, 1024u}) {
    std::vector<uint32_t> sums(4 * threads);
    const Body body = [](const Arguments& a, const Position& p) {
      const uint32_t n = p.threads_per_group.x;
      auto* total = static_cast<uint32_t*>(simt::threadgroup_variable(1, 4, 4, "total"));
      auto* tile = static_cast<uint32_t*>(simt::threadgroup_variable(0, 4096, 16, "tile"));
      tile[p.index] = p.index + p.group.x;
      simt::threadgroup_barrier(simt::kMemThreadgroup, 3);
      for (uint32_t step = 1; step < n; step *= 2) {
        const uint32_t v = tile[p.index] + (p.index >= step ? tile[p.index - step] : 0);
        simt::threadgroup_barrier(simt::kMemThreadgroup, 6);
        tile[p.index] = v;
        simt::threadgroup_barrier(simt::kMemThreadgroup, 8);
      }
      if (p.index == n - 1) *total = tile[p.index];
      simt::threadgroup_barrier(simt::kMemThreadgroup, 11);
      out(a)[thread_in_grid(p)] = tile[p.index] + *total;
    };
    run("scan", body, bound(sums), {{4, 1, 1}, {threads, 1, 1}});
    for (uint32_t g = 0; g < 4; ++g) {
      const uint32_t total = threads * (threads - 1) / 2 + g * threads;
      for (uint32_t i = 0; i < threads; ++i) {
        CHECK_EQ(sums[g * threads + i], i * (i + 1) / 2 + g * (i + 1) + total);
      }
    }
  }
}

NATIVE_TEST(threadgroup_simd_and_barrier_mixed) {
  std::vector<uint32_t> sums(500);
  const Body body = [](const Arguments& a, const Position& p) {
    auto* partial = static_cast<uint32_t*>(simt::threadgroup_variable(0, 128, 4, "partial"));
    uint32_t v = simd_sum(p.index, 2);
    if (p.index % 32 == 0) partial[p.index / 32] = v;
    simt::threadgroup_barrier(simt::kMemThreadgroup, 4);
    if (p.index < 32) {
      v = simd_sum(p.index < 16 ? partial[p.index] : 0, 6);
      if (p.index == 0) partial[31] = v;
    }
    simt::threadgroup_barrier(simt::kMemThreadgroup, 9);
    out(a)[p.index] = partial[31];
  };
  run("mixed", body, bound(sums), {{1, 1, 1}, {500, 1, 1}});
  for (uint32_t s : sums) CHECK_EQ(s, 500u * 499 / 2);
}

NATIVE_TEST(threadgroup_barrier_not_reached_is_an_error) {
  std::vector<uint32_t> none(1);
  const Body body = [](const Arguments&, const Position& p) {
    if (p.group.x == 1 && p.index == 37) return;
    simt::threadgroup_barrier(simt::kMemNone, 12);
  };
  CHECK_THROWS(run("leaver", body, bound(none), {{2, 1, 1}, {64, 1, 1}}),
               "kernel leaver, threadgroup (1,0,0): barrier at line 12 not reached by thread 37");
  // The executor of this thread is as good as new afterwards.
  const KernelInfo bad = kernel("bad", [](const Arguments&, const Position& p) {
    if (p.index) simt::threadgroup_barrier(simt::kMemNone, 2);
  });
  const KernelInfo good = kernel("good", [](const Arguments& a, const Position& p) {
    const uint32_t sum = simd_sum(1, 1);
    simt::threadgroup_barrier(simt::kMemNone, 2);
    if (p.index == 0) out(a)[0] += sum;
  });
  const Arguments arguments = bound(none);
  simt::Threadgroup executor;
  for (int i = 0; i < 5; ++i) {
    CHECK_THROWS(executor.run({bad, arguments, {{1, 1, 1}, {1024, 1, 1}}}, {0, 0, 0}),
                 "not reached by thread 0");
    executor.run({good, arguments, {{1, 1, 1}, {1024, 1, 1}}}, {0, 0, 0});
  }
  CHECK_EQ(none[0], 5u * 32);
  CHECK(executor.stacks_created() <= 1024);
}

NATIVE_TEST(threadgroup_memory_limit_and_arguments) {
  static const ArgumentInfo arguments_info[] = {
      {"y", "uint*", ArgumentKind::buffer, true, DType::u32, 0, 4, 4, 1, -1},
      {"first", "uint*", ArgumentKind::threadgroup, true, DType::u32, 2, 4, 4, 1, -1},
      {"second", "uint*", ArgumentKind::threadgroup, true, DType::u32, 0, 4, 4, 1, -1},
  };
  std::vector<uint32_t> result(64);
  Arguments arguments = bound(result);
  arguments.threadgroup_bytes[2] = 64 * 4;
  arguments.threadgroup_bytes[0] = 30000;
  KernelInfo info = kernel("bound", [](const Arguments& a, const Position& p) {
    auto* first = static_cast<uint32_t*>(simt::threadgroup_argument(2));
    auto* second = static_cast<uint32_t*>(simt::threadgroup_argument(0));
    auto* own = static_cast<uint32_t*>(simt::threadgroup_variable(0, 256, 4, "own"));
    own[p.index] = 1, first[p.index] = p.index, second[p.index] = 100;
    simt::threadgroup_barrier(simt::kMemThreadgroup, 5);
    const uint32_t i = 63 - p.index;
    out(a)[p.index] = own[i] + first[i] + second[i];
  });
  info.argument_count = 3;
  info.arguments = arguments_info;
  ThreadPool pool(1);
  simt::run_reference(info, arguments, {{1, 1, 1}, {64, 1, 1}}, pool);
  for (uint32_t i = 0; i < 64; ++i) CHECK_EQ(result[i], 164 - i);
  arguments.threadgroup_bytes[0] = 32400;
  CHECK_THROWS(simt::run_reference(info, arguments, {{1, 1, 1}, {64, 1, 1}}, pool),
               "threadgroup memory: expected at most 32768 bytes, got 32912 up to variable 'own'");
  arguments.threadgroup_bytes[0] = 40000;
  CHECK_THROWS(simt::run_reference(info, arguments, {{1, 1, 1}, {64, 1, 1}}, pool),
               "up to variable 'second'");
}

NATIVE_TEST(threadgroup_function_constants) {
  std::vector<uint32_t> result(2);
  Arguments arguments = bound(result);
  const uint32_t three = 3;
  arguments.constants[7] = &three;
  const Body body = [](const Arguments& a, const Position&) {
    out(a)[0] = *static_cast<const uint32_t*>(simt::function_constant(7));
    out(a)[1] = simt::function_constant(8) == nullptr;
  };
  run("constants", body, arguments, {});
  CHECK_EQ(result[0], 3u);
  CHECK_EQ(result[1], 1u);
}

NATIVE_TEST(executor_runs_nothing_for_an_empty_grid) {
  const Body body = [](const Arguments&, const Position&) { throw std::runtime_error("must not run"); };
  run("nothing", body, {}, {{3, 0, 2}, {32, 1, 1}});
}
