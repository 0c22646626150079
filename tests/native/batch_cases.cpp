#include "cpu/batch.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "native_test.h"

namespace {

using pyturbo::cpu::Batch;
using pyturbo::cpu::ThreadPool;

constexpr double kLong = 1e5;  // nanoseconds of an item that is worth sharing

}  // namespace

NATIVE_TEST(batch_runs_each_item_of_each_launch_once) {
  for (unsigned threads : {1u, 2u, 3u}) {
    ThreadPool pool(threads);
    Batch batch(pool);
    for (double nanoseconds : {0.0, 1.0, kLong}) {
      const uint64_t counts[] = {0, 1, 7, 1000};
      std::vector<uint32_t> seen[4];
      for (int i = 0; i < 4; ++i) {
        seen[i].resize(counts[i]);
        uint32_t* mine = seen[i].data();
        batch.add(counts[i], nanoseconds, [=](uint64_t begin, uint64_t end) {
          for (; begin < end; ++begin) ++mine[begin];
        });
      }
      batch.run();
      batch.run();  // has nothing left
      for (const std::vector<uint32_t>& launch : seen)
        for (uint32_t times : launch) CHECK_EQ(times, 1u);
    }
  }
}

NATIVE_TEST(batch_keeps_memory_until_it_has_run) {
  ThreadPool pool(2);
  Batch batch(pool);
  for (int round = 0; round < 3; ++round) {
    std::vector<uint8_t*> pieces;
    for (size_t bytes : {1u, 64u, 70000u, 3u, 500000u}) {
      auto* piece = static_cast<uint8_t*>(batch.memory(bytes));
      CHECK_EQ(reinterpret_cast<uintptr_t>(piece) % 64, 0u);
      std::memset(piece, int(pieces.size()), bytes);
      pieces.push_back(piece);
    }
    bool whole = false, *result = &whole;
    uint8_t* const* all = pieces.data();
    batch.add(1, kLong, [=](uint64_t, uint64_t) {
      *result = true;
      for (uint8_t i = 0; i < 5; ++i) *result &= all[i][0] == i;
    });
    batch.run();
    CHECK(whole);
  }
}

NATIVE_TEST(batch_finds_what_was_made_of_the_same_values) {
  ThreadPool pool(1);
  Batch batch(pool);
  float x = 0;
  const Batch::Made what = {&x, 1, 64, 32, 2, 3, 1};
  Batch::Made other = what;
  other.group = 64;
  CHECK(batch.find(what) == nullptr);
  void* memory = batch.memory(64);
  batch.note(what, memory);
  CHECK(batch.find(what) == memory);
  CHECK(batch.find(other) == nullptr);
  batch.run();
  CHECK(batch.find(what) == nullptr);  // the values may be others by now
}

NATIVE_TEST(batch_goes_on_after_an_exception) {
  ThreadPool pool(2);
  {
    Batch batch(pool);
    batch.add(100, kLong, [](uint64_t begin, uint64_t end) {
      if (begin <= 37 && 37 < end) throw std::runtime_error("no");
    });
    CHECK_THROWS(batch.run(), "no");
  }
  Batch batch(pool);
  uint32_t ran = 0, *count = &ran;
  batch.add(1, kLong, [=](uint64_t, uint64_t) { ++*count; });
  batch.run();
  CHECK_EQ(ran, 1u);
}
