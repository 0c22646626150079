// The threads that run kernels where the processor stands in for a GPU.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <thread>

// PYTURBO_THREADS, the share of this process in the cores; else one per core.
inline unsigned soft_gpu_threads() {
  const char* given = std::getenv("PYTURBO_THREADS");
  const int threads = given ? std::atoi(given) : 0;
  return threads > 0 ? unsigned(threads) : std::max(1u, std::thread::hardware_concurrency());
}
