// The memory that a kernel uses in checked mode: copies of its arguments, far apart from each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "checker/shadow.h"
#include "pyturbo/kernel.h"

namespace pyturbo::checker {

// One bound argument, as a range of its slot.
struct Binding {
  const ArgumentInfo* argument;
  size_t begin, end;
};

// Memory that the kernel may touch. Everything between slots is out of range.
struct Slot {
  std::byte* base;
  size_t size;
  std::byte* original;            // the memory that was copied; null for threadgroup memory
  const char* name;               // threadgroup memory only
  std::vector<Binding> bindings;  // device memory only; more than one where bindings overlap
  Cell* shadow;                   // one per byte; null when no binding is writable

  bool threadgroup() const { return original == nullptr; }
  bool writable(size_t begin, size_t end) const;
};

// A range of address space, unmapped by the destructor. base() is null if the system refused it.
class Mapping {
 public:
  Mapping() = default;
  Mapping(size_t bytes, int protection);
  Mapping(Mapping&& other) noexcept { *this = std::move(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::byte* base() const { return base_; }

 private:
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

// All slots of one launch. Owner: a Checker; one OS thread, no lock.
class CheckedMemory {
 public:
  // Copies every bound buffer and value of the kernel; `arguments` is changed to point to the copies.
  CheckedMemory(const KernelInfo& info, Arguments& arguments);
  CheckedMemory(const CheckedMemory&) = delete;
  CheckedMemory& operator=(const CheckedMemory&) = delete;

  void copy_back() const;  // copies written bytes back to the arguments

  void begin_group();  // forgets all threadgroup variables
  void* place(size_t size, const char* name);

  // Returns the slot that holds the address, or null.
  const Slot* find(const std::byte* address);
  // Returns the slot closest to the address, or null when the kernel has no memory at all.
  const Slot* nearest(const std::byte* address) const;

 private:
  void collect(const KernelInfo& info, const Arguments& arguments);
  void reserve();
  bool map_range(size_t gap);

  std::vector<Slot> slots_;  // device slots, then the threadgroup slots of the running group
  size_t device_slots_ = 0;
  size_t last_ = 0;  // the slot that find() returned last
  Mapping arena_;
  std::byte* threadgroup_base_ = nullptr;
  Mapping shadow_;  // cells of all slots
  Cell* threadgroup_shadow_ = nullptr;
};

}  // namespace pyturbo::checker
