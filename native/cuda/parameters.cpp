#include "cuda/parameters.h"

#include <cstring>

#include "pyturbo/error.h"

namespace pyturbo::cuda {
namespace {

constexpr uint32_t kValueAlignment = 16;  // of values, and of threadgroup arguments

constexpr uint32_t kMostGroups = 65535;  // along y and z
constexpr uint32_t kMostThreadsZ = 64;

uint32_t whole(uint32_t bytes) { return (bytes + kValueAlignment - 1) / kValueAlignment * kValueAlignment; }

}  // namespace

uint8_t* Parameters::add(uint32_t bytes) {
  const size_t place = bytes_.size();
  places_.push_back(uint32_t(place));
  bytes_.resize(place + whole(bytes));
  return bytes_.data() + place;
}

bool Parameters::take(const ReadyLaunch& launch, Memory::Lookup& memory, const Staging* staging) {
  const KernelInfo& kernel = *launch.kernel;
  const Arguments& arguments = *launch.arguments;
  bytes_.clear();
  places_.clear();
  shared_bytes_ = 0;
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const ArgumentInfo& info = kernel.arguments[i];
    if (info.kind == ArgumentKind::threadgroup) continue;
    const void* data = arguments.buffers[info.index];
    const uint64_t bytes = arguments.bytes[info.index];
    if (info.kind == ArgumentKind::value) {
      uint8_t* value = add(info.size);
      if (data && bytes == info.size) std::memcpy(value, data, info.size);
      continue;
    }
    Address place = 0;
    if (data && bytes > 0 && !memory.find(data, bytes, place)) {
      if (!staging) return false;
      place = staging->copy_of(data);
    }
    std::memcpy(add(sizeof place), &place, sizeof place);
  }
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const ArgumentInfo& info = kernel.arguments[i];
    if (info.kind != ArgumentKind::threadgroup) continue;
    std::memcpy(add(sizeof shared_bytes_), &shared_bytes_, sizeof shared_bytes_);
    shared_bytes_ += whole(arguments.threadgroup_bytes[info.index]);
  }
  return true;
}

void** Parameters::pointers() {
  pointers_.clear();
  for (const uint32_t place : places_) pointers_.push_back(bytes_.data() + place);
  return pointers_.data();
}

void require_geometry(const ReadyLaunch& launch, const Dispatch& geometry, uint32_t max_threads) {
  const auto& [groups, threads] = geometry;
  const std::string name = std::string(launch.label) + (*launch.label ? ": " : "") + launch.kernel->name;
  if (threads.count() > max_threads || threads.z > kMostThreadsZ)
    throw Error(ErrorKind::device, name + ": expected at most " + std::to_string(max_threads) +
                                       " threads in a threadgroup on this device, " +
                                       std::to_string(kMostThreadsZ) + " of them along z, got " +
                                       std::to_string(threads.x) + " x " + std::to_string(threads.y) + " x " +
                                       std::to_string(threads.z));
  if (groups.x > INT32_MAX || groups.y > kMostGroups || groups.z > kMostGroups)
    throw Error(ErrorKind::device, name + ": expected at most " + std::to_string(kMostGroups) +
                                       " threadgroups along y and z on this device, got " +
                                       std::to_string(groups.x) + " x " + std::to_string(groups.y) + " x " +
                                       std::to_string(groups.z));
}

}  // namespace pyturbo::cuda
