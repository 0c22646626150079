// The commands of one command buffer and what became of them.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "pyturbo/kernel.h"
#include "resources.h"

namespace soft_metal {

// One argument of a dispatch: a place in a buffer, or the bytes of setBytes.
struct Binding {
  std::shared_ptr<Memory> memory;
  uint64_t offset = 0;
  std::shared_ptr<const std::vector<uint8_t>> bytes;

  bool empty() const { return !memory && !bytes; }
};

struct Launch {
  std::shared_ptr<Pipeline> pipeline;
  std::vector<Binding> bindings;            // by argument of the kernel; empty for those it does not take
  std::vector<uint32_t> threadgroup_bytes;  // by argument of the kernel
  pyturbo::Dispatch geometry;
  Binding indirect;  // unless empty: where the number of threadgroups is when the dispatch runs
  std::shared_ptr<const std::string> encoder;  // its label
};

struct PassBegin {
  bool concurrent;
  std::shared_ptr<Samples> samples;
  uint64_t sample;  // past the end: none
};
struct PassEnd {
  std::shared_ptr<Samples> samples;
  uint64_t sample;
};
struct Barrier {
  bool all;
  std::vector<const Memory*> memories;
};
struct Signal {
  std::shared_ptr<Event> event;
  uint64_t value;
};
struct Wait {
  std::shared_ptr<Event> event;
  uint64_t value;
};
using Command = std::variant<Launch, PassBegin, PassEnd, Barrier, Signal, Wait>;

inline constexpr long kInternal = 1;         // MTLCommandBufferErrorInternal
inline constexpr long kTimeout = 2;          // MTLCommandBufferErrorTimeout
inline constexpr long kInvalidResource = 9;  // MTLCommandBufferErrorInvalidResource
inline constexpr long kDeviceRemoved = 11;   // MTLCommandBufferErrorDeviceRemoved

// Why a command buffer failed: what its NSError says.
struct Failure {
  long code;  // MTLCommandBufferError
  std::string text;
};

// Encoded by the API's thread before commit, executed by the queue's thread after it. Any thread may ask and
// wait.
class CommandList {
 public:
  enum class Status {
    not_enqueued,
    enqueued,
    committed,
    scheduled,
    completed,
    failed
  };  // MTLCommandBufferStatus

  std::string label;                      // set before commit
  std::function<void()> drop_references;  // called by the queue's thread before the list counts as finished

  void add(Command command) { commands_.push_back(std::move(command)); }

  // The first failure stays. A list that has failed executes nothing.
  void fail(long code, const std::string& text);
  void fail(const std::string& text);  // a violation: MTLCommandBufferErrorInvalidResource

  Status status() const;
  std::optional<Failure> failure() const;
  double start_time() const;  // seconds; 0 until known
  double end_time() const;

  void enqueued();
  void committed();
  bool is_committed() const { return status() >= Status::committed; }
  void wait_scheduled() const;
  void wait_completed() const;

  // Runs everything and finishes, `delay` milliseconds late.
  void execute(uint32_t delay);

 private:
  void run();
  void set_status(Status status);

  std::vector<Command> commands_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Status status_ = Status::not_enqueued;
  std::optional<Failure> failure_;
  uint64_t start_ = 0;
  uint64_t end_ = 0;
};

}  // namespace soft_metal
