#include "core/bus_error.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>

#include "pyturbo/mapped_file.h"
#include "pyturbo/process.h"

namespace pyturbo {
namespace {

// The handlers that ours replaced: when it was first installed, and when it was last reinstalled.
struct sigaction first, latest;
constinit std::atomic<bool> taken_twice{false};
constinit std::atomic<uint32_t> passed_on{0};   // signals that other handlers have not handled yet
constinit std::atomic<uint32_t> installing{0};  // 1 + fork_count() while a thread of this process installs

void on_bus_error(int signal, siginfo_t* info, void* context);

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == on_bus_error;
}

// Returns whether a process sent the signal, as opposed to a memory access causing it.
bool was_sent(const siginfo_t* info) { return info->si_code <= 0; }

void end_by(int signal, const siginfo_t* info) {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  if (was_sent(info)) ::raise(signal);  // otherwise the access is retried and ends the process
}

void call(const struct sigaction& action, int signal, siginfo_t* info, void* context) {
  const bool plain = !(action.sa_flags & SA_SIGINFO);
  if (plain && action.sa_handler == SIG_IGN && was_sent(info)) return;
  if (plain && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) return end_by(signal, info);
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &action.sa_mask, &before);
  if (plain)
    action.sa_handler(signal);
  else
    action.sa_sigaction(signal, info, context);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// A handler that gives up, such as Python's faulthandler, raises the signal again; the next handler gets it
// then.
void pass_on(int signal, siginfo_t* info, void* context) {
  const uint32_t turn = passed_on.fetch_add(1);
  if (turn == 0)
    call(taken_twice.load() ? latest : first, signal, info, context);
  else if (turn == 1 && taken_twice.load())
    call(first, signal, info, context);
  else
    end_by(signal, info);
  sigset_t waiting;
  if (::sigpending(&waiting) == 0 && !::sigismember(&waiting, signal)) passed_on.fetch_sub(1);
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  if (was_sent(info) || !fill_lost_pages(info->si_addr)) pass_on(signal, info, context);
  errno = error;
}

}  // namespace

void watch_bus_errors() {
  struct sigaction now;
  if (::sigaction(SIGBUS, nullptr, &now) != 0 || is_ours(now)) return;
  uint32_t busy = installing.load();
  const uint32_t mine = 1 + fork_count();
  if (busy == mine || !installing.compare_exchange_strong(busy, mine)) return;
  static constinit bool taken = false;
  (taken ? latest : first) = now;
  taken_twice.store(taken);
  taken = true;
  struct sigaction ours = {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGBUS, &ours, nullptr);
  installing.store(0);
}

}  // namespace pyturbo
