#include "simt/threadgroup.h"

#include <bit>
#include <cstring>

#include "pyturbo/error.h"

namespace pyturbo::simt {
namespace {

uint32_t lane_mask(uint32_t lanes) { return lanes >= kSimdWidth ? ~0u : (1u << lanes) - 1; }

// Copies the common sizes by single moves.
inline void copy_value(std::byte* to, const void* from, uint32_t size) {
  switch (size) {
    case 2:
      std::memcpy(to, from, 2);
      break;
    case 4:
      std::memcpy(to, from, 4);
      break;
    case 8:
      std::memcpy(to, from, 8);
      break;
    case 16:
      std::memcpy(to, from, 16);
      break;
    case 24:
      std::memcpy(to, from, 24);
      break;
    default:
      std::memcpy(to, from, size);
  }
}

}  // namespace

void Threadgroup::prepare(const Launch& launch, const Extent& group) {
  launch_ = &launch;
  group_ = group;
  threads_ = live_ = uint32_t(launch.dispatch.threads.count());
  arrived_ = 0;
  error_[0] = 0;
  const uint32_t simdgroups = (threads_ + kSimdWidth - 1) / kSimdWidth;
  for (uint32_t i = 0; i < simdgroups; ++i) {
    Simdgroup& s = simdgroups_[i];
    s.all = s.live = s.unstarted = lane_mask(threads_ - i * kSimdWidth);
    s.ready = s.at_simd = s.at_barrier = 0;
    s.turn = 0;
    if (launch.observer) {
      std::memset(s.sites, 0, sizeof(s.sites));
      std::memset(s.statements, 0, sizeof(s.statements));
    }
  }
  pending_ = lane_mask(simdgroups);
  simd_ = simdgroups_;
  variables_placed_ = 0;
  memory_used_ = 0;
  if (launch.observer) launch.observer->begin_group(*this);
  place_arguments();
}

void Threadgroup::run(const Launch& launch, const Extent& group) {
  prepare(launch, group);
  if (!error_[0]) {
    current_threadgroup = this;
    if (Fiber* fiber = stacks_.take()) {
      fiber_start(main_, *fiber, &Threadgroup::work_entry, fiber);
    } else {
      set_error(": expected memory for stacks, got none");
    }
    current_threadgroup = nullptr;
  }
  if (error_[0]) [[unlikely]] {
    stacks_.abandon_all();
    throw Error(ErrorKind::device, error_);
  }
}

void Threadgroup::work_entry(void* fiber) {
  fiber_entered();
  current_threadgroup->work(static_cast<Fiber*>(fiber));
}

void Threadgroup::work(Fiber* fiber) {
  for (;;) {
    Simdgroup& s = *simd_;
    lane_ = uint32_t(std::countr_zero(s.unstarted));
    s.unstarted &= s.unstarted - 1;
    s.context[lane_].bind(*fiber);
    const Position where = position(thread());
    launch_->info.body(launch_->arguments, where);
    s.live &= ~(1u << lane_);
    --live_;
    if (s.unstarted) continue;
    const Next next = schedule();
    if (next == Next::start) continue;
    stacks_.give(fiber);
    fiber_exit(next == Next::resume ? simd_->context[lane_] : main_);
  }
}

Position Threadgroup::position(uint32_t index) const {
  const Extent& threads = launch_->dispatch.threads;
  Position where{{index, 0, 0}, group_, threads, launch_->dispatch.groups, index};
  if (threads.x != threads_) {
    where.thread = {index % threads.x, index / threads.x % threads.y, index / (threads.x * threads.y)};
  }
  return where;
}

// Chooses what runs after the current thread has stopped: simd_ and lane_ become the thread to resume, or
// simd_ a simdgroup with unstarted lanes.
inline Threadgroup::Next Threadgroup::schedule() {
  for (;;) {
    Simdgroup& s = *simd_;
    if (s.ready) {
      const uint32_t above = s.ready & ~1u << lane_;
      lane_ = uint32_t(std::countr_zero(above ? above : s.ready));
      s.ready &= ~(1u << lane_);
      return Next::resume;
    }
    if (s.unstarted) return Next::start;
    if (s.at_simd) {
      release_simd(s);
      continue;
    }
    pending_ &= ~(1u << simd_index());
    if (pending_) {
      simd_ = &simdgroups_[std::countr_zero(pending_)];
    } else {
      if (live_) barrier_unreached();
      return Next::leave;
    }
  }
}

// Suspends the running thread, which is in at_simd or at_barrier, until it is released.
void Threadgroup::block() {
  Context& self = simd_->context[lane_];
  switch (schedule()) {
    case Next::resume:
      if (Context& other = simd_->context[lane_]; &other != &self) fiber_switch(self, other);
      return;
    case Next::start:
      if (Fiber* fiber = stacks_.take()) {
        fiber_start(self, *fiber, &Threadgroup::work_entry, fiber);
        return;
      }
      set_error(": expected memory for stacks, got none");
      [[fallthrough]];
    case Next::leave:
      fiber_switch(self, main_);
  }
}

inline void Threadgroup::wait_simd(uint32_t memory, uint32_t site) {
  Simdgroup& s = *simd_;
  if (s.at_simd == 0) {
    s.site = site;
    s.divergent = false;
  } else {
    s.divergent |= s.site != site;
  }
  s.at_simd |= 1u << lane_;
  s.sites[lane_] = site;
  s.memory[lane_] = uint8_t(memory);
  if (s.at_simd == s.live && !s.divergent) {
    release_simd(s);
    s.ready &= ~(1u << lane_);  // this lane continues at once
  } else {
    block();
  }
}

// Makes the lanes that wait at one site ready together. No lane of the simdgroup is running or ready.
void Threadgroup::release_simd(Simdgroup& s) {
  if (s.divergent) [[unlikely]]
    return release_divergent(s);
  Exchange& e = s.exchanges[s.turn];
  e.active = s.at_simd;
  e.reduced = false;
  s.turn ^= 1;
  s.ready = s.at_simd;
  s.at_simd = 0;
  if (launch_->observer) [[unlikely]]
    launch_->observer->simdgroup_release(uint32_t(&s - simdgroups_), s);
}

// Releases the first site in source order, so that lanes inside a branch or loop catch up with those after
// it.
void Threadgroup::release_divergent(Simdgroup& s) {
  uint32_t site = ~0u, set = 0;
  for (uint32_t m = s.at_simd; m; m &= m - 1) {
    const uint32_t lane = uint32_t(std::countr_zero(m));
    if (s.sites[lane] < site) {
      site = s.sites[lane];
      set = 0;
    }
    if (s.sites[lane] == site) set |= 1u << lane;
  }
  const uint32_t rest = s.at_simd & ~set;
  const Exchange& filled = s.exchanges[s.turn];
  Exchange& next = s.exchanges[s.turn ^ 1];
  for (uint32_t m = rest; m; m &= m - 1) {
    const uint32_t lane = uint32_t(std::countr_zero(m));
    std::memcpy(next.values[lane], filled.values[lane], kExchangeBytes);
  }
  s.at_simd = set;
  s.divergent = false;
  release_simd(s);
  s.at_simd = rest;
  for (uint32_t m = rest; m; m &= m - 1) {
    const uint32_t lane = uint32_t(std::countr_zero(m));
    if (m == rest) s.site = s.sites[lane];
    s.divergent |= s.sites[lane] != s.site;
  }
}

Exchange& Threadgroup::exchange(const void* value, uint32_t size, uint32_t site) {
  Exchange& e = simd_->exchanges[simd_->turn];
  copy_value(e.values[lane_], value, size);
  const Simdgroup& s = *simd_;
  wait_simd(kMemNone, site);
  return const_cast<Exchange&>(s.exchanges[s.turn ^ 1]);
}

void Threadgroup::simdgroup_barrier(uint32_t memory, uint32_t site) { wait_simd(memory, site); }

void Threadgroup::threadgroup_barrier(uint32_t memory, uint32_t site) {
  Simdgroup& s = *simd_;
  if (arrived_ == 0) {
    barrier_site_ = site;
    barrier_memory_ = memory;
  } else if (site != barrier_site_ && launch_->observer) {
    barrier_sites_differ(site);
  }
  barrier_memory_ &= memory;
  s.sites[lane_] = site;
  s.at_barrier |= 1u << lane_;
  if (++arrived_ == threads_) {
    release_barrier();
    s.ready &= ~(1u << lane_);  // this lane continues at once
  } else {
    block();
  }
}

void Threadgroup::release_barrier() {
  const uint32_t simdgroups = (threads_ + kSimdWidth - 1) / kSimdWidth;
  for (uint32_t i = 0; i < simdgroups; ++i) {
    simdgroups_[i].ready = simdgroups_[i].at_barrier;
    simdgroups_[i].at_barrier = 0;
  }
  pending_ = lane_mask(simdgroups);
  arrived_ = 0;
  if (launch_->observer) [[unlikely]]
    launch_->observer->threadgroup_release(barrier_memory_);
}

void Threadgroup::barrier_unreached() {
  for (uint32_t index = 0; index < threads_; ++index) {
    if (simdgroups_[index / kSimdWidth].live >> index % kSimdWidth & 1) continue;
    return set_error(": barrier at line %u not reached by thread %u", barrier_site_, index);
  }
}

void Threadgroup::barrier_sites_differ(uint32_t site) {
  fail(": threads wait at different barriers: thread %u at line %u, others at line %u", thread(), site,
       barrier_site_);
}

}  // namespace pyturbo::simt
