#include "experts/store.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "pyturbo/error.h"

namespace pyturbo::experts {

// Owner: programs and the Python HostLoop. Keeps the store, and the tables that *missing() is in.
class Store::Loop final : public HostLoop {
 public:
  Loop(std::shared_ptr<Store> store, uint32_t layer, int32_t layer_ahead)
      : store_(std::move(store)),
        layer_(layer),
        layer_ahead_(layer_ahead),
        missing_(store_->rows_[layer].missing()) {}

  Claim& claim() override { return store_->claim_; }
  const uint32_t* missing() const override { return missing_; }
  bool needed() const override {
    return *missing_ != 0 || (layer_ahead_ >= 0 && store_->rows_[size_t(layer_ahead_)].has_guesses());
  }
  void begin() override { number_ = store_->begin(layer_, layer_ahead_); }
  bool next() override { return store_->next(layer_, number_); }
  void finish() override { store_->finish(layer_); }
  void cancel() override { store_->cancel(layer_, std::exchange(number_, 0)); }

 private:
  const std::shared_ptr<Store> store_;
  const uint32_t layer_;
  const int32_t layer_ahead_;
  const uint32_t* const missing_;
  uint64_t number_ = 0;  // of the loop that it began last
};

Store::Store(const std::vector<uint32_t>& experts, const ExpertTables& tables,
             const ExpertStoreOptions& options, std::unique_ptr<Source> source, const MakePlaces& make_places)
    : tables_(tables),
      stride_(options.stride),
      pass_experts_(options.pass_experts),
      reader_(std::move(source), options.threads, options.stride, options.split),
      counters_(experts.size()) {
  for (uint32_t layer = 0; layer < experts.size(); ++layer) {
    rows_.emplace_back(tables, layer, experts[layer]);
    scores_.emplace_back(experts[layer], options.half_life, options.top_k);
    slots_ahead_.emplace_back(experts[layer], Places::kNone);
    guessed_.emplace_back(experts[layer]);
  }
  places_ = make_places(rows_, scores_);
}

Store::~Store() { close(); }

std::shared_ptr<HostLoop> Store::loop(uint32_t layer, int32_t ahead) {
  for (const int64_t asked : {int64_t(layer), int64_t(ahead)})
    if (asked >= int64_t(layers()))
      throw Error(ErrorKind::argument, "expert store: expected a layer below " + std::to_string(layers()) +
                                           ", got " + std::to_string(asked));
  if (ahead == int64_t(layer))
    throw Error(ErrorKind::argument, "expert store: expected another layer ahead, got the same one");
  return std::make_shared<Loop>(shared_from_this(), layer, ahead);
}

void Store::require_usable() const {
  if (!opened_here())
    throw Error(
        ErrorKind::state,
        "expert store: it was made before fork(): load the model in the child process, or start that with "
        "the 'spawn' method");
}

void Store::require_open() const {
  if (!places_) throw Error(ErrorKind::state, "expert store: it is closed");
}

std::vector<ExpertCounters> Store::counters() const {
  require_usable();
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Store::reset_counters() {
  require_usable();
  const std::lock_guard lock(mutex_);
  counters_.assign(counters_.size(), {});
}

std::vector<ExpertRead> Store::trace(bool on) {
  require_usable();
  const std::lock_guard lock(mutex_);
  traces_ = on;
  return std::exchange(traced_, {});
}

void Store::note(const Ended& ended) {
  using Seconds = std::chrono::duration<double>;
  if (traces_)
    traced_.push_back({ended.record.layer, ended.record.expert, ended.ahead,
                       Seconds(ended.begin.time_since_epoch()).count(),
                       Seconds(ended.end.time_since_epoch()).count()});
}

bool Store::direct() const {
  require_usable();
  const std::lock_guard lock(mutex_);
  require_open();
  return reader_.source().direct();
}

bool Store::closed() const {
  if (!opened_here()) return true;
  const std::lock_guard lock(mutex_);
  return !places_;
}

void Store::resize(uint32_t slots, uint32_t staging) {
  require_usable();
  const std::lock_guard lock(mutex_);
  require_open();
  if (!claim_.take(this)) throw Error(ErrorKind::state, "expert store: expected no replay under way");
  struct Release {
    Store* store;
    ~Release() { store->claim_.release(store); }
  } const release{this};
  if (places_->is_sized(slots, staging)) return;
  abandon();
  places_->resize(slots, staging);
}

uint32_t Store::slots() const {
  require_usable();
  const std::lock_guard lock(mutex_);
  return places_ ? places_->slots() : 0;
}

uint32_t Store::filled() const {
  require_usable();
  const std::lock_guard lock(mutex_);
  return places_ ? places_->filled() : 0;
}

void Store::require_unchanged() const {
  require_usable();
  const std::lock_guard lock(mutex_);
  if (places_) reader_.source().require_unchanged();
}

void Store::close() {
  if (!opened_here()) return;
  std::call_once(closing_, [&] {
    std::unique_ptr<Places> places;  // whose memory threads write to until the reader is closed
    {
      const std::lock_guard lock(mutex_);
      layer_ = kNoLayer;
      ++loops_;
      waiting_.clear();
      arrived_.clear();
      early_.clear();
      pass_.clear();
      places = std::move(places_);
    }
    reader_.close();
  });
}

uint64_t Store::begin(uint32_t layer, int32_t ahead) {
  require_usable();
  const std::lock_guard lock(mutex_);
  require_open();
  if (layer_ != kNoLayer)
    throw Error(ErrorKind::state, "expert store: expected one replay at a time, got layer " +
                                      std::to_string(layer) + " while layer " + std::to_string(layer_) +
                                      " is under way");
  release_pass();
  LayerRows& rows = rows_[layer];
  std::vector<bool> wanted(rows.experts());
  // Until the loop is under way, nothing may fail that would leave slots held.
  pass_.reserve(rows.experts());
  arrived_.reserve(rows.experts());
  waiting_.reserve(rows.experts());
  std::exception_ptr ignored;
  settle(ignored);
  const std::vector<uint32_t>& uses = rows.take_uses();
  scores_[layer].add(uses);
  release_early(layer, &uses);
  uint32_t coming = 0;
  bool lost = false;  // an expert that the launches found, but whose slot was given away since
  for (uint32_t e = 0; e < rows.experts(); ++e) {
    if (uses[e] == 0) continue;
    const int32_t slot = rows.slot(e);
    if (slot >= 0) places_->hold(slot);
    if (rows.found(e)) {
      if (slot >= 0) pass_.push_back(slot);
      lost = lost || slot < 0;
    } else if (slot >= 0) {
      arrived_.push_back({e, slot});
    } else if (slots_ahead_[layer][e] != Places::kNone) {
      slots_ahead_[layer][e] = Places::kNone;
      wanted[e] = true;
      ++coming;
    } else {
      waiting_.push_back(e);
      guessed_[layer][e] = false;
    }
    count_guess(layer, e);
  }
  const size_t counted = arrived_.size() + coming + waiting_.size(), needed = pass_.size() + counted;
  under_way_ = coming;
  layer_ = layer;
  // A chunk of tokens that needs most experts of a layer will need most of the next one's.
  next_layer_ = ahead >= 0 && 4 * needed >= 3 * size_t(rows.experts()) ? ahead : kNoLayer;
  ++loops_;
  const uint32_t missing = *rows.missing();
  if (lost) {
    abandon();
    throw Error(ErrorKind::state, "expert store: layer " + std::to_string(layer) +
                                      ": expected its find_slots after the loop of the layer before");
  }
  if (counted < missing) {
    abandon();
    throw Error(ErrorKind::state, "expert store: layer " + std::to_string(layer) + ": expected choices of " +
                                      std::to_string(missing) + " missing experts in its counts, got " +
                                      std::to_string(counted));
  }
  ExpertCounters& counters = counters_[layer];
  counters.requests += needed;
  counters.hits += pass_.size();
  counters.misses += counted;
  try {
    reader_.promote(layer, wanted);
    start_reads();
    if (ahead >= 0) start_guesses(uint32_t(ahead));
    start_next_layer();
  } catch (...) {
    abandon();
    throw;
  }
  return loops_;
}

void Store::start_reads() {
  const uint32_t layer = uint32_t(layer_);
  std::erase_if(waiting_, [&](uint32_t expert) {
    const int32_t slot = places_->take(layer, expert);
    if (slot == Places::kNone) return false;
    try {
      reader_.start({layer, expert, slot, places_->memory(layer, slot)});
    } catch (...) {
      places_->drop(slot);
      throw;
    }
    ++under_way_;
    return true;
  });
}

void Store::start_guesses(uint32_t layer) {
  for (const uint32_t expert : rows_[layer].take_guesses()) start_ahead(layer, expert, Places::Hope::perhaps);
}

void Store::start_next_layer() {
  if (next_layer_ == kNoLayer || !waiting_.empty()) return;
  const uint32_t layer = uint32_t(next_layer_);
  const std::vector<int32_t>& coming = slots_ahead_[layer];
  size_t held = early_.size() + coming.size() - size_t(std::ranges::count(coming, Places::kNone));
  for (uint32_t e = 0; e < coming.size() && held < places_->most_ahead(); ++e) {
    if (rows_[layer].slot(e) >= 0 || coming[e] != Places::kNone) continue;
    if (!start_ahead(layer, e, Places::Hope::surely)) return;
    ++held;
  }
}

bool Store::start_ahead(uint32_t layer, uint32_t expert, Places::Hope hope) {
  if (rows_[layer].slot(expert) >= 0 || slots_ahead_[layer][expert] != Places::kNone) return true;
  const int32_t slot = places_->take_ahead(layer, expert, hope);
  if (slot == Places::kNone) return false;
  try {
    reader_.start_ahead({layer, expert, slot, places_->memory(layer, slot)});
  } catch (...) {
    places_->drop(slot);
    throw;
  }
  slots_ahead_[layer][expert] = slot;
  guessed_[layer][expert] = true;
  return true;
}

void Store::count_guess(uint32_t layer, uint32_t expert) {
  if (guessed_[layer][expert]) ++counters_[layer].guessed;
  guessed_[layer][expert] = false;
}

bool Store::next(uint32_t layer, uint64_t number) {
  require_usable();
  std::unique_lock lock(mutex_);
  require_open();
  if (number != loops_) throw Error(ErrorKind::state, "expert store: the loop was cancelled");
  if (layer_ != layer) return false;  // the last pass was announced
  std::exception_ptr error;
  try {
    release_pass();
    start_reads();
    start_next_layer();
  } catch (...) {
    error = std::current_exception();
  }
  LayerRows& rows = rows_[layer];
  rows.clear_pass();
  for (const auto& [expert, slot] : std::exchange(arrived_, {})) add_to_pass(expert, slot);
  while (!error && pass_.size() < pass_experts_ && (under_way_ > 0 || (pass_.empty() && !waiting_.empty()))) {
    if (under_way_ == 0 && !make_room(error)) break;
    const uint64_t loop = loops_;
    const Clock::time_point begun = Clock::now();
    lock.unlock();
    reader_.wait();
    lock.lock();
    counters_[layer].wait_seconds += std::chrono::duration<double>(Clock::now() - begun).count();
    require_open();
    if (loop != loops_) throw Error(ErrorKind::state, "expert store: the loop was cancelled");
    const bool idle = reader_.idle();
    settle(error);
    if (idle && under_way_ > 0 && !error)
      error = std::make_exception_ptr(Error(ErrorKind::state, "expert store: a record was never read"));
  }
  if (error) {
    abandon();
    std::rethrow_exception(error);
  }
  if (under_way_ == 0 && waiting_.empty()) {
    layer_ = kNoLayer;
    *rows.missing() = 0;
  }
  return !pass_.empty();
}

// Slots of the pass before are free by now, so it is reads ahead that hold all others. Those that are
// complete give theirs up. Returns whether there is something to wait for.
bool Store::make_room(std::exception_ptr& error) {
  try {
    release_early(kNoLayer, nullptr);
    start_reads();
    if (under_way_ == 0 && reader_.idle())
      throw Error(ErrorKind::state, "expert store: expected a free slot, got none");
  } catch (...) {
    error = std::current_exception();
  }
  return !error;
}

void Store::settle(std::exception_ptr& error) {
  for (const Ended& ended : reader_.take()) settle(ended, error);
}

void Store::settle(const Ended& ended, std::exception_ptr& error) {
  const Record& record = ended.record;
  // What fails ahead of its loop is read again by it, if it is needed.
  const bool early = std::exchange(slots_ahead_[record.layer][record.expert], Places::kNone) != Places::kNone;
  if (!early) --under_way_;
  counters_[record.layer].reads += ended.calls;
  counters_[record.layer].read_seconds += ended.seconds;
  if (!ended.whole) {
    if (early) guessed_[record.layer][record.expert] = false;
    if (!early && !error) error = ended.error;
    places_->drop(record.slot);
    return;
  }
  counters_[record.layer].bytes += stride_;
  note(ended);
  const bool stays = places_->keep(record.slot);
  if (stays || early) rows_[record.layer].set_slot(record.expert, record.slot);
  if (early)
    early_.push_back(record);
  else
    add_to_pass(record.expert, record.slot);
}

void Store::release_early(int64_t layer, const std::vector<uint32_t>* uses) {
  std::erase_if(early_, [&](const Record& record) {
    if (layer != kNoLayer && record.layer != layer) return false;
    if (!uses || (*uses)[record.expert] == 0) {
      places_->release(record.slot);
      guessed_[record.layer][record.expert] = false;
    }
    return true;
  });
}

void Store::add_to_pass(uint32_t expert, int32_t slot) {
  rows_[size_t(layer_)].add_to_pass(expert, slot);
  pass_.push_back(slot);
}

void Store::release_pass() {
  for (const int32_t slot : std::exchange(pass_, {})) places_->release(slot);
}

// Leaves no read under way. Records that are complete stay if they have a place in the cache.
void Store::abandon() {
  reader_.cancel();
  std::exception_ptr ignored;
  settle(ignored);
  for (const ExpertSlot& found : std::exchange(arrived_, {})) places_->release(found.slot);
  release_early(kNoLayer, nullptr);
  release_pass();
  waiting_.clear();
  layer_ = kNoLayer;
  ++loops_;
}

void Store::finish(uint32_t layer) {
  if (!opened_here()) return;
  const std::lock_guard lock(mutex_);
  if (!places_) return;
  if (layer_ == kNoLayer) release_pass();
  // A loop that had to begin has taken its uses there.
  const std::vector<uint32_t>& uses = rows_[layer].take_uses();
  scores_[layer].add(uses);
  uint64_t chosen = 0;
  for (uint32_t e = 0; e < uses.size(); ++e) {
    if (uses[e] == 0) continue;
    ++chosen;
    count_guess(layer, e);
    if (rows_[layer].slot(e) >= 0) places_->used(rows_[layer].slot(e));
  }
  release_early(layer, nullptr);
  rows_[layer].take_guesses();  // of a replay that is over
  counters_[layer].requests += chosen;
  counters_[layer].hits += chosen;
}

void Store::cancel(uint32_t layer, uint64_t number) {
  if (!opened_here()) return;
  const std::lock_guard lock(mutex_);
  if (!places_) return;
  if (layer_ == layer && number == loops_)
    abandon();
  else if (layer_ == kNoLayer)
    release_pass();
  rows_[layer].take_uses();
  rows_[layer].take_guesses();
}

namespace {

void require(bool holds, const std::string& what, const std::string& got) {
  if (!holds) throw Error(ErrorKind::argument, "expert store: expected " + what + ", got " + got);
}

}  // namespace

void check_reads(const ExpertStoreOptions& options) {
  const std::string aligned = " in bytes that is a multiple of " + std::to_string(kDirectAlignment);
  require(options.stride > 0 && options.stride % kDirectAlignment == 0, "a stride" + aligned,
          std::to_string(options.stride));
  require(options.split % kDirectAlignment == 0, "a split" + aligned, std::to_string(options.split));
  require(options.threads > 0 && options.threads <= 256, "1 to 256 threads", std::to_string(options.threads));
}

void check_slab(const ExpertSlab& slab) {
  require(slab.slots > 0, "at least one slot", "0");
  require(reinterpret_cast<uintptr_t>(slab.data) % kDirectAlignment == 0,
          "a slab that starts on a page of " + std::to_string(kDirectAlignment) + " bytes",
          "one that does not");
}

void check_options(const std::vector<uint32_t>& experts, const ExpertTables& tables,
                   const ExpertStoreOptions& options) {
  require(!experts.empty(), "at least one layer", "0");
  for (const uint32_t count : experts)
    require(count > 0 && count <= tables.padded,
            "1 to " + std::to_string(tables.padded) + " experts in a layer", std::to_string(count));
  require(tables.padded % 4 == 0, "rows of a multiple of 4 elements", std::to_string(tables.padded));
  check_reads(options);
  require(options.half_life > 0, "a half life above 0", std::to_string(options.half_life));
  require(options.top_k > 0, "a top_k from 1 on", std::to_string(options.top_k));
  require(options.pass_experts > 0, "a pass of 1 expert or more", std::to_string(options.pass_experts));
}

std::shared_ptr<ExpertStore> share(std::unique_ptr<Store> store) {
  if (process_ends()) throw Error(ErrorKind::state, "expert store: the process is ending");
  const std::shared_ptr<Store> shared(store.release(), [](Store* opened) {
    if (opened->opened_here()) delete opened;
  });
  close_at_end(shared);
  return shared;
}

}  // namespace pyturbo::experts
