#include "queue.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "control.h"

namespace soft_metal {
namespace {

std::string text_or(const std::string& text, const char* otherwise) {
  return text.empty() ? otherwise : text;
}

// Threads of queues that were closed on themselves, until somebody else can join them. Never destroyed.
struct Retired {
  std::mutex mutex;
  std::vector<std::thread> threads;

  void add(std::thread thread) {
    const std::lock_guard lock(mutex);
    threads.push_back(std::move(thread));
  }
  void join() {
    std::vector<std::thread> mine;
    {
      const std::lock_guard lock(mutex);
      mine = std::exchange(threads, {});
    }
    for (std::thread& thread : mine) thread.join();
  }
};

Retired& retired() {
  static Retired& instance = *new Retired;
  return instance;
}

// The process does not end while one of them runs.
const struct JoinAtExit {
  ~JoinAtExit() { retired().join(); }
} join_at_exit;

void execute(CommandList& list) {
  if (const auto fault = take_fault(Fault::device_lost))
    list.fail(kDeviceRemoved, text_or(fault->text, "The device was removed"));
  if (const auto fault = take_fault(Fault::command_buffer))
    list.fail(kInternal, text_or(fault->text, "Internal Error (0000000e:Internal Error)"));
  const auto slow = take_fault(Fault::slow);
  list.execute(slow ? slow->milliseconds : 0);
}

}  // namespace

std::shared_ptr<Queue> Queue::start() {
  retired().join();
  auto queue = std::make_shared<Queue>();
  queue->thread_ = std::thread([queue] { queue->work(); });
  return queue;
}

bool Queue::make() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return unfinished_ < kMost || running_ == 0; });
  return ++unfinished_ <= kMost;
}

void Queue::enqueue(const std::shared_ptr<CommandList>& list) {
  const std::lock_guard lock(mutex_);
  lists_.push_back(list);
  list->enqueued();
}

void Queue::commit(const std::shared_ptr<CommandList>& list) {
  const std::lock_guard lock(mutex_);
  if (list->status() == CommandList::Status::not_enqueued) lists_.push_back(list);
  list->committed();
  ++running_;
  newest_ = list.get();
  changed_.notify_all();
}

bool Queue::drained_by(const CommandList* list) {
  const std::lock_guard lock(mutex_);
  if (newest_ != list) return false;
  newest_ = nullptr;
  return true;
}

void Queue::abandon(const CommandList* list) {
  const std::lock_guard lock(mutex_);
  --unfinished_;
  std::erase_if(lists_, [&](const auto& waiting) { return waiting.get() == list; });
  changed_.notify_all();
}

void Queue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  if (thread_.get_id() == std::this_thread::get_id())
    retired().add(std::move(thread_));
  else
    thread_.join();
}

void Queue::work() {
  for (;;) {
    std::shared_ptr<CommandList> list;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closed_ || (!lists_.empty() && lists_.front()->is_committed()); });
      if (lists_.empty() || !lists_.front()->is_committed()) return;
      list = std::move(lists_.front());
      lists_.pop_front();
    }
    execute(*list);
    const std::lock_guard lock(mutex_);
    --unfinished_;
    --running_;
    changed_.notify_all();
  }
}

}  // namespace soft_metal
