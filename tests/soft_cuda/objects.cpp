#include "objects.h"

#include <algorithm>
#include <random>

#include "control.h"

namespace soft_cuda {

Failure& failure() {
  static Failure instance;
  return instance;
}

Stream::Stream(int device) : device_(device), thread_([this] { run(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Stream::add(Work work) {
  for (const auto& block : work.blocks) {
    ++block->uses;
    if (block->kind == Block::gpu && block->device != device_)
      violate(Rule::memory_range, "expected memory of GPU " + std::to_string(device_) + ", got that of GPU " +
                                      std::to_string(block->device));
  }
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

void Stream::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work_.empty() && !busy_; });
}

void Stream::run() {
  for (;;) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closed_ || !work_.empty(); });
      if (work_.empty()) return;
      work = std::move(work_.front());
      work_.pop_front();
      busy_ = true;
    }
    if (failure().get() == Result::success)
      if (const Result result = work.run(); result != Result::success) failure().set(result);
    for (const auto& block : work.blocks) --block->uses;
    work = {};
    const std::lock_guard lock(mutex_);
    busy_ = false;
    changed_.notify_all();
  }
}

bool run_launch(const Launch& launch) {
  pyturbo::Arguments arguments;
  std::vector<Access> accesses;
  std::vector<std::shared_ptr<Block>> blocks;
  return launch.resolve(arguments, accesses, blocks) && launch.execute(arguments);
}

namespace {

// Reports nodes that depend on each other without a path between them, and counts edges that nothing needs.
void check_edges(const std::vector<std::shared_ptr<const Node>>& nodes,
                 const std::vector<std::vector<Access>>& accesses) {
  const auto conflict = [&](size_t a, size_t b) -> const Access* {
    for (const Access& first : accesses[a])
      for (const Access& second : accesses[b])
        if (depend(first, second)) return &second;
    return nullptr;
  };
  std::vector<std::vector<bool>> before(nodes.size());
  uint64_t edges = 0, needless = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    before[i].resize(nodes.size());
    for (const uint32_t j : nodes[i]->after) {
      ++edges;
      before[i][j] = true;
      for (size_t k = 0; k < j; ++k)
        if (before[j][k]) before[i][k] = true;
      if (nodes[i]->enabled && nodes[j]->enabled && !conflict(j, i)) ++needless;
    }
    for (size_t j = 0; j < i; ++j)
      if (!before[i][j])
        if (const Access* access = conflict(j, i))
          violate(Rule::missing_edge, "expected a path from node " + std::to_string(j) + ", " +
                                          nodes[j]->launch.name() + ", to node " + std::to_string(i) + ", " +
                                          nodes[i]->launch.name() + ", for " + access->argument);
  }
  count(&Counters::edges, edges);
  count(&Counters::needless_edges, needless);
}

}  // namespace

bool run_graph(const std::vector<std::shared_ptr<const Node>>& nodes) {
  std::vector<pyturbo::Arguments> arguments(nodes.size());
  std::vector<std::vector<Access>> accesses(nodes.size());
  std::vector<std::shared_ptr<Block>> blocks;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i]->enabled && !nodes[i]->launch.resolve(arguments[i], accesses[i], blocks)) return false;
  }
  check_edges(nodes, accesses);

  static std::atomic<uint64_t> run{0};
  std::minstd_rand random(uint32_t(options().seed + run.fetch_add(1)));
  std::vector<size_t> waits(nodes.size()), ready;
  std::vector<std::vector<size_t>> next(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    waits[i] = nodes[i]->after.size();
    for (const uint32_t j : nodes[i]->after) next[j].push_back(i);
    if (waits[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const size_t i = ready.back();
    ready.pop_back();
    if (nodes[i]->enabled && !nodes[i]->launch.execute(arguments[i])) return false;
    count(nodes[i]->enabled ? &Counters::nodes : &Counters::disabled_nodes);
    for (const size_t j : next[i])
      if (--waits[j] == 0) ready.push_back(j);
  }
  return true;
}

}  // namespace soft_cuda
