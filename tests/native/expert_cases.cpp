// The parts of the expert store, each on its own. tests/test_experts.py tests the whole.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "experts/layer_rows.h"
#include "experts/reader.h"
#include "experts/scores.h"
#include "experts/slot_cache.h"
#include "native_test.h"
#include "pyturbo/error.h"

namespace {

using namespace pyturbo;
using namespace pyturbo::experts;
using std::chrono::milliseconds;

constexpr uint64_t kRecord = 40;

// Writes layer, expert and offset of each byte; fails or waits on demand.
class FakeSource final : public Source {
 public:
  std::atomic<int> parts{0}, under_way{0}, most{0};
  std::atomic<uint32_t> failing{UINT32_MAX};  // expert that cannot be read
  std::atomic<bool> held{false};              // parts wait

  void bring(const Record& record, uint64_t begin, uint64_t bytes, const std::atomic<bool>& stop,
             uint64_t& calls) override {
    ++calls;
    ++parts;
    const int now = ++under_way;
    for (int seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) continue;
    while (held.load() && !stop.load()) std::this_thread::sleep_for(milliseconds(1));
    --under_way;
    if (record.expert == failing.load()) throw Error(ErrorKind::file, "no such record");
    for (uint64_t i = begin; i < begin + bytes; ++i) record.memory[i] = uint8_t(record.expert * 7 + i);
  }
};

struct FakeReader {
  FakeSource* source = new FakeSource;
  Reader reader;
  std::vector<uint8_t> memory;

  FakeReader(unsigned threads, uint64_t part)
      : reader(std::unique_ptr<Source>(source), threads, kRecord, part), memory(64 * kRecord) {}

  void start(uint32_t expert) {
    reader.start({0, expert, int32_t(expert), memory.data() + expert * kRecord});
  }
  bool right(uint32_t expert) const {
    for (uint64_t i = 0; i < kRecord; ++i)
      if (memory[expert * kRecord + i] != uint8_t(expert * 7 + i)) return false;
    return true;
  }
  std::vector<Ended> all(size_t count) {
    std::vector<Ended> ended;
    while (ended.size() < count) {
      reader.wait();
      for (Ended& one : reader.take()) ended.push_back(std::move(one));
    }
    CHECK_EQ(ended.size(), count);
    return ended;
  }
};

}  // namespace

NATIVE_TEST(expert_reader_brings_whole_records) {
  for (const unsigned threads : {1u, 2u, 5u})
    for (const uint64_t part : {0u, 7u, 40u, 1000u}) {
      FakeReader fake(threads, part);
      for (uint32_t e = 0; e < 20; ++e) fake.start(e);
      for (const Ended& ended : fake.all(20)) {
        CHECK(ended.whole && !ended.error);
        CHECK_EQ(ended.calls, part == 7 ? 6u : 1u);
        CHECK(fake.right(ended.record.expert));
      }
      fake.reader.wait();  // returns at once: nothing is under way
      CHECK(fake.reader.take().empty());
    }
}

NATIVE_TEST(expert_reader_splits_a_record_among_threads) {
  FakeReader fake(4, 10);
  fake.source->held = true;
  fake.start(3);
  while (fake.source->under_way.load() < 4) std::this_thread::sleep_for(milliseconds(1));
  fake.source->held = false;
  CHECK(fake.all(1)[0].whole);
}

NATIVE_TEST(expert_reader_reports_a_failure_once) {
  FakeReader fake(1, 4);
  fake.source->failing = 1;
  for (uint32_t e = 0; e < 3; ++e) fake.start(e);
  for (const Ended& ended : fake.all(3)) {
    CHECK_EQ(ended.whole, ended.record.expert != 1);
    CHECK_EQ(ended.error != nullptr, ended.record.expert == 1);
  }
  CHECK_EQ(fake.source->parts.load(), 10 + 1 + 10);  // the parts after a failed one are left out
}

NATIVE_TEST(expert_reader_cancels_what_has_not_begun) {
  FakeReader fake(2, 20);
  fake.source->held = true;
  for (uint32_t e = 0; e < 10; ++e) fake.start(e);
  while (fake.source->under_way.load() < 2) std::this_thread::sleep_for(milliseconds(1));
  fake.reader.cancel();
  CHECK_EQ(fake.source->under_way.load(), 0);
  const std::vector<Ended> ended = fake.all(10);
  size_t whole = 0;
  for (const Ended& one : ended) {
    whole += one.whole;
    if (one.whole) CHECK(fake.right(one.record.expert));
    CHECK(!one.error);
  }
  CHECK(whole <= 1);
  fake.source->held = false;
  fake.start(11);
  CHECK(fake.all(1)[0].whole);
}

NATIVE_TEST(expert_reader_that_is_closed_refuses) {
  FakeReader fake(2, 0);
  fake.source->held = true;
  for (uint32_t e = 0; e < 5; ++e) fake.start(e);
  std::thread waiting([&] { fake.reader.wait(); });
  fake.reader.close();
  waiting.join();
  CHECK_THROWS(fake.start(6), "closed");
  fake.reader.wait();
  fake.reader.cancel();
  fake.reader.close();
}

NATIVE_TEST(expert_scores_are_halved) {
  Scores scores(3, /*half_life=*/10, /*top_k=*/2);
  CHECK(std::isinf(scores.value(0)));
  scores.add({4, 0, 0});  // two tokens
  CHECK_EQ(scores.value(0), 2.0);
  scores.add({0, 20, 0});  // ten tokens later
  CHECK_EQ(scores.value(0), 1.0);
  CHECK_EQ(scores.value(1), std::log2(20));
  scores.add({2, 0, 18});
  CHECK_EQ(scores.value(0), std::log2(1.0 + 2));
  scores.add({0, 0, 0});
  CHECK_EQ(scores.value(1), std::log2(20) - 1);
}

NATIVE_TEST(expert_slots_are_given_to_better_experts) {
  std::vector<uint8_t> memory(4 * kRecord);
  std::vector<int32_t> table(kExpertRows * 8);
  const ExpertTables tables{nullptr, table.data(), 8};
  std::vector<LayerRows> rows;
  rows.emplace_back(tables, 0, 6);
  std::vector<Scores> scores;
  scores.emplace_back(6, 1e9, 1);
  SlotCache cache({nullptr, memory.data(), 4}, kRecord, /*staging=*/1, rows, scores);
  const auto fill = [&](uint32_t expert, int32_t expected) {
    const int32_t slot = cache.take(0, expert);
    CHECK_EQ(slot, expected);
    if (slot < 0) return;
    CHECK(cache.memory(0, slot) == memory.data() + uint64_t(slot) * kRecord);
    if (cache.keep(slot)) rows[0].set_slot(expert, slot);
  };
  scores[0].add({5, 3, 4, 1, 1, 6});
  fill(0, 0);
  fill(1, 1);
  fill(2, 2);
  fill(3, 3);   // all others are held; slot 3 is for staging
  fill(4, -1);  // until one is free
  cache.release(3);
  CHECK_EQ(rows[0].slot(3), -1);
  for (int32_t slot = 0; slot < 3; ++slot) cache.release(slot);
  fill(4, 3);  // worse than all that are there
  fill(5, 1);  // better than expert 1
  CHECK_EQ(rows[0].slot(1), -1);
  CHECK_EQ(rows[0].slot(5), 1);
  cache.drop(1);
  cache.release(3);
  cache.hold(0);
  fill(3, 1);  // empty slots come first
  fill(1, 3);
}
