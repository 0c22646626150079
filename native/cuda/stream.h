// The queue of work of a device, and its first failure.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/context.h"

namespace pyturbo::cuda {

// Work begins in the order in which it was added. A failure is sticky: memory is then in an unknown state, so
// nothing runs after it. Owner: the device and its memory. Any thread; one lock, which is not held while
// waiting. The context must be current.
class Stream {
 public:
  explicit Stream(std::shared_ptr<Context> context);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  StreamHandle handle() const { return handle_; }
  const std::shared_ptr<Context>& context() const { return context_; }
  const Driver& driver() const { return context_->driver(); }

  // Throws unless the driver has done `what`: Error{memory} with the bytes that are free if there were too
  // few, otherwise Error{device}. Records a failure that the context does not survive.
  void require(std::string_view what, Result result) {
    if (result != Result::success) refuse(what, result);
  }

  // Note that launches or a copy were added, after require(). Labels of launches are for messages: a failure
  // shows itself at a later call.
  void launched(const std::string& label, Result result);
  void copied(std::string_view what, Result result);

  // Whether all work that was added is known to have ended.
  bool idle();

  // Waits for all work that was added. Throws nothing.
  void wait();

  // Marks the end of the work that was added so far.
  uint64_t mark();

  // Waits for the work before a mark; for one that is not among the last, perhaps for more. Throws nothing.
  void wait(uint64_t mark);

  // Throws the Error{device} of the first failure.
  void throw_failure();

  // Waits, and throws the first failure.
  void synchronize() {
    wait();
    throw_failure();
  }

 private:
  struct Launched {
    std::string label;
    uint64_t number;  // of the last work with this label
  };
  struct Mark {
    EventHandle event = nullptr;
    uint64_t number = 0;  // of the work before it
  };

  [[noreturn]] void refuse(std::string_view what, Result result);
  void ended(uint64_t number);
  void fail(std::string_view otherwise, Result result);

  const std::shared_ptr<Context> context_;
  StreamHandle handle_ = nullptr;
  std::mutex mutex_;                 // guards the members below
  std::vector<Launched> under_way_;  // each label once
  uint64_t number_ = 0;              // of the work added last
  uint64_t done_ = 0;                // work up to this number has ended
  std::array<Mark, 4> marks_;        // the last ones, which take turns
  uint64_t last_mark_ = 0;
  std::string failure_;
};

}  // namespace pyturbo::cuda
