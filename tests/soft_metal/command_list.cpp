#include "command_list.h"

#include <chrono>
#include <thread>

#include "control.h"
#include "hazards.h"
#include "launch.h"

namespace soft_metal {
namespace {

void sample(const std::shared_ptr<Samples>& samples, uint64_t index) {
  if (samples && index < samples->timestamps.size()) samples->timestamps[index] = gpu_ticks();
}

// Executes the commands of one list in order.
class Execution {
 public:
  Execution(const std::string& label, const Options& options) : label_(label), options_(options) {}

  void operator()(const PassBegin& pass) {
    hazards_ = Hazards(pass.concurrent);
    sample(pass.samples, pass.sample);
  }
  void operator()(const Launch& launch) { execute_launch(launch, label_, options_, hazards_); }
  void operator()(const Barrier& barrier) {
    if (barrier.all)
      hazards_.barrier();
    else
      hazards_.barrier(barrier.memories);
  }
  void operator()(const PassEnd& pass) {
    sample(pass.samples, pass.sample);
    hazards_.finish();
    count([&](Counters& counters) {
      ++counters.encoders;
      counters.barriers += hazards_.barriers();
      counters.needless_barriers += hazards_.needless_barriers();
    });
  }
  void operator()(const Signal& signal) { signal.event->signal(signal.value); }
  void operator()(const Wait& wait) {
    if (!wait.event->wait(wait.value, options_.event_timeout_ms))
      throw Failure{kTimeout, "Caused GPU Timeout Error: the event did not reach " +
                                  std::to_string(wait.value) + " within " +
                                  std::to_string(options_.event_timeout_ms) + " ms"};
  }

 private:
  const std::string& label_;
  const Options& options_;
  Hazards hazards_{false};
};

}  // namespace

void CommandList::fail(long code, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = Failure{code, text};
}

void CommandList::fail(const std::string& text) { fail(kInvalidResource, text); }

CommandList::Status CommandList::status() const {
  const std::lock_guard lock(mutex_);
  return status_ == Status::completed && failure_ ? Status::failed : status_;
}

std::optional<Failure> CommandList::failure() const {
  const std::lock_guard lock(mutex_);
  return status_ == Status::completed ? failure_ : std::nullopt;
}

double CommandList::start_time() const {
  const std::lock_guard lock(mutex_);
  return double(start_) * 1e-9;
}

double CommandList::end_time() const {
  const std::lock_guard lock(mutex_);
  return double(end_) * 1e-9;
}

void CommandList::set_status(Status status) {
  const std::lock_guard lock(mutex_);
  status_ = status;
  changed_.notify_all();
}

void CommandList::enqueued() { set_status(Status::enqueued); }
void CommandList::committed() { set_status(Status::committed); }

void CommandList::wait_scheduled() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return status_ >= Status::scheduled; });
}

void CommandList::wait_completed() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return status_ >= Status::completed; });
}

void CommandList::execute(uint32_t delay) {
  set_status(Status::scheduled);
  const uint64_t start = now();
  std::this_thread::sleep_for(std::chrono::milliseconds(delay));
  run();
  const uint64_t end = now();
  if (drop_references) drop_references();
  const std::lock_guard lock(mutex_);
  start_ = start;
  end_ = end;
  status_ = Status::completed;
  changed_.notify_all();
}

void CommandList::run() {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
  }
  const Options options = soft_metal::options();
  Execution execution(label, options);
  try {
    for (const Command& command : commands_) std::visit(execution, command);
  } catch (const Failure& failure) {
    fail(failure.code, failure.text);
  }
}

}  // namespace soft_metal
