// The kinds of devices that can be opened. Each kind adds itself to a registry when its library is loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pyturbo {

class Device;

// Precision of activations in products with quantised weights, on devices that round them.
enum class Precision : uint8_t {
  standard,  // CPUs: 24 bits per group; NVIDIA's matrix units, for prompts: 17 bits of each value
  fast,      // 8 bits: CPUs per group; NVIDIA's matrix units and Metal, for prompts, of each value
};

struct DeviceOptions {
  unsigned threads = 0;  // 0: one per core
  bool checked = false;  // run every kernel under the checker
  Precision precision = Precision::standard;
};

// A field without a default: an initialiser that leaves it out does not compile.
template <typename T>
struct Required {
  constexpr Required(T given) : value(given) {}
  constexpr operator T() const { return value; }
  T value;
};

// Host memory that kernels use in place.
enum class HostMemory : uint8_t {
  any,    // wherever it lies
  pages,  // whole pages (Storage::pages); other memory is copied
  none,   // only what Device::allocate_shared gives: the device has memory of its own
};

// The strengths of a kind of device. They decide how a model is run, not what it computes.
struct Traits {
  Required<uint32_t> chunk;             // tokens of a prompt per replay
  Required<uint32_t> single;            // prompts of at most this many tokens are read one token per replay
  Required<uint32_t> attention_blocks;  // parts that the keys of a query are split into, at most
  Required<uint32_t> attention_groups;  // threadgroups that fill the device; 0: as many parts as there may be
  Required<uint32_t> product_groups;  // threadgroups of products with one token that run at once; 0: unknown
  Required<uint32_t> chunkwise_tokens;  // fewest tokens for which the chunkwise delta net is faster
  Required<uint32_t> pass_experts;      // a pass waits for this many experts, or for all being read
  Required<uint32_t> bucket_tokens;     // fewest tokens of a step that are sorted by expert; rows of a tile
  Required<uint32_t> few_tokens;        // most tokens that kernels of few tokens multiply; 0: none
  Required<uint32_t> top_logits;        // largest logits that a program finds for the host; 0: none
  Required<bool> fused;                 // whether programs use kernels that join several others
  Required<HostMemory> host_memory;
};

// The place of a kind in device_names(): lower values first.
enum class Rank : uint8_t { gpu, cpu, reference, emulator };

struct DeviceKind {
  std::string name;
  Rank rank;
  Traits traits;
  std::unique_ptr<Device> (*open)(const DeviceKind& kind, const DeviceOptions& options);
  std::function<bool()> available;  // whether this machine has one, asked once; null: always
  // Says what is missing where the machine has such hardware, but cannot use it; otherwise empty, or null.
  std::function<std::string()> missing = nullptr;
  uint32_t ordinal = 0;  // of the hardware, where a machine may have several of a kind
};

// Adds a kind. Throws Error{argument} where one has the same name.
void add_device(const DeviceKind& kind);

// Adds a kind while a library is loaded, as an object with static storage duration in the file of the device.
// Link such a file as an object file: a linker skips members of a static archive that nothing refers to.
struct RegisteredDevice {
  explicit RegisteredDevice(const DeviceKind& kind) { add_device(kind); }
};

std::vector<std::string> device_names();  // of available kinds, best first

// A kind that is not available, although the machine has the hardware.
struct MissingDevice {
  std::string name;
  std::string reason;
};
std::vector<MissingDevice> missing_devices();

// Both throw Error{argument} for a name that device_names() does not have.
std::shared_ptr<const DeviceKind> find_device(std::string_view name);
std::shared_ptr<Device> open_device(std::string_view name, const DeviceOptions& options);

}  // namespace pyturbo
