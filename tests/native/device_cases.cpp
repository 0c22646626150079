// The registry of devices, and what a kind of device has to state.
#include "pyturbo/device.h"

#include <concepts>
#include <string>
#include <type_traits>
#include <vector>

#include "core/devices.h"
#include "core/kernels.h"
#include "example_device.h"
#include "native_test.h"

namespace {

using namespace pyturbo;

// A device that leaves out a trait does not compile: neither all of them, nor any single one.
static_assert(!std::default_initializable<Traits>);
static_assert(!std::is_constructible_v<Device, std::string>);
template <typename T>
concept WithoutChunk = requires {
  T{.single = 1,
    .attention_blocks = 1,
    .attention_groups = 0,
    .product_groups = 0,
    .chunkwise_tokens = 1,
    .pass_experts = 1,
    .bucket_tokens = 2,
    .few_tokens = 0,
    .top_logits = 1,
    .fused = true,
    .host_memory = HostMemory::any};
};
template <typename T>
concept WithoutSingle = requires {
  T{.chunk = 1,
    .attention_blocks = 1,
    .attention_groups = 0,
    .product_groups = 0,
    .chunkwise_tokens = 1,
    .pass_experts = 1,
    .bucket_tokens = 2,
    .few_tokens = 0,
    .top_logits = 1,
    .fused = true,
    .host_memory = HostMemory::any};
};
template <typename T>
concept WithoutBlocks = requires {
  T{.chunk = 1,
    .single = 1,
    .chunkwise_tokens = 1,
    .pass_experts = 1,
    .bucket_tokens = 2,
    .few_tokens = 0,
    .top_logits = 1,
    .fused = true,
    .host_memory = HostMemory::any};
};
template <typename T>
concept WithoutChunkwise = requires {
  T{.chunk = 1,
    .single = 1,
    .attention_blocks = 1,
    .attention_groups = 0,
    .product_groups = 0,
    .pass_experts = 1,
    .bucket_tokens = 2,
    .few_tokens = 0,
    .top_logits = 1,
    .fused = true,
    .host_memory = HostMemory::any};
};
template <typename T>
concept WithoutPass = requires {
  T{.chunk = 1,
    .single = 1,
    .attention_blocks = 1,
    .attention_groups = 0,
    .product_groups = 0,
    .chunkwise_tokens = 1,
    .top_logits = 1,
    .fused = true,
    .host_memory = HostMemory::any};
};
template <typename T>
concept WithoutTop = requires {
  T{.chunk = 1,
    .single = 1,
    .attention_blocks = 1,
    .attention_groups = 0,
    .product_groups = 0,
    .chunkwise_tokens = 1,
    .pass_experts = 1,
    .bucket_tokens = 2,
    .few_tokens = 0,
    .fused = true,
    .host_memory = HostMemory::any};
};
template <typename T>
concept WithoutFused = requires {
  T{.chunk = 1,
    .single = 1,
    .attention_blocks = 1,
    .attention_groups = 0,
    .product_groups = 0,
    .chunkwise_tokens = 1,
    .pass_experts = 1,
    .bucket_tokens = 2,
    .few_tokens = 0,
    .top_logits = 1,
    .host_memory = HostMemory::any};
};
template <typename T>
concept WithoutMemory = requires {
  T{.chunk = 1,
    .single = 1,
    .attention_blocks = 1,
    .attention_groups = 0,
    .product_groups = 0,
    .chunkwise_tokens = 1,
    .pass_experts = 1,
    .bucket_tokens = 2,
    .few_tokens = 0,
    .top_logits = 1,
    .fused = true};
};
template <typename T>
concept WithAll = requires {
  T{.chunk = 1,
    .single = 1,
    .attention_blocks = 1,
    .attention_groups = 0,
    .product_groups = 0,
    .chunkwise_tokens = 1,
    .pass_experts = 1,
    .bucket_tokens = 2,
    .few_tokens = 0,
    .top_logits = 1,
    .fused = true,
    .host_memory = HostMemory::any};
};
static_assert(!WithoutChunk<Traits> && !WithoutSingle<Traits> && !WithoutBlocks<Traits> &&
              !WithoutChunkwise<Traits> && !WithoutPass<Traits> && !WithoutTop<Traits> &&
              !WithoutFused<Traits> && !WithoutMemory<Traits> && WithAll<Traits>);

constexpr Traits kTraits{.chunk = 1,
                         .single = 2,
                         .attention_blocks = 3,
                         .attention_groups = 0,
                         .product_groups = 0,
                         .chunkwise_tokens = 4,
                         .pass_experts = 5,
                         .bucket_tokens = 2,
                         .few_tokens = 0,
                         .top_logits = 6,
                         .fused = true,
                         .host_memory = HostMemory::any};

DeviceKind kind(const std::string& name, Rank rank, bool (*available)() = nullptr) {
  return {.name = name, .rank = rank, .traits = kTraits, .open = nullptr, .available = available};
}

using Names = std::vector<std::string>;

}  // namespace

NATIVE_TEST(devices_are_listed_by_rank_then_by_name) {
  DeviceRegistry registry;
  registry.add(kind("slow", Rank::reference));
  registry.add(kind("emulated", Rank::emulator));
  registry.add(kind("gpu b", Rank::gpu));
  registry.add(kind("cpu", Rank::cpu));
  registry.add(kind("gpu c", Rank::gpu));
  registry.add(kind("gpu a", Rank::gpu));
  CHECK(registry.names() == Names{"gpu a", "gpu b", "gpu c", "cpu", "slow", "emulated"});
}

NATIVE_TEST(device_of_the_same_name_is_refused) {
  DeviceRegistry registry;
  registry.add(kind("a", Rank::gpu));
  registry.add(kind("b", Rank::cpu));
  CHECK_THROWS(registry.add(kind("a", Rank::emulator)), "device: expected a new name, got a");
  CHECK(registry.names() == Names{"a", "b"});
}

NATIVE_TEST(unavailable_device_is_not_listed_and_asked_once) {
  static int asked = 0;
  DeviceRegistry registry;
  registry.add(kind("absent", Rank::gpu, [] { return ++asked < 0; }));
  registry.add(kind("present", Rank::cpu, [] { return ++asked > 0; }));
  CHECK_EQ(asked, 0);
  CHECK(registry.names() == Names{"present"});
  CHECK(registry.names() == Names{"present"});
  CHECK_EQ(asked, 2);
  CHECK_THROWS(registry.find("absent"), "device: expected one of present, got 'absent'");
}

NATIVE_TEST(traits_come_from_the_kind) {
  DeviceRegistry registry;
  registry.add(kind("a", Rank::gpu));
  CHECK_EQ(uint32_t(registry.find("a")->traits.chunkwise_tokens), 4u);
  for (const std::string& name : device_names()) {
    const Traits traits = find_device(name)->traits;
    CHECK(traits.single < traits.chunk);
    CHECK_EQ(uint32_t(open_device(name, {})->traits().chunk), uint32_t(traits.chunk));
  }
}

NATIVE_TEST(device_of_a_few_lines_runs_kernels) {
  const std::unique_ptr<Device> device = example::kSerial.open(example::kSerial, {});
  const KernelInfo& kernel = device->kernel("threadgroup_argument");
  constexpr uint32_t kGroups = 3, kThreads = 64;
  const std::shared_ptr<Storage> in = device->allocate(kGroups * kThreads * sizeof(float));
  const std::shared_ptr<Storage> out = device->allocate(kGroups * sizeof(float));
  std::vector<float> values(kGroups * kThreads);
  for (uint32_t i = 0; i < values.size(); ++i) values[i] = float(i);
  device->write(in->data(), values.data(), values.size() * sizeof(float));
  uint32_t groups = kGroups;
  Arguments arguments;
  arguments.buffers[0] = in->data(), arguments.bytes[0] = in->bytes();
  arguments.buffers[1] = out->data(), arguments.bytes[1] = out->bytes();
  arguments.buffers[2] = &groups, arguments.bytes[2] = sizeof groups;
  device->launch(kernel, arguments, nullptr);
  float sums[kGroups];
  device->read(sums, out->data(), sizeof sums);
  for (uint32_t g = 0; g < kGroups; ++g)
    CHECK_EQ(sums[g], float(kThreads) * (float(g * kThreads) + float(kThreads - 1) / 2));
  device->close();
  CHECK_THROWS(device->launch(kernel, arguments, nullptr), "serial: the device is closed");
}
