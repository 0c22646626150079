// Programs as graphs: launches that do not depend on each other run side by side, and a replay is one call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cuda/memory.h"
#include "cuda/modules.h"
#include "cuda/parameters.h"
#include "cuda/stream.h"
#include "pyturbo/device.h"

namespace pyturbo::cuda {

// Some launches of a program in a row. Owner: the program (Recorded::kept), whose replays take turns. The
// context must be current, except for the destructor.
class Graph {
 public:
  // Makes the graph of launches whose kernels are loaded. `first` is the index of the first launch in
  // `dependencies`, which are those of the whole program. Returns null where a launch touches memory that
  // kernels cannot touch: such a replay must run without a graph. Throws Error{device} when a kernel cannot
  // be run, and Error{memory}.
  static std::unique_ptr<Graph> make(std::shared_ptr<Stream> stream, std::shared_ptr<Modules> modules,
                                     const Memory& memory, size_t first,
                                     std::span<const ReadyLaunch> launches,
                                     const std::vector<std::vector<uint32_t>>& dependencies);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Sets what has changed since the last call, if the version of the launches or the memory did. Launches of
  // the graph that are under way are not affected. Returns false where a launch touches memory that kernels
  // cannot touch.
  bool update(std::span<const ReadyLaunch> launches, uint64_t version, const Memory& memory);

  void launch(const std::string& label);

 private:
  struct Node {
    NodeHandle handle;
    Function function;
    Dispatch dispatch;  // as the node has it
    Parameters parameters;
    bool enabled;
  };

  Graph(std::shared_ptr<Stream> stream, std::shared_ptr<Modules> modules)
      : stream_(std::move(stream)), modules_(std::move(modules)) {}

  bool take(std::span<const ReadyLaunch> launches, const Memory& memory);
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
  std::optional<uint64_t> version_;       // of the launches that the nodes have; none after a failure
  std::optional<Memory::Lookup> lookup_;  // of their memory
  GraphHandle graph_ = nullptr;
  ExecHandle exec_ = nullptr;
};

// What the device keeps for a program: its dependencies, and graphs by first launch and number of launches.
struct ProgramGraphs {
  std::vector<std::vector<uint32_t>> dependencies;
  std::map<std::pair<size_t, size_t>, std::unique_ptr<Graph>> graphs;
};

}  // namespace pyturbo::cuda
