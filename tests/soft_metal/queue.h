// Runs the command buffers of one command queue in order, on a thread of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "command_list.h"

namespace soft_metal {

// Owner: the API's queue and its thread, which ends when the queue is closed and has nothing left to run. The
// last reference to the API's queue may be dropped on that thread.
class Queue {
 public:
  static std::shared_ptr<Queue> start();

  // Command buffers of a queue that have not finished, as many as Metal makes by default.
  static constexpr uint32_t kMost = 64;

  // Counts a new command buffer, and waits until there is room for it. Returns false where it would wait for
  // ever, because nothing is committed.
  bool make();

  // Gives `list` its place; it runs once it is committed and all before it have run.
  void enqueue(const std::shared_ptr<CommandList>& list);
  void commit(const std::shared_ptr<CommandList>& list);  // enqueues it where that has not been done

  // Whether nothing was committed after `list`, which nobody has asked before.
  bool drained_by(const CommandList* list);

  // A list that never gets committed is counted no more, and loses its place.
  void abandon(const CommandList* list);

  // Once, by the API's queue: waits until all that was committed has run, unless it is on the queue's thread,
  // which is then joined later.
  void close();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<CommandList>> lists_;
  const CommandList* newest_ = nullptr;    // of those committed; null once somebody waits for it
  uint32_t unfinished_ = 0, running_ = 0;  // of all that were made, and of those committed
  bool closed_ = false;
  std::thread thread_;  // ended by close()
};

}  // namespace soft_metal
