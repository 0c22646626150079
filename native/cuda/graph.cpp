#include "cuda/graph.h"

#include "pyturbo/error.h"

namespace pyturbo::cuda {
namespace {

bool same(const Extent& a, const Extent& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

bool same(const Dispatch& a, const Dispatch& b) {
  return same(a.groups, b.groups) && same(a.threads, b.threads);
}

// Returns a geometry for a node that must have one although its launch has no threadgroups.
Dispatch runnable(Dispatch dispatch) {
  if (dispatch.groups.count() == 0) dispatch.groups = {};
  return dispatch;
}

}  // namespace

std::unique_ptr<Graph> Graph::make(std::shared_ptr<Stream> stream, std::shared_ptr<Modules> modules,
                                   const Memory& memory, size_t first, std::span<const ReadyLaunch> launches,
                                   const std::vector<std::vector<uint32_t>>& dependencies) {
  std::unique_ptr<Graph> graph(new Graph(std::move(stream), std::move(modules)));
  if (!graph->take(launches, memory)) return nullptr;
  graph->build(launches, first, dependencies);
  return graph;
}

bool Graph::take(std::span<const ReadyLaunch> launches, const Memory& memory) {
  Memory::Lookup lookup(memory);
  nodes_.reserve(launches.size());
  for (uint32_t i = 0; i < launches.size(); ++i) {
    const ReadyLaunch& launch = launches[i];
    Node node{nullptr,
              modules_->get(*launch.kernel, launch.arguments->constants),
              runnable(launch.dispatch),
              {},
              launch.dispatch.groups.count() > 0};
    require_geometry(launch, node.function.form.of(launch.dispatch), node.function.max_threads);
    if (launch.changes) changing_.push_back(i);
    if (!node.parameters.take(launch, lookup, nullptr)) return false;
    nodes_.push_back(std::move(node));
  }
  return true;
}

Graph::~Graph() {
  if (!stream_->context()->opened_here()) return;
  try {
    const Current current(*stream_->context());
    if (exec_) stream_->driver().exec_destroy(exec_);
    if (graph_) stream_->driver().graph_destroy(graph_);
  } catch (const Error&) {  // the context is broken, and its graphs gone with it
  }
}

KernelNode Graph::description(Node& node) const {
  const auto& [groups, threads] = node.function.form.of(node.dispatch);
  return {node.function.handle,
          groups.x,
          groups.y,
          groups.z,
          threads.x,
          threads.y,
          threads.z,
          node.parameters.shared_bytes() + node.function.form.shared_bytes,
          node.parameters.pointers(),
          nullptr,
          nullptr,
          nullptr};
}

void Graph::build(std::span<const ReadyLaunch> launches, size_t first,
                  const std::vector<std::vector<uint32_t>>& dependencies) {
  const Driver& driver = stream_->driver();
  const std::string what = "a graph of " + std::to_string(nodes_.size()) + " launches";
  const bool overlaps = driver.graph_connect && modules_->compiler().kernels_wait();
  stream_->require(what, driver.graph_create(&graph_, 0));
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const KernelNode kernel = description(nodes_[i]);
    const std::string name = what + ": " + launches[i].kernel->name;
    std::vector<NodeHandle> after;
    std::vector<Edge> edges;
    for (const uint32_t earlier : dependencies[first + i]) {
      if (earlier < first) continue;
      const size_t from = earlier - first;
      const bool steady = !launches[from].changes && !launches[i].changes;  // and so always enabled, or never
      after.push_back(nodes_[from].handle);
      edges.push_back(steady && nodes_[from].enabled && nodes_[i].enabled ? kWhenEnding : kWhenEnded);
    }
    const size_t whole = overlaps ? 0 : after.size();  // edges that are made with the node
    stream_->require(name, driver.graph_add(&nodes_[i].handle, graph_, after.data(), whole, &kernel));
    if (whole == after.size()) continue;
    const std::vector<NodeHandle> to(after.size(), nodes_[i].handle);
    stream_->require(name, driver.graph_connect(graph_, after.data(), to.data(), edges.data(), after.size()));
  }
  stream_->require(what, driver.graph_instantiate(&exec_, graph_, 0));
  for (Node& node : nodes_)
    if (!node.enabled) stream_->require(what, driver.exec_enable(exec_, node.handle, 0));
}

bool Graph::update(std::span<const ReadyLaunch> launches, uint64_t version, const Memory& memory) {
  const std::optional<uint64_t> before = version_ && lookup_->is_of(memory) ? version_ : std::nullopt;
  if (before == version) return true;
  version_.reset();
  lookup_.emplace(memory);
  for (const uint32_t i : changing_) {
    if (before && launches[i].version <= *before) continue;
    if (!next_.take(launches[i], *lookup_, nullptr)) return false;
    update(nodes_[i], launches[i]);
  }
  version_ = version;
  return true;
}

void Graph::update(Node& node, const ReadyLaunch& launch) {
  enable(node, launch.dispatch.groups.count() > 0);
  if (!node.enabled || (same(node.dispatch, launch.dispatch) && node.parameters == next_)) return;
  require_geometry(launch, node.function.form.of(launch.dispatch), node.function.max_threads);
  std::swap(node.parameters, next_);
  const Dispatch before = std::exchange(node.dispatch, launch.dispatch);
  const KernelNode kernel = description(node);
  const Result result = stream_->driver().exec_set(exec_, node.handle, &kernel);
  if (result != Result::success) {  // the node is as it was
    std::swap(node.parameters, next_);
    node.dispatch = before;
  }
  stream_->require(launch.kernel->name, result);
}

void Graph::enable(Node& node, bool enabled) {
  if (node.enabled == enabled) return;
  stream_->require("a graph", stream_->driver().exec_enable(exec_, node.handle, enabled));
  node.enabled = enabled;
}

void Graph::launch(const std::string& label) {
  if (!nodes_.empty()) stream_->launched(label, stream_->driver().exec_launch(exec_, stream_->handle()));
}

}  // namespace pyturbo::cuda
