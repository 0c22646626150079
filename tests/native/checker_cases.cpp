// Bodies report their accesses through the callbacks that -fsanitize=thread would insert.
#include "checker/checker.h"

#include <numeric>
#include <vector>

#include "native_test.h"
#include "pyturbo/simt.h"

extern "C" {
void __tsan_read4(void*);
void __tsan_write4(void*);
void __tsan_write1(void*);
void __tsan_unaligned_write8(void*);
void* __tsan_memcpy(void*, const void*, size_t);
uint32_t __tsan_atomic32_load(const volatile uint32_t*, int);
void __tsan_atomic32_store(volatile uint32_t*, uint32_t, int);
uint32_t __tsan_atomic32_fetch_add(volatile uint32_t*, uint32_t, int);
int __tsan_atomic32_compare_exchange_strong(volatile uint32_t*, uint32_t*, uint32_t, int, int);
}

namespace {

using namespace pyturbo;

using Body = void (*)(const Arguments&, const Position&);

uint32_t load(const uint32_t* p) {
  __tsan_read4(const_cast<uint32_t*>(p));
  return *p;
}

void store(uint32_t* p, uint32_t v) {
  __tsan_write4(p);
  *p = v;
}

void add(uint32_t* p, uint32_t v) { __tsan_atomic32_fetch_add(p, v, 0); }

uint32_t* tile() { return static_cast<uint32_t*>(simt::threadgroup_variable(0, 256, 4, "tile")); }
uint32_t* total() { return static_cast<uint32_t*>(simt::threadgroup_variable(1, 4, 4, "total")); }
void barrier(uint32_t site) { simt::threadgroup_barrier(simt::kMemThreadgroup, site); }

const ArgumentInfo kArguments[] = {
    {"x", "device const uint*", ArgumentKind::buffer, false, DType::u32, 0, 4, 4, 1, -1},
    {"y", "device uint*", ArgumentKind::buffer, true, DType::u32, 1, 4, 4, 1, -1},
    {"n", "constant uint&", ArgumentKind::value, false, DType::u32, 2, 4, 4, 1, -1},
};
const ConstantInfo kConstants[] = {{"flag", DType::u32, 901, 5, 4, true}};

uint32_t* x(const Arguments& a) { return static_cast<uint32_t*>(a.buffers[0]); }
uint32_t* y(const Arguments& a) { return static_cast<uint32_t*>(a.buffers[1]); }
uint32_t n(const Arguments& a) { return load(static_cast<uint32_t*>(a.buffers[2])); }

// x of 48 and y of 80 numbers, in memory of exactly that size.
struct Case {
  std::vector<uint32_t> x = std::vector<uint32_t>(48), y = std::vector<uint32_t>(80);
  uint32_t n = 48;
  Arguments arguments;

  Case() {
    std::iota(x.begin(), x.end(), 100);
    bind(0, x.data(), x.size() * 4);
    bind(1, y.data(), y.size() * 4);
    bind(2, &n, 4);
  }
  void bind(uint32_t index, void* data, uint64_t bytes) {
    arguments.buffers[index] = data;
    arguments.bytes[index] = bytes;
  }
  void run(Body body, uint32_t threads = 64, uint32_t groups = 1) const {
    KernelInfo info{};
    info.name = info.function = "k";
    info.file = "k.metal";
    info.line = 9;
    info.argument_count = 3;
    info.arguments = kArguments;
    info.constant_count = 1;
    info.constants = kConstants;
    info.body = body;
    checker::run_checked(info, arguments, {{groups, 1, 1}, {threads, 1, 1}});
  }
};

}  // namespace

NATIVE_TEST(checker_lets_right_kernels_run) {
  Case c;
  c.run(
      [](const Arguments& a, const Position& p) {
        static const uint32_t table[2] = {1, 2};
        tile()[0] = 0;  // not reported: executor's business only
        store(tile() + p.index, p.index);
        barrier(3);
        const uint32_t other = load(tile() + 39 - p.index);
        barrier(5);
        if (p.index == 0) store(total(), 7);
        barrier(7);
        const uint32_t index = p.group.x * 40 + p.index;
        store(y(a) + index, load(x(a) + index % n(a)) + other + load(total()) + load(table));
        simt::exchange(&index, 4, 9);
        store(y(a) + index, load(y(a) + index) + 1);
      },
      40, 2);
  for (uint32_t i = 0; i < 80; ++i) CHECK_EQ(c.y[i], 100 + i % 48 + 39 - i % 40 + 7 + 1 + 1);
  for (uint32_t i = 0; i < 48; ++i) CHECK_EQ(c.x[i], 100 + i);
}

NATIVE_TEST(checker_finds_out_of_range) {
  Case c;
  CHECK_THROWS(
      c.run([](const Arguments& a, const Position& p) { store(y(a) + p.index, load(x(a) + p.index)); }),
      "kernel k, threadgroup (0,0,0), thread 48: read of 4 bytes at byte 192 of read-only buffer 'x', "
      "which has 192 bytes (k.metal:9)");
  CHECK_EQ(c.y[47], 147u);  // what was written before is there
  CHECK_THROWS(c.run([](const Arguments& a, const Position& p) { store(y(a) - 1 - p.index, 1); }),
               "thread 0: write of 4 bytes at byte -4 of buffer 'y', which has 320 bytes");
  CHECK_THROWS(c.run([](const Arguments& a, const Position&) {
    __tsan_unaligned_write8(reinterpret_cast<char*>(y(a)) + 316);
  }),
               "write of 8 bytes at byte 316 of buffer 'y'");
  CHECK_THROWS(c.run([](const Arguments& a, const Position&) { load(x(a) + (1u << 27)); }),
               "at byte 536870912 of read-only buffer 'x'");
  CHECK_THROWS(c.run([](const Arguments& a, const Position&) { __tsan_memcpy(y(a), x(a), 196); }),
               "read of 196 bytes at byte 0 of read-only buffer 'x'");
  CHECK_THROWS(c.run([](const Arguments&, const Position&) { load(nullptr); }), "which no argument covers");
  static std::vector<uint32_t> heap;
  heap.resize(1000);
  CHECK_THROWS(c.run([](const Arguments&, const Position&) { load(heap.data() + 500); }),
               "thread 0: read of 4 bytes at");
}

NATIVE_TEST(checker_lets_constants_be_read) {
  Case c;
  const std::vector<uint32_t> heap(1, 77);
  c.arguments.constants[5] = heap.data();
  c.run([](const Arguments& a,
           const Position&) { store(y(a), load(static_cast<const uint32_t*>(simt::function_constant(5)))); },
        1);
  CHECK_EQ(c.y[0], 77u);
}

NATIVE_TEST(checker_finds_out_of_range_threadgroup_memory) {
  Case c;
  const Body body = [](const Arguments&, const Position& p) {
    store(total(), 0);
    store(tile() + p.index + 1, 1);
  };
  CHECK_THROWS(c.run([](const Arguments&, const Position& p) { store(tile() + p.index + 1, 1); }),
               "thread 63: write of 4 bytes at byte 256 of threadgroup variable 'tile', which has 256 bytes");
  CHECK_THROWS(c.run(body), "thread 1: race on threadgroup variable 'total'");
}

NATIVE_TEST(checker_finds_writes_to_read_only) {
  Case c;
  CHECK_THROWS(c.run([](const Arguments& a, const Position& p) { store(x(a) + p.index, 0); }),
               "thread 0: write of 4 bytes at byte 0 of read-only buffer 'x'");
  CHECK_THROWS(
      c.run([](const Arguments& a, const Position&) { store(static_cast<uint32_t*>(a.buffers[2]), 0); }),
      "of value 'n'");
  CHECK_THROWS(c.run([](const Arguments& a, const Position&) { add(x(a) + 1, 0); }),
               "atomic update of 4 bytes at byte 4 of read-only buffer 'x'");
  CHECK_EQ(c.x[0], 100u);
}

NATIVE_TEST(checker_keeps_aliases_together) {
  Case c;
  c.bind(1, c.x.data() + 8, 40 * 4);
  c.run([](const Arguments& a, const Position& p) { store(y(a) + p.index, load(x(a) + p.index + 8) + 1); },
        40);
  for (uint32_t i = 0; i < 48; ++i) CHECK_EQ(c.x[i], 100 + i + (i >= 8));
  CHECK_THROWS(c.run([](const Arguments& a, const Position& p) { store(x(a) + p.index, 0); }),
               "write of 4 bytes at byte 0 of read-only buffer 'x'");
  CHECK_THROWS(
      c.run([](const Arguments& a, const Position& p) { store(y(a) + p.index, load(x(a) + p.index)); }, 40),
      "thread 8: race on");
}

NATIVE_TEST(checker_finds_barrier_mistakes) {
  Case c;
  CHECK_THROWS(c.run([](const Arguments&, const Position& p) {
    if (p.index < 63) barrier(4);
  }),
               "kernel k, threadgroup (0,0,0): barrier at line 4 not reached by thread 63");
  CHECK_THROWS(c.run([](const Arguments&, const Position& p) { p.index < 40 ? barrier(4) : barrier(6); }),
               "threads wait at different barriers: thread 40 at line 6, others at line 4");
}

NATIVE_TEST(checker_finds_unwritten_threadgroup_memory) {
  Case c;
  CHECK_THROWS(
      c.run([](const Arguments&, const Position& p) {
        if (p.index != 5) store(tile() + p.index, 0);
        barrier(12);
        load(tile() + (p.index + 1) % 64);
      }),
      "thread 4: read of threadgroup variable 'tile' at byte 20, which no thread has written yet (k.metal, "
      "after line 12)");
  // What an earlier threadgroup wrote does not count.
  CHECK_THROWS(c.run(
                   [](const Arguments&, const Position& p) {
                     if (p.group.x == 0) store(tile() + p.index, 0);
                     barrier(2);
                     load(tile() + p.index);
                   },
                   64, 2),
               "threadgroup (1,0,0), thread");
  CHECK_THROWS(c.run([](const Arguments&, const Position&) { add(total(), 1); }),
               "which no thread has written yet");
}

NATIVE_TEST(checker_finds_races_in_a_threadgroup) {
  Case c;
  CHECK_THROWS(c.run([](const Arguments&, const Position& p) {
    store(tile() + p.index, 1);
    barrier(3);
    store(tile() + p.index, 1);
    if (p.index) load(tile() + p.index - 1);
  }),
               "race on threadgroup variable 'tile'");
  CHECK_THROWS(
      c.run([](const Arguments&, const Position& p) {
        if (p.index == 4) store(tile() + 4, 1);
        if (p.index == 5) load(tile() + 4);
      }),
      "kernel k, threadgroup (0,0,0), thread 5: race on threadgroup variable 'tile' at byte 16: written by "
      "thread 4, read without a barrier between (k.metal:9)");
  // The same value twice is still a race.
  CHECK_THROWS(
      c.run([](const Arguments& a, const Position&) { store(y(a), 1); }),
      "thread 1: race on buffer 'y' at byte 0: written by thread 0, written again without a barrier");
  CHECK_THROWS(
      c.run([](const Arguments& a, const Position& p) { p.index == 9 ? store(y(a), 1) : void(load(y(a))); }),
      "thread 9: race on buffer 'y' at byte 0: read by thread 0, written without a barrier between");
  // A barrier of the wrong memory orders nothing.
  CHECK_THROWS(c.run([](const Arguments& a, const Position& p) {
    if (p.index == 0) store(y(a), 1);
    barrier(8);
    load(y(a));
  }),
               "after line 8");
  c.run([](const Arguments& a, const Position& p) {
    if (p.index == 0) store(y(a), 1);
    simt::threadgroup_barrier(simt::kMemDevice, 8);
    load(y(a));
  });
  // Neighbouring bytes are different memory.
  c.run(
      [](const Arguments& a, const Position& p) { __tsan_write1(reinterpret_cast<char*>(y(a)) + p.index); });
}

NATIVE_TEST(checker_orders_simdgroups_by_their_barrier) {
  Case c;
  const Body within = [](const Arguments&, const Position& p) {
    store(tile() + p.index, p.index);
    simt::simdgroup_barrier(simt::kMemThreadgroup, 3);
    load(tile() + (p.index ^ 1));
    simt::simdgroup_barrier(simt::kMemThreadgroup, 5);
    store(tile() + (p.index ^ 3), 0);
  };
  c.run(within);
  CHECK_THROWS(c.run([](const Arguments&, const Position& p) {
    store(tile() + p.index, p.index);
    simt::threadgroup_barrier(simt::kMemNone, 2);
    simt::simdgroup_barrier(simt::kMemThreadgroup, 3);
    load(tile() + (p.index ^ 32));
  }),
               "race on threadgroup variable 'tile'");
  // An exchange orders no memory.
  CHECK_THROWS(c.run([](const Arguments&, const Position& p) {
    store(tile() + p.index, p.index);
    simt::exchange(&p.index, 4, 3);
    load(tile() + (p.index ^ 1));
  }),
               "after line 3");
  // Readers of two simdgroups, a writer that only one of them is ordered with.
  CHECK_THROWS(c.run([](const Arguments& a, const Position& p) {
    load(y(a));
    simt::simdgroup_barrier(simt::kMemDevice, 3);
    if (p.index == 40) store(y(a), 1);
  }),
               "thread 40: race on buffer 'y' at byte 0: read by thread 0");
}

NATIVE_TEST(checker_finds_races_between_threadgroups) {
  Case c;
  CHECK_THROWS(
      c.run(
          [](const Arguments& a, const Position& p) {
            simt::threadgroup_barrier(simt::kMemDevice, 2);
            if (p.index == p.group.x) store(y(a) + 3, 1);
          },
          64, 3),
      "kernel k, threadgroup (1,0,0), thread 1: race on buffer 'y' at byte 12: written by thread 0 of "
      "threadgroup (0,0,0), written again by another threadgroup (k.metal, after line 2)");
  CHECK_THROWS(
      c.run([](const Arguments& a, const Position& p) { p.group.x ? store(y(a), 1) : void(load(y(a))); }, 1,
            2),
      "read by thread 0 of threadgroup (0,0,0), written by another threadgroup");
}

NATIVE_TEST(checker_lets_atomics_meet) {
  Case c;
  c.run(
      [](const Arguments& a, const Position& p) {
        add(y(a), 1);
        uint32_t expected = p.index;
        if (!__tsan_atomic32_compare_exchange_strong(y(a) + 1, &expected, p.index + 1, 0, 0))
          add(y(a) + 2, 1);
        __tsan_atomic32_load(y(a), 0);
        if (p.index == 0) __tsan_atomic32_store(total(), 0, 0);
        barrier(5);
        add(total(), 1);
        barrier(7);
        if (p.index == 0) store(y(a) + 3 + p.group.x, load(total()));
      },
      64, 2);
  CHECK_EQ(c.y[0], 128u);
  CHECK_EQ(c.y[1], 64u);
  CHECK_EQ(c.y[2], 64u);
  CHECK_EQ(c.y[3], 64u);
  CHECK_EQ(c.y[4], 64u);
  CHECK_THROWS(
      c.run([](const Arguments& a, const Position& p) { p.index == 50 ? store(y(a), 1) : add(y(a), 1); }),
      "thread 50: race on buffer 'y'");
  CHECK_THROWS(
      c.run([](const Arguments& a, const Position& p) { p.index == 50 ? void(load(y(a))) : add(y(a), 1); }),
      "thread 50: race on buffer 'y'");
  // A plain write is not hidden by the same thread's atomic one.
  CHECK_THROWS(c.run([](const Arguments& a, const Position& p) {
    if (p.index == 0) store(y(a), 1);
    add(y(a), 1);
  }),
               "thread 1: race on buffer 'y' at byte 0: written by thread 0");
}
