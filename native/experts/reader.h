// Threads that bring records into memory.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace pyturbo::experts {

using Clock = std::chrono::steady_clock;

struct Record {
  uint32_t layer, expert;
  int32_t slot;
  uint8_t* memory;  // of the whole record
};

// Where records come from. Called by several threads at once.
class Source {
 public:
  virtual ~Source() = default;
  // Brings `bytes` of a record from byte `begin` on to record.memory + begin. Adds the system calls it made
  // to `calls`. Throws an Error; soon, when `stop` becomes true while it pauses.
  virtual void bring(const Record& record, uint64_t begin, uint64_t bytes, const std::atomic<bool>& stop,
                     uint64_t& calls) = 0;
  virtual bool direct() const { return false; }  // past the page cache
  virtual void require_unchanged() const {}      // throws Error{file} for a file that was changed
  virtual void close() {}                        // called when no thread uses it any more
};

// A record that was started and is no longer under way.
struct Ended {
  Record record;
  bool whole;  // all of it is in memory
  bool ahead;  // it was started ahead
  uint64_t calls;
  std::exception_ptr error;  // why it is not whole; null: it was cancelled
  double seconds = 0;        // its share of the reader's time, which parts under way have in equal shares
  Clock::time_point begin{}, end{};
};

// Brings records in parts, in the order they were started in, those started ahead after all others. Its
// threads start with the first record. Owner: a store, which ends it in the process that made it. Any thread;
// one lock, not held while a source works.
class Reader {
 public:
  Reader(std::unique_ptr<Source> source, unsigned threads, uint64_t record_bytes, uint64_t part_bytes);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const Source& source() const { return *source_; }

  // Throws Error{state} when it is closed.
  void start(const Record& record);
  // Starts a record whose parts are brought only while no others wait.
  void start_ahead(const Record& record);
  // Of the records that were started ahead, brings those that `wanted` names (by expert of the layer) as if
  // they had been started now, and cancels others that nobody has begun.
  void promote(uint32_t layer, const std::vector<bool>& wanted);
  // Waits until a record has ended, none is under way, or the reader is closed.
  void wait();
  // Returns whether no record is under way, and take() has returned all.
  bool idle();
  // Returns the records that ended since the last call.
  std::vector<Ended> take();
  // Cancels parts that have not begun, and returns when no record is under way.
  void cancel();
  // Cancels everything and ends the threads. Not from two threads at once.
  void close();

 private:
  struct Job {
    Ended state;
    uint64_t next = 0;   // first byte of the part that nobody has begun
    uint32_t parts = 0;  // under way
    bool cancelled = false;
  };

  void start(const Record& record, std::deque<Job*>& queue);
  void serve();
  // The following need the lock.
  void start_threads();
  void drop_waiting();
  void end_if_done(Job& job);
  void advance(Clock::time_point now);

  const std::unique_ptr<Source> source_;
  const unsigned threads_;
  const uint64_t record_bytes_, part_bytes_;
  std::atomic<bool> stop_{false};  // sources end their pauses

  std::mutex mutex_;  // guards the rest
  std::condition_variable work_, ended_;
  std::deque<std::unique_ptr<Job>> jobs_;  // not ended
  // Of these, the ones with a part that nobody has begun; those that were started ahead come last.
  std::deque<Job*> waiting_, waiting_ahead_;
  std::vector<Ended> done_;
  uint32_t busy_ = 0;  // parts under way
  // Seconds of a part that would always have been under way, up to now_: the difference between two moments
  // is the share of a part that was under way from one to the other.
  double shared_ = 0;
  Clock::time_point now_{};
  std::vector<std::thread> workers_;
  bool closed_ = false;
};

}  // namespace pyturbo::experts
