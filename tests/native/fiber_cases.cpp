#include <cstdint>
#include <set>

#include "native_test.h"
#include "simt/fiber.h"

namespace {

using namespace pyturbo::simt;

struct Walk {
  Context main, fiber;
  int steps = 0;
  double sum = 0;
};

// Keeps integers and floating-point values alive over switches.
[[noreturn]] void walk(void* argument) {
  fiber_entered();
  auto& w = *static_cast<Walk*>(argument);
  double a = 1.5, b = 2.25, c = 3.125;
  uint64_t d = 11, e = 13, f = 17;
  for (;;) {
    a += 1, b *= 2, c -= 1, d += 3, e ^= d, f += e;
    fiber_switch(w.fiber, w.main);
    ++w.steps;
    w.sum = a + b + c + double(d + e + f);
  }
}

double walk_plainly(int steps) {
  double a = 1.5, b = 2.25, c = 3.125;
  uint64_t d = 11, e = 13, f = 17;
  for (int i = 0; i < steps; ++i) a += 1, b *= 2, c -= 1, d += 3, e ^= d, f += e;
  return a + b + c + double(d + e + f);
}

struct Deep {
  Context main;
  int depth = 0;
};

int descend(int depth) {
  volatile char frame[512];
  frame[0] = char(depth);
  return depth == 0 ? frame[0] : descend(depth - 1) + 1;
}

[[noreturn]] void dive(void* argument) {
  fiber_entered();
  auto& deep = *static_cast<Deep*>(argument);
  deep.depth = descend(60);
  fiber_exit(deep.main);
}

}  // namespace

NATIVE_TEST(fiber_keeps_registers) {
  FiberStacks stacks(3);
  Walk walks[3];
  for (Walk& w : walks) {
    Fiber* fiber = stacks.take();
    CHECK(fiber != nullptr);
    w.fiber.bind(*fiber);
    fiber_start(w.main, *fiber, walk, &w);
  }
  double mine = 0.5;
  for (int i = 1; i <= 20; ++i) {
    for (Walk& w : walks) {
      mine += 1;
      fiber_switch(w.main, w.fiber);
      CHECK_EQ(w.steps, i);
      CHECK_EQ(w.sum, walk_plainly(i));
    }
  }
  CHECK_EQ(mine, 60.5);
}

NATIVE_TEST(fiber_stacks_are_apart_and_reused) {
  FiberStacks stacks(70);
  std::set<Fiber*> taken;
  std::set<uintptr_t> lines;
  for (int i = 0; i < 70; ++i) {
    Fiber* fiber = stacks.take();
    CHECK(fiber != nullptr && taken.insert(fiber).second);
    CHECK(stacks.contains(fiber->bottom) && stacks.contains(fiber->top - 1));
    CHECK(fiber->top - fiber->bottom >= 60 * 1024);
    CHECK_EQ(reinterpret_cast<uintptr_t>(fiber->top) % 16, 0u);
    lines.insert(reinterpret_cast<uintptr_t>(fiber->top) % 4096 / 64);
    fiber->bottom[0] = fiber->top[-1] = std::byte(i);
  }
  CHECK_EQ(lines.size(), 64u);
  CHECK(stacks.take() == nullptr);
  CHECK_EQ(stacks.created(), 70u);
  stacks.give(*taken.begin());
  CHECK(stacks.take() == *taken.begin());
  stacks.abandon_all();
  for (int i = 0; i < 70; ++i) CHECK(taken.count(stacks.take()) == 1);
  CHECK(stacks.take() == nullptr);
}

NATIVE_TEST(fiber_runs_deep_and_exits) {
  FiberStacks stacks(1);
  for (int i = 0; i < 3; ++i) {
    Fiber* fiber = stacks.take();
    Deep deep;
    fiber_start(deep.main, *fiber, dive, &deep);
    CHECK_EQ(deep.depth, 60);
    stacks.give(fiber);
  }
  CHECK_EQ(stacks.created(), 1u);
}
