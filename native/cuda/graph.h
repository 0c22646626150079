// Programs as graphs: launches that do not depend on each other run side by side, and a replay is one call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cuda/memory.h"
#include "cuda/modules.h"
#include "cuda/parameters.h"
#include "cuda/stream.h"
#include "pyturbo/device.h"

namespace pyturbo::cuda {

// Some launches of a program in a row. Owner: the program (Recorded::kept). One thread at a time, under the
// lock of the device. The context must be current, except for the destructor.
class Graph {
 public:
  // Throws Error{device} when a kernel cannot be compiled or run. `first` is the index of the first launch in
  // `dependencies`, which are those of the whole program.
  Graph(std::shared_ptr<Stream> stream, std::shared_ptr<Modules> modules, const Memory& memory, size_t first,
        std::span<const ReadyLaunch> launches, const std::vector<std::vector<uint32_t>>& dependencies);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Sets what has changed since the last call. Returns false where a launch touches memory that kernels
  // cannot touch: such a replay must run without the graph.
  bool update(std::span<const ReadyLaunch> launches, const Memory& memory);

  void launch(const std::string& label);

 private:
  struct Node {
    NodeHandle handle;
    Function function;
    Dispatch dispatch;  // as the node has it
    Parameters parameters;
    bool enabled;
  };

  KernelNode description(Node& node) const;
  void build(std::span<const ReadyLaunch> launches, size_t first,
             const std::vector<std::vector<uint32_t>>& dependencies);
  void update(Node& node, const ReadyLaunch& launch);
  void enable(Node& node, bool enabled);

  const std::shared_ptr<Stream> stream_;
  const std::shared_ptr<Modules> modules_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> changing_;  // indices of launches that may differ in each replay
  Parameters next_;
  bool reachable_ = true;  // all memory of launches that do not change can be touched
  GraphHandle graph_ = nullptr;
  ExecHandle exec_ = nullptr;
};

// What the device keeps for a program: its dependencies, and graphs by first launch and number of launches.
struct ProgramGraphs {
  std::vector<std::vector<uint32_t>> dependencies;
  std::map<std::pair<size_t, size_t>, std::unique_ptr<Graph>> graphs;
};

}  // namespace pyturbo::cuda
