// Launches recorded once and replayed without Python. What differs between replays is named by symbols
// (integers such as the position) and blocks (memory such as the state of one conversation).
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pyturbo/device.h"
#include "pyturbo/kernel.h"
#include "pyturbo/storage.h"

namespace pyturbo {

// constant + sum of factor * symbol.
struct Linear {
  struct Term {
    uint32_t symbol;
    int64_t factor;
  };
  int64_t constant = 0;
  std::vector<Term> terms;

  int64_t at(const int64_t* symbols) const {
    int64_t value = constant;
    for (const Term& term : terms) value += term.factor * symbols[term.symbol];
    return value;
  }
};

// Memory of one argument: in a storage that the program keeps alive, or in a block that each replay brings.
struct MemoryRef {
  std::shared_ptr<Storage> storage;  // null: the block
  uint32_t block = 0;
  Linear offset;       // bytes from the start of the storage or block
  uint64_t bytes = 0;  // of the argument
  uint64_t end = 0;    // where not zero, the argument reaches to this byte instead
};

// What is bound to one argument of a recorded launch.
struct RecordedArgument {
  uint32_t argument;  // number in KernelInfo::arguments
  MemoryRef memory;   // buffers
  Linear integer;     // values: used when `bytes` is empty
  std::string bytes;  // values that no symbol changes
};

struct Block {
  uint8_t* data;
  uint64_t bytes;
};

// Owner: the Python Program. Recording belongs to one thread; run() may be called from any, and runs take
// turns.
class Program {
 public:
  Program(std::shared_ptr<Device> device, uint32_t symbols, uint32_t blocks)
      : device_(std::move(device)), symbols_(symbols), blocks_(blocks) {}

  // Appends a launch. One that no symbol reaches is checked here, others at each replay.
  void add(const KernelInfo& kernel, const void* const* constants, const std::vector<RecordedArgument>& bound,
           std::string label);

  // Runs all launches; see Device::replay. Blocks overlap neither each other nor memory that was bound.
  void run(const int64_t* symbols, const Block* blocks, bool wait, double* seconds = nullptr);

  uint32_t size() const { return uint32_t(launches_.size()); }
  const KernelInfo& kernel(uint32_t i) const { return *launches_[i].kernel; }
  const std::string& label(uint32_t i) const { return launches_[i].label; }
  // Whether launch i touches what a launch since the last barrier wrote, or writes what one of them touches.
  bool barrier(uint32_t i) const { return launches_[i].barrier; }

 private:
  struct ValuePatch {
    uint32_t index;  // of the argument's slot in Arguments
    DType dtype;
    Linear value;
  };
  struct AddressPatch {
    uint32_t index;
    const char* name;
    MemoryRef memory;
  };
  struct Range {
    uint32_t space;       // 0: addresses of host memory; else a block, counted from 1
    uint64_t begin, end;  // addresses, or bytes of the block
    bool writes;
  };
  struct Launch {
    const KernelInfo* kernel;
    Arguments arguments;
    std::unique_ptr<uint8_t[]> values;  // what value arguments point into
    std::vector<ValuePatch> value_patches;
    std::vector<AddressPatch> address_patches;
    std::vector<std::shared_ptr<Storage>> owners;
    Dispatch dispatch;
    std::string label;
    bool barrier = false;
  };

  void bind(Launch& launch, const RecordedArgument& argument, uint8_t* value);
  Range range_of(const MemoryRef& memory, bool writes) const;
  void order(Launch& launch, const std::vector<Range>& ranges);
  void require_apart(const Block* blocks) const;
  void patch(Launch& launch, const int64_t* symbols, const Block* blocks) const;

  std::shared_ptr<Device> device_;
  uint32_t symbols_;
  uint32_t blocks_;
  std::vector<Launch> launches_;
  std::vector<Range> unordered_;    // touched since the last barrier
  std::vector<Range> bound_;        // all host memory that launches touch
  std::vector<ReadyLaunch> ready_;  // of the replay at hand
  std::mutex running_;
};

}  // namespace pyturbo
