#include "cuda/stream.h"

#include <algorithm>

#include "pyturbo/error.h"

namespace pyturbo::cuda {
namespace {

constexpr size_t kMostLabels = 3;  // in a message

// Returns whether the context cannot be used after this result: something went wrong while work ran. A call
// that is merely refused leaves it as it was.
bool lasting(Result result) {
  switch (result) {
    case Result::invalid_value:
    case Result::out_of_memory:
    case Result::invalid_image:
    case Result::no_binary_for_gpu:
    case Result::invalid_ptx:
    case Result::unsupported_ptx:
    case Result::invalid_handle:
    case Result::not_found:
    case Result::not_ready:
    case Result::launch_out_of_resources:
    case Result::memory_already_registered:
    case Result::not_permitted:
    case Result::not_supported:
      return false;
    default:
      return true;
  }
}

}  // namespace

Stream::Stream(std::shared_ptr<Context> context) : context_(std::move(context)) {
  cuda::require(driver(), driver().stream_create(&handle_, kStreamNonBlocking),
                context_->name() + ": a stream cannot be made");
}

Stream::~Stream() {
  if (!context_->opened_here()) return;
  try {
    const Current current(*context_);
    for (const Mark& mark : marks_)
      if (mark.event) driver().event_destroy(mark.event);
    driver().stream_destroy(handle_);
  } catch (const Error&) {  // the context is broken, and its stream with it
  }
}

void Stream::launched(const std::string& label, Result result) {
  require(label, result);
  const std::lock_guard lock(mutex_);
  ++number_;
  const auto known = std::ranges::find(under_way_, label, &Launched::label);
  if (known == under_way_.end())
    under_way_.push_back({label, number_});
  else
    known->number = number_;
}

void Stream::copied(std::string_view what, Result result) {
  require(what, result);
  const std::lock_guard lock(mutex_);
  ++number_;
}

void Stream::refuse(std::string_view what, Result result) {
  if (lasting(result)) {
    fail(what, result);
    throw_failure();
  }
  const std::string message = context_->name() + ": " + std::string(what) + ": ";
  if (result != Result::out_of_memory) throw Error(ErrorKind::device, message + text(driver(), result));
  size_t free = 0, total = 0;
  driver().memory_info(&free, &total);
  throw Error(ErrorKind::memory, message + "too little memory: " + std::to_string(free) + " of " +
                                     std::to_string(total) + " bytes are free on the GPU");
}

bool Stream::idle() {
  const std::lock_guard lock(mutex_);
  return done_ == number_;
}

void Stream::wait() {
  uint64_t number;
  {
    const std::lock_guard lock(mutex_);
    number = number_;
    if (done_ == number) return;
  }
  const Result result = driver().stream_wait(handle_);
  if (result != Result::success) fail("a copy", result);  // whatever it was, work did not end as it should
  ended(number);
}

uint64_t Stream::mark() {
  Result result = Result::success;
  uint64_t number;
  {
    const std::lock_guard lock(mutex_);
    number = last_mark_ + 1;
    Mark& mark = marks_[number % marks_.size()];
    if (!mark.event) result = driver().event_create(&mark.event, kEventDisableTiming);
    if (result == Result::success) result = driver().event_record(mark.event, handle_);
    if (result == Result::success) mark.number = number_, last_mark_ = number;
  }
  require("an event", result);
  return number;
}

void Stream::wait(uint64_t number) {
  Mark mark;
  {
    const std::lock_guard lock(mutex_);
    mark = marks_[number % marks_.size()];
    if (mark.number <= done_) return;
  }
  const Result result = driver().event_wait(mark.event);
  if (result != Result::success) fail("a copy", result);
  ended(mark.number);
}

void Stream::ended(uint64_t number) {
  const std::lock_guard lock(mutex_);
  done_ = std::max(done_, number);
  std::erase_if(under_way_, [&](const Launched& launched) { return launched.number <= done_; });
}

// The launches under way failed; without any, `otherwise` did.
void Stream::fail(std::string_view otherwise, Result result) {
  const std::string reason = text(driver(), result);
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;
  for (size_t i = 0; i < std::min(kMostLabels, under_way_.size()); ++i)
    failure_ += (i ? " or " : "") + under_way_[i].label;
  if (under_way_.size() > kMostLabels) failure_ += " or others";
  if (failure_.empty()) failure_ = otherwise;
  failure_ += ": " + reason;
}

void Stream::throw_failure() {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty())
    throw Error(ErrorKind::device, context_->name() + ": " + failure_ + "; the device must be opened again");
}

}  // namespace pyturbo::cuda
