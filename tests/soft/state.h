// What soft Metal and soft CUDA keep for tests: what was done wrong, what shall fail, what happened, and
// which objects are alive.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

template <typename Rule>
struct SoftViolation {
  Rule rule;
  bool warning;      // the call went on as if nothing had happened
  std::string text;  // rule, object and values
};

template <typename Fault>
struct SoftInjection {
  Fault fault;
  uint32_t after = 0;         // this many calls succeed before
  uint32_t times = 1;         // then this many fail; a lost device stays lost
  std::string text = "";      // of the error; empty: one of the vendor's
  uint32_t milliseconds = 0;  // of slow calls
};

// Owner: the process, which never destroys it, since threads and objects may outlive the destructors of a
// library. Any thread; one lock.
template <typename Rule, typename Fault, typename Options, typename Counters>
class SoftState {
 public:
  using Violation = SoftViolation<Rule>;
  using Injection = SoftInjection<Fault>;

  void set_options(const Options& options) {
    const std::lock_guard lock(mutex_);
    options_ = options;
  }

  Options options() {
    const std::lock_guard lock(mutex_);
    return options_;
  }

  void inject(const Injection& injection) {
    const std::lock_guard lock(mutex_);
    injections_.push_back(injection);
  }

  // Counts a call that `fault` could make fail. Returns the injection if this one must.
  std::optional<Injection> take_fault(Fault fault) {
    const std::lock_guard lock(mutex_);
    for (Injection& injection : injections_) {
      if (injection.fault != fault || injection.times == 0) continue;
      if (injection.after > 0) {
        --injection.after;
        continue;
      }
      if (fault != Fault::device_lost) --injection.times;
      return injection;
    }
    return std::nullopt;
  }

  void violate(const Violation& violation) {
    const std::lock_guard lock(mutex_);
    violations_.push_back(violation);
  }

  std::vector<Violation> violations() {
    const std::lock_guard lock(mutex_);
    return violations_;
  }

  // Calls `change` with the counters.
  template <typename Change>
  void count(const Change& change) {
    const std::lock_guard lock(mutex_);
    change(counters_);
  }

  Counters counters() {
    const std::lock_guard lock(mutex_);
    return counters_;
  }

  void object_created(const std::string& name) {
    const std::lock_guard lock(mutex_);
    ++live_[name];
  }

  void object_gone(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (const auto found = live_.find(name); found != live_.end() && --found->second == 0) live_.erase(found);
  }

  std::map<std::string, int> live_objects() {
    const std::lock_guard lock(mutex_);
    return live_;
  }

  // Restores options, violations, injections and counters of a new process. Objects live on.
  void reset() {
    const std::lock_guard lock(mutex_);
    options_ = {};
    violations_.clear();
    injections_.clear();
    counters_ = {};
  }

 private:
  std::mutex mutex_;  // guards the members below
  Options options_;
  std::vector<Violation> violations_;
  std::vector<Injection> injections_;
  Counters counters_;
  std::map<std::string, int> live_;
};
