#include "experts/reader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "pyturbo/error.h"

namespace pyturbo::experts {

Reader::Reader(std::unique_ptr<Source> source, unsigned threads, uint64_t record_bytes, uint64_t part_bytes)
    : source_(std::move(source)),
      threads_(threads),
      record_bytes_(record_bytes),
      part_bytes_(part_bytes ? std::min(part_bytes, record_bytes) : record_bytes) {}

Reader::~Reader() { close(); }

void Reader::start(const Record& record) { start(record, waiting_); }

void Reader::start_ahead(const Record& record) { start(record, waiting_ahead_); }

void Reader::promote(uint32_t layer, const std::vector<bool>& wanted) {
  const std::lock_guard lock(mutex_);
  for (Job* job : std::exchange(waiting_ahead_, {})) {
    const Record& record = job->state.record;
    if (record.layer == layer && wanted[record.expert]) {
      waiting_.push_back(job);
    } else if (job->next > 0) {
      waiting_ahead_.push_back(job);
    } else {
      job->next = record_bytes_;
      job->cancelled = true;
      end_if_done(*job);
    }
  }
}

void Reader::start(const Record& record, std::deque<Job*>& queue) {
  const std::lock_guard lock(mutex_);
  if (closed_) throw Error(ErrorKind::state, "expert store: it is closed");
  start_threads();
  auto job = std::make_unique<Job>(Job{.state = {.record = record,
                                                 .whole = false,
                                                 .ahead = &queue == &waiting_ahead_,
                                                 .calls = 0,
                                                 .error = nullptr}});
  queue.push_back(job.get());
  try {
    jobs_.push_back(std::move(job));
  } catch (...) {
    queue.pop_back();
    throw;
  }
  const uint64_t parts = (record_bytes_ + part_bytes_ - 1) / part_bytes_;
  for (uint64_t i = 0; i < std::min<uint64_t>(parts, threads_); ++i) work_.notify_one();
}

void Reader::start_threads() {
  try {
    while (workers_.size() < threads_) workers_.emplace_back([this] { serve(); });
  } catch (const std::system_error& error) {
    // With one thread it works, only slower.
    if (workers_.empty())
      throw Error(ErrorKind::memory, std::string("expert store: no thread can be started: ") + error.what());
  }
}

void Reader::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return closed_ || !waiting_.empty() || !waiting_ahead_.empty(); });
    std::deque<Job*>& queue = waiting_.empty() ? waiting_ahead_ : waiting_;
    if (queue.empty()) return;
    Job& job = *queue.front();
    const uint64_t begin = job.next, end = std::min(begin + part_bytes_, record_bytes_);
    job.next = end;
    const Clock::time_point now = Clock::now();
    if (job.parts++ == 0 && begin == 0) job.state.begin = now;
    advance(now);
    ++busy_;
    const double shared = shared_;
    if (end == record_bytes_) queue.pop_front();
    lock.unlock();
    std::exception_ptr error;
    uint64_t calls = 0;
    try {
      source_->bring(job.state.record, begin, end - begin, stop_, calls);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    job.state.calls += calls;
    job.state.end = Clock::now();
    --job.parts;
    advance(job.state.end);
    --busy_;
    job.state.seconds += shared_ - shared;
    if (error && !job.state.error) {
      job.state.error = error;
      job.next = record_bytes_;
      std::erase(waiting_, &job);
      std::erase(waiting_ahead_, &job);
    }
    end_if_done(job);
  }
}

void Reader::end_if_done(Job& job) {
  if (job.parts > 0 || job.next < record_bytes_) return;
  job.state.whole = !job.state.error && !job.cancelled;
  done_.push_back(std::move(job.state));
  std::erase_if(jobs_, [&](const std::unique_ptr<Job>& known) { return known.get() == &job; });
  ended_.notify_all();
}

void Reader::drop_waiting() {
  for (std::deque<Job*>* queue : {&waiting_, &waiting_ahead_})
    for (Job* job : std::exchange(*queue, {})) {
      job->next = record_bytes_;
      job->cancelled = true;
      end_if_done(*job);
    }
}

void Reader::wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return closed_ || !done_.empty() || jobs_.empty(); });
}

bool Reader::idle() {
  const std::lock_guard lock(mutex_);
  return jobs_.empty() && done_.empty();
}

std::vector<Ended> Reader::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

// Called before the number of parts under way changes.
void Reader::advance(Clock::time_point now) {
  if (busy_ > 0) shared_ += std::chrono::duration<double>(now - now_).count() / busy_;
  now_ = now;
}

void Reader::cancel() {
  std::unique_lock lock(mutex_);
  stop_.store(true);
  drop_waiting();
  ended_.wait(lock, [&] { return jobs_.empty(); });
  if (!closed_) stop_.store(false);
}

void Reader::close() {
  std::vector<std::thread> workers;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    stop_.store(true);
    drop_waiting();
    workers = std::exchange(workers_, {});
  }
  work_.notify_all();
  ended_.notify_all();
  for (std::thread& worker : workers) worker.join();
  source_->close();
}

}  // namespace pyturbo::experts
