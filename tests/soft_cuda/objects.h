// The objects that handles of the driver name.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "launch.h"

namespace soft_cuda {

// Work of a stream: returns a failure of the whole context, or success.
struct Work {
  std::function<Result()> run;
  std::vector<std::shared_ptr<Block>> blocks;  // that it uses
};

// The first failure while work ran. Every later call returns it.
class Failure {
 public:
  Result get() const { return Result(value_.load()); }
  void set(Result result) {
    int expected = 0;
    value_.compare_exchange_strong(expected, int(result));
  }
  void clear() { value_.store(0); }

 private:
  std::atomic<int> value_{0};
};
Failure& failure();

// Runs work in order on a thread of its own.
class Stream {
 public:
  explicit Stream(int device);
  ~Stream();            // runs what was added
  void add(Work work);  // reports memory of another GPU
  void wait();

 private:
  void run();

  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> work_;
  bool busy_ = false, closed_ = false;
  std::thread thread_;
};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  bool recorded = false, done = false;
  double seconds = 0;
};

struct Module {
  std::shared_ptr<Kernel> kernel;
  std::string name;
  std::shared_ptr<Block> form;  // what the kernel says of its form, where somebody asked
};

struct Node {
  Launch launch;
  std::vector<uint32_t> after;  // indices in the graph
  bool enabled = true;
};

struct Graph {
  std::vector<std::shared_ptr<Node>> nodes;
};

struct Exec {
  std::vector<std::shared_ptr<const Node>>
      nodes;  // replaced, never changed: work that was added keeps its own
};

// Runs the nodes in an order that their edges allow. False when one of them fails.
bool run_graph(const std::vector<std::shared_ptr<const Node>>& nodes);

// Runs one launch. False when it fails.
bool run_launch(const Launch& launch);

}  // namespace soft_cuda
