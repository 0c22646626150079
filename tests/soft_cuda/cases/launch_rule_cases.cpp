// Rules about launches and their parameters. Each is broken, and kept by a look-alike.
#include <thread>

#include "soft_case.h"

using namespace soft_case;

namespace {

// Launches the kernel `threadgroup_argument`, which wants 256 bytes of shared memory, with its argument at
// `offset`.
Result threadgroup(Soft& soft, unsigned offset, unsigned bytes) {
  uint32_t groups = 3;
  Address x = soft.floats(groups * 64, 1), y = soft.floats(groups);
  void* pointers[] = {&x, &y, &groups, &offset};
  return soft.launch({soft.function("threadgroup_argument"), groups, 1, 1, 64, 1, 1, bytes, pointers, nullptr,
                      nullptr, nullptr});
}

}  // namespace

NATIVE_TEST(soft_cuda_launch) {
  keeps([](Soft& soft) {
    Add add(soft.floats(10, 1), soft.floats(10, 2), soft.floats(10), 10);
    CHECK(soft.launch(add.node(soft.function("add"))) == Result::success);
    CHECK_EQ(soft.read(add.y, 10)[9], 3.0f);
    CHECK_EQ(soft_cuda::counters().launches, 1u);
  });
}

NATIVE_TEST(soft_cuda_geometry) {
  for (const unsigned threads : {0u, 1025u})
    breaks(Rule::geometry, [&](Soft& soft) {
      Add add(soft.floats(10), soft.floats(10), soft.floats(10), 10);
      KernelNode node = add.node(soft.function("add"));
      node.threads_x = threads;
      CHECK(soft.launch(node) == Result::invalid_value);
    });
  for (const unsigned groups : {0u, 65536u})
    breaks(Rule::geometry, [&](Soft& soft) {
      Add add(soft.floats(10), soft.floats(10), soft.floats(10), 10);
      KernelNode node = add.node(soft.function("add"));
      node.groups_y = groups;
      CHECK(soft.launch(node) == Result::invalid_value);
    });
}

NATIVE_TEST(soft_cuda_overlap) {
  breaks(Rule::overlap, [](Soft& soft) {
    const Address memory = soft.floats(20);
    cuMemcpyDtoDAsync_v2(memory, memory + 36, 40, soft.stream());
    soft.wait();
  });
  keeps([](Soft& soft) {
    const Address memory = soft.floats(20);
    CHECK(cuMemcpyDtoDAsync_v2(memory, memory + 40, 40, soft.stream()) == Result::success);
    soft.wait();
  });
}

NATIVE_TEST(soft_cuda_memory_range) {
  breaks(Rule::memory_range, [](Soft& soft) {  // one float too short
    Add add(soft.floats(10), soft.floats(9), soft.floats(10), 10);
    soft.launch(add.node(soft.function("add")));
    CHECK(soft.wait() == Result::illegal_address);
    CHECK(soft.wait() == Result::illegal_address);  // it stays
  });
  breaks(Rule::memory_range, [](Soft& soft) {  // memory of the host
    float host[10];
    Add add(reinterpret_cast<Address>(host), soft.floats(10), soft.floats(10), 10);
    soft.launch(add.node(soft.function("add")));
  });
  breaks(Rule::memory_range, [](Soft& soft) {
    Address address;
    CHECK(cuMemAlloc_v2(&address, 40) == Result::success);
    Add add(address, soft.floats(10), soft.floats(10), 10);
    CHECK(cuMemFree_v2(address) == Result::success);
    soft.launch(add.node(soft.function("add")));
  });
  keeps([](Soft& soft) {  // pinned memory
    void* memory;
    CHECK(cuMemHostAlloc(&memory, 40, kHostAllocPortable | kHostAllocDeviceMap) == Result::success);
    for (int i = 0; i < 10; ++i) static_cast<float*>(memory)[i] = float(i);
    Add add(reinterpret_cast<Address>(memory), soft.floats(10, 1), reinterpret_cast<Address>(memory), 10);
    CHECK(soft.launch(add.node(soft.function("add"))) == Result::success);
    CHECK(soft.wait() == Result::success);
    CHECK_EQ(static_cast<float*>(memory)[9], 10.0f);
    CHECK(cuMemFreeHost(memory) == Result::success);
  });
}

NATIVE_TEST(soft_cuda_alignment) {
  breaks(Rule::alignment, [](Soft& soft) {
    Add add(soft.floats(11) + 2, soft.floats(10), soft.floats(10), 10);
    soft.launch(add.node(soft.function("add")));
  });
}

NATIVE_TEST(soft_cuda_parameter) {
  breaks(Rule::parameter, [](Soft& soft) {
    Add add(soft.floats(10), soft.floats(10), soft.floats(10), 0);
    soft.launch(add.node(soft.function("add")));
  });
}

NATIVE_TEST(soft_cuda_shared_memory) {
  breaks(Rule::shared_memory, [](Soft& soft) { threadgroup(soft, 0, 128); });
  breaks(Rule::shared_memory, [](Soft& soft) { threadgroup(soft, 16, 256); });
  breaks(Rule::shared_memory, [](Soft& soft) { threadgroup(soft, 8, 1024); });
  breaks(Rule::shared_memory, [](Soft& soft) { threadgroup(soft, 0, 50000); });
  keeps([](Soft& soft) {
    CHECK(threadgroup(soft, 16, 272) == Result::success);
    CHECK(soft.wait() == Result::success);
  });
}

NATIVE_TEST(soft_cuda_handle) {
  breaks(Rule::handle, [](Soft& soft) {
    ModuleHandle module;
    FunctionHandle function;
    std::string image;
    CHECK_EQ(compile("add", {}, image), 0);
    CHECK(cuModuleLoadData(&module, image.data()) == Result::success);
    CHECK(cuModuleGetFunction(&function, module, "add") == Result::success);
    CHECK(cuModuleUnload(module) == Result::success);
    Add add(soft.floats(10), soft.floats(10), soft.floats(10), 10);
    CHECK(soft.launch(add.node(function)) == Result::invalid_handle);
  });
}

NATIVE_TEST(soft_cuda_no_context) {
  breaks(Rule::no_context, [](Soft&) {
    std::thread([] {
      Address address;
      CHECK(cuMemAlloc_v2(&address, 40) == Result::invalid_context);
    }).join();
  });
}

NATIVE_TEST(soft_cuda_compile_options) {
  std::string text;
  breaks(Rule::compile_options, [&](Soft&) { CHECK(compile("specialised", {}, text) != 0); });
  breaks(Rule::compile_options, [&](Soft&) { CHECK(compile("add", {"-DPT_C0=1u"}, text) != 0); });
  breaks(Rule::compile_options, [&](Soft&) { CHECK(compile("add", {"-use_fast_math"}, text) != 0); });
  breaks(Rule::compile_options, [&](Soft&) { CHECK(compile("subtract", {}, text) != 0); });
  keeps([&](Soft&) { CHECK_EQ(compile("add", {"-std=c++20", "-fmad=false"}, text), 0); });
}
