// Launches recorded once and replayed without Python. Replays differ by the values of symbols (integers such
// as the position) and by blocks (memory such as the state of one conversation).
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pyturbo/device.h"
#include "pyturbo/host_loop.h"
#include "pyturbo/kernel.h"
#include "pyturbo/storage.h"
#include "pyturbo/timeline.h"

namespace pyturbo {

// constant + sum of factor * symbol.
struct Linear {
  struct Term {
    uint32_t symbol;
    int64_t factor;
  };
  int64_t constant = 0;
  std::vector<Term> terms;

  // Sets `value`; returns false when the sum or one of its terms overflows.
  bool at(const int64_t* symbols, int64_t& value) const {
    value = constant;
    for (const Term& term : terms) {
      int64_t product;
      if (__builtin_mul_overflow(term.factor, symbols[term.symbol], &product) ||
          __builtin_add_overflow(value, product, &value))
        return false;
    }
    return true;
  }
};

// Memory of one argument: part of a buffer whose storage the program keeps alive, or of a block that is given
// to each replay.
struct MemoryRef {
  std::shared_ptr<Storage> storage;  // null: the block
  uint64_t start = 0, size = 0;      // the buffer, as bytes of its storage
  uint32_t block = 0;
  Linear offset;       // bytes from the start of the buffer or block
  uint64_t bytes = 0;  // of the argument
  int64_t end = -1;    // unless negative: the argument ends at this byte of the buffer or block instead
};

// The value bound to one argument of a recorded launch.
struct RecordedArgument {
  uint32_t argument;  // index in KernelInfo::arguments
  MemoryRef memory;   // buffers
  Linear integer;     // values: used when `bytes` is empty
  std::string bytes;  // values that do not depend on symbols
};

// Memory that a replay is given; without any, launches that use it must be left out of that replay.
struct Block {
  uint8_t* data;
  uint64_t bytes;
};

// How a launch stands to others, for launches of several conversations side by side.
struct Strand {
  static constexpr uint32_t kAlways = UINT32_MAX;
  uint32_t when = kAlways;  // a symbol: replays in which it is zero leave the launch out
  uint32_t group = 0;       // launches of one group, unless it is 0, touch nothing that others of it write
};

// A recorded launch as text.
struct LaunchText {
  std::string label;
  const char* kernel;
  std::string arguments;
  bool waits;    // conflicts with a launch since the last barrier: one of the two writes memory of the other
  bool repeats;  // runs in every pass of a host loop
};

// Where a host loop lies among the launches, as indices of them.
struct LoopText {
  static constexpr uint64_t kOpen = UINT64_MAX;  // not recorded yet
  uint64_t ask, begin = kOpen, end = kOpen;
};

// Owner: the Python Program. Any thread; one lock serialises runs and additions, another guards the list.
class Program : private Recorded {
 public:
  Program(std::shared_ptr<Device> device, uint32_t symbols, uint32_t blocks)
      : device_(std::move(device)), symbols_(symbols), blocks_(blocks) {}

  // Appends a launch, or throws and leaves the program unchanged. Memory at a fixed place is checked here, as
  // is a launch that depends on no symbol or block; everything else is checked at each replay. `text` shows
  // the arguments.
  void add(const KernelInfo& kernel, const void* const* constants, const std::vector<RecordedArgument>& bound,
           std::string label, std::string text, Strand strand = {});

  // Record a host loop, which needs all three calls in this order; loops are not nested. Launches added after
  // ask() run once, while the host works; those between begin_passes() and end_passes() run once and again
  // for each HostLoop::next(). There is a barrier at each of the three points. Throw Error{state} out of
  // order, and Error{argument} for a second loop with the same count: devices run ahead of the host and would
  // overwrite it.
  void ask(std::shared_ptr<HostLoop> loop);
  void begin_passes();
  void end_passes();

  // Has the device prepare all launches, which the first run would do; see Device::prepare.
  void prepare();

  // Prepares a run with these symbols and blocks, too: if they are those of the next run, it begins at once.
  void prepare(const int64_t* symbols, const Block* blocks);

  // Runs all launches; see Device::replay. A program with host loops always waits. Takes a value for each
  // symbol and memory for each block. Blocks may overlap neither each other nor bound memory. `timeline`
  // receives when each launch ran. `next`, if given, are the symbols that the next run is expected to have,
  // with these blocks: a device that prepares ahead prepares it while this run is under way.
  void run(const int64_t* symbols, const Block* blocks, bool wait, Timeline* timeline = nullptr,
           const int64_t* next = nullptr);

  uint64_t size() const {
    const std::lock_guard lock(growing_);
    return launches_.size();
  }
  std::vector<LaunchText> listing() const;
  // Returns how the device would divide a run with these symbols and blocks; see Device::parts.
  std::vector<Part> parts(const int64_t* symbols, const Block* blocks);
  std::vector<LoopText> loops() const;

 private:
  struct ValuePatch {
    uint32_t index;  // slot in Arguments
    const char* name;
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
    uint32_t group;  // that of Strand
  };
  struct Launch {
    const KernelInfo* kernel;
    Arguments arguments;
    std::unique_ptr<uint8_t[]> values;  // value arguments point into it
    std::vector<ValuePatch> value_patches;
    std::vector<AddressPatch> address_patches;
    std::vector<std::shared_ptr<Storage>> owners;
    Dispatch dispatch;
    std::string label;
    std::string text;
    Strand strand;
    std::vector<Range> ranges;  // that it touches
    bool barrier = false;
  };

  enum class Stage : uint8_t { closed, asked, passes };  // of the last loop
  struct Loop {
    std::shared_ptr<HostLoop> host;
    LoopText at;
  };

  Stage stage() const;
  void require_stage(const char* call, Stage expected) const;
  void mark(const char* call, Stage expected, std::shared_ptr<HostLoop> loop);
  void bind(Launch& launch, const RecordedArgument& argument, uint8_t* value);
  Range range_of(const MemoryRef& memory, bool writes, uint32_t group) const;
  static bool conflict(const Range& a, const Range& b);
  void order(Launch& launch);
  std::vector<std::vector<uint32_t>> dependencies() const override;
  void require_apart(const Block* blocks) const;
  void patch(Launch& launch, const int64_t* symbols, const Block* blocks) const;
  static void unbind(Launch& launch);
  bool has(const Block* blocks) const;
  bool has(const int64_t* symbols) const;
  void complete(uint32_t index, const int64_t* symbols, const Block* blocks);
  void set(const int64_t* symbols, const Block* blocks);
  void set_and_prepare(const int64_t* symbols, const Block* blocks);

  std::shared_ptr<Device> device_;
  uint32_t symbols_;
  uint32_t blocks_;
  std::vector<Launch> launches_;
  std::vector<uint32_t> following_;  // indices of launches that follow symbols
  std::vector<Loop> loops_;
  bool fenced_ = false;             // the next launch waits for those before it
  std::vector<Range> unordered_;    // touched since the last barrier
  std::vector<Range> bound_;        // all host memory that launches touch
  std::vector<ReadyLaunch> ready_;  // with the symbols and blocks below
  std::vector<int64_t> ready_symbols_;
  std::vector<Block> ready_blocks_;
  bool is_ready_ = false;
  std::vector<ReadyLoop> ready_loops_;
  std::mutex running_;          // held by a replay or an addition
  mutable std::mutex growing_;  // guards the list of launches; locked after running_
};

}  // namespace pyturbo
