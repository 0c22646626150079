// The residency of the Metal device itself: how long its thread repeats requests.
#include "metal/residency.h"

#include <chrono>
#include <thread>

#include "soft_case.h"

using namespace std::chrono_literals;

namespace {

uint64_t requests() { return soft_metal::counters().residency_requests; }

// Waits until the number of requests has grown by `more`. Returns whether it has, within a minute.
bool grows(uint64_t more) {
  const uint64_t before = requests();
  for (int i = 0; i < 6000 && requests() < before + more; ++i) std::this_thread::sleep_for(10ms);
  return requests() >= before + more;
}

// Waits until no request was made for 20 intervals. Returns whether that happens within a minute.
bool stops() {
  for (int i = 0; i < 600; ++i) {
    const uint64_t before = requests();
    std::this_thread::sleep_for(100ms);
    if (requests() == before) return true;
  }
  return false;
}

}  // namespace

NATIVE_TEST(residency_is_requested_again_while_the_gpu_is_used) {
  keeps([](Soft& soft) {
    pyturbo::metal::Residency residency(soft.device(), soft.queue(), {.interval = 5ms, .lasts = 200ms});
    CHECK(stops());
    for (int round = 0; round < 2; ++round) {
      residency.used();
      CHECK(grows(3));
      CHECK(stops());
    }
  });
}
