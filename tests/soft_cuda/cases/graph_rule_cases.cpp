// Rules about graphs and memory in use. Each is broken, and kept by a look-alike.
#include "soft_case.h"

using namespace soft_case;

namespace {

// b = a + a, then c = b + b, with or without the edge between them.
std::vector<float> two_nodes(Soft& soft, bool edge) {
  const FunctionHandle function = soft.function("add");
  Add first(soft.floats(10, 1), 0, soft.floats(10), 10);
  first.b = first.a;
  Add second(first.y, first.y, soft.floats(10), 10);
  GraphHandle graph;
  ExecHandle exec;
  NodeHandle nodes[2];
  CHECK(cuGraphCreate(&graph, 0) == Result::success);
  const KernelNode one = first.node(function), two = second.node(function);
  CHECK(cuGraphAddKernelNode_v2(&nodes[0], graph, nullptr, 0, &one) == Result::success);
  CHECK(cuGraphAddKernelNode_v2(&nodes[1], graph, nodes, edge, &two) == Result::success);
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0) == Result::success);
  CHECK(cuGraphLaunch(exec, soft.stream()) == Result::success);
  const std::vector<float> result = soft.read(second.y, 10);

  first.a = soft.floats(10, 5);  // parameters were taken when the node was made
  CHECK(cuGraphLaunch(exec, soft.stream()) == Result::success);
  CHECK(soft.read(second.y, 10) == result);
  const KernelNode changed = first.node(function);
  CHECK(cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], &changed) == Result::success);
  CHECK(cuGraphNodeSetEnabled(exec, nodes[1], 0) == Result::success);
  CHECK(cuGraphLaunch(exec, soft.stream()) == Result::success);
  CHECK_EQ(soft.read(first.y, 10)[0], 6.0f);
  CHECK(soft.read(second.y, 10) == result);
  CHECK(cuGraphExecDestroy(exec) == Result::success);
  CHECK(cuGraphDestroy(graph) == Result::success);
  return result;
}

}  // namespace

NATIVE_TEST(soft_cuda_missing_edge) {
  breaks(Rule::missing_edge, [](Soft& soft) {
    soft_cuda::Options options;
    options.seed = 7;
    soft_cuda::set_options(options);
    const FunctionHandle function = soft.function("add");
    Add first(soft.floats(10), soft.floats(10), soft.floats(10), 10);
    Add second(first.y, first.y, soft.floats(10), 10);
    GraphHandle graph;
    ExecHandle exec;
    NodeHandle node;
    CHECK(cuGraphCreate(&graph, 0) == Result::success);
    for (Add* add : {&first, &second}) {
      const KernelNode kernel = add->node(function);
      CHECK(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &kernel) == Result::success);
    }
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0) == Result::success);
    CHECK(cuGraphLaunch(exec, soft.stream()) == Result::success);
    CHECK(soft.wait() == Result::success);
    CHECK(cuGraphExecDestroy(exec) == Result::success);
    CHECK(cuGraphDestroy(graph) == Result::success);
  });
  keeps([](Soft& soft) {
    CHECK_EQ(two_nodes(soft, /*edge=*/true)[9], 4.0f);
    CHECK_EQ(soft_cuda::counters().needless_edges, 0u);
    CHECK_EQ(soft_cuda::counters().disabled_nodes, 1u);
    CHECK_EQ(soft_cuda::counters().node_updates, 2u);
  });
}

NATIVE_TEST(soft_cuda_nodes_of_another_graph) {
  breaks(Rule::handle, [](Soft& soft) {
    Add add(soft.floats(10), soft.floats(10), soft.floats(10), 10);
    const KernelNode kernel = add.node(soft.function("add"));
    GraphHandle graphs[2];
    NodeHandle nodes[2];
    for (GraphHandle& graph : graphs) CHECK(cuGraphCreate(&graph, 0) == Result::success);
    CHECK(cuGraphAddKernelNode_v2(&nodes[0], graphs[0], nullptr, 0, &kernel) == Result::success);
    CHECK(cuGraphAddKernelNode_v2(&nodes[1], graphs[1], nodes, 1, &kernel) == Result::invalid_value);
    for (const GraphHandle graph : graphs) CHECK(cuGraphDestroy(graph) == Result::success);
  });
}

NATIVE_TEST(soft_cuda_freed_in_use) {
  const auto free_after = [](Soft& soft, bool waits) {
    soft_cuda::inject({soft_cuda::Fault::slow, 0, 1, "", 50});
    Address y;
    CHECK(cuMemAlloc_v2(&y, 40) == Result::success);
    Add add(soft.floats(10), soft.floats(10), y, 10);
    CHECK(soft.launch(add.node(soft.function("add"))) == Result::success);
    if (waits) CHECK(soft.wait() == Result::success);
    CHECK(cuMemFree_v2(y) == Result::success);
  };
  breaks(Rule::freed_in_use, [&](Soft& soft) { free_after(soft, /*waits=*/false); });
  keeps([&](Soft& soft) { free_after(soft, /*waits=*/true); });
}

NATIVE_TEST(soft_cuda_host_memory) {
  breaks(Rule::host_memory, [](Soft& soft) {
    const Address a = soft.floats(10), b = soft.floats(10);
    CHECK(cuMemcpyHtoDAsync_v2(a, reinterpret_cast<void*>(b), 40, soft.stream()) == Result::invalid_value);
  });
  keeps([](Soft& soft) {
    const Address a = soft.floats(10, 3), b = soft.floats(10);
    CHECK(cuMemcpyDtoDAsync_v2(b, a, 40, soft.stream()) == Result::success);
    CHECK(cuMemsetD8Async(a, 0, 40, soft.stream()) == Result::success);
    CHECK_EQ(soft.read(b, 10)[9], 3.0f);
    CHECK_EQ(soft.read(a, 10)[9], 0.0f);
  });
}

NATIVE_TEST(soft_cuda_copies_are_asynchronous) {
  keeps([](Soft& soft) {
    void* memory;
    CHECK(cuMemHostAlloc(&memory, 4, kHostAllocDeviceMap) == Result::success);
    float* const pinned = static_cast<float*>(memory);
    *pinned = 1;
    soft_cuda::inject({soft_cuda::Fault::slow, 0, 1, "", 50});
    Add add(soft.floats(10), soft.floats(10), soft.floats(10), 10);
    CHECK(soft.launch(add.node(soft.function("add"))) == Result::success);
    const Address a = soft.floats(1);
    CHECK(cuMemcpyHtoDAsync_v2(a, pinned, 4, soft.stream()) == Result::success);
    *pinned = 2;  // the copy has not begun: it sees this value
    CHECK_EQ(soft.read(a, 1)[0], 2.0f);
    CHECK(cuMemFreeHost(memory) == Result::success);
  });
}

NATIVE_TEST(soft_cuda_faults) {
  keeps([](Soft& soft) {
    Address address;
    soft_cuda::inject({soft_cuda::Fault::allocation});
    CHECK(cuMemAlloc_v2(&address, 4) == Result::out_of_memory);
    std::string text;
    soft_cuda::inject({soft_cuda::Fault::compile, 0, 1, "too many registers"});
    CHECK(compile("add", {}, text) != 0);
    CHECK(text.starts_with("too many registers"));
    Add add(soft.floats(10), soft.floats(10), soft.floats(10), 10);
    const FunctionHandle function = soft.function("add");
    soft_cuda::inject({soft_cuda::Fault::refused});
    CHECK(soft.launch(add.node(function)) == Result::launch_out_of_resources);
    CHECK(soft.launch(add.node(function)) == Result::success);
    CHECK(soft.wait() == Result::success);
    soft_cuda::inject({soft_cuda::Fault::launch});
    CHECK(soft.launch(add.node(function)) == Result::success);
    CHECK(soft.wait() == Result::illegal_address);
    CHECK(cuMemAlloc_v2(&address, 4) == Result::illegal_address);
  });
}
