#include "pyturbo/program.h"

#include <algorithm>
#include <cstring>

#include "core/bus_error.h"
#include "core/launch.h"
#include "pyturbo/error.h"
#include "pyturbo/mapped_file.h"

namespace pyturbo {
namespace {

constexpr uint64_t kValueBytes = 16;  // unit of Launch::values; a larger value takes several

uint64_t room(uint32_t size) { return (size + kValueBytes - 1) / kValueBytes * kValueBytes; }

[[noreturn]] void refuse(const std::string& label, const KernelInfo& kernel, const std::string& what) {
  throw Error(ErrorKind::argument, label + (label.empty() ? "" : ": ") + kernel.name + ": " + what);
}

// Stores an integer as the shader's type. Returns false when it does not fit.
bool store(DType dtype, int64_t value, void* out) {
  switch (dtype) {
    case DType::u32: {
      const uint32_t narrow = uint32_t(value);
      std::memcpy(out, &narrow, sizeof narrow);
      return value >= 0 && value <= int64_t(UINT32_MAX);
    }
    case DType::i32: {
      const int32_t narrow = int32_t(value);
      std::memcpy(out, &narrow, sizeof narrow);
      return value == narrow;
    }
    case DType::u64:
      std::memcpy(out, &value, sizeof value);
      return value >= 0;
    case DType::i64:
      std::memcpy(out, &value, sizeof value);
      return true;
    default:
      return false;
  }
}

bool is_integer(const ArgumentInfo& info) {
  return info.components == 1 && (info.dtype == DType::u32 || info.dtype == DType::i32 ||
                                  info.dtype == DType::u64 || info.dtype == DType::i64);
}

// Returns the whole buffer that holds `memory`.
Block buffer_of(const MemoryRef& memory) { return {memory.storage->data() + memory.start, memory.size}; }

// Binds the bytes that `memory` names in a buffer or block, and checks that they lie inside it.
void bind_place(Arguments& arguments, uint32_t index, const MemoryRef& memory, const Block& space,
                const int64_t* symbols, const std::string& label, const KernelInfo& kernel,
                const char* name) {
  int64_t offset;
  if (!memory.offset.at(symbols, offset))
    refuse(label, kernel, std::string(name) + ": expected an offset below 2^63, got more");
  const uint64_t end = memory.end >= 0 ? uint64_t(memory.end) : uint64_t(offset) + memory.bytes;
  if (offset < 0 || uint64_t(offset) > end || end > space.bytes)
    refuse(label, kernel,
           std::string(name) + ": expected bytes " + std::to_string(offset) + " to " + std::to_string(end) +
               ", got memory of " + std::to_string(space.bytes) + " bytes");
  arguments.buffers[index] = space.data + offset;
  arguments.bytes[index] = end - uint64_t(offset);
}

}  // namespace

void Program::add(const KernelInfo& kernel, const void* const* constants,
                  const std::vector<RecordedArgument>& bound, std::string label, std::string text,
                  Strand strand) {
  device_->require_open();
  const std::lock_guard run_lock(running_);
  const std::lock_guard list_lock(growing_);
  if (strand.when != Strand::kAlways && strand.when >= symbols_)
    throw Error(ErrorKind::argument,
                "add: when: expected a symbol of the program, got number " + std::to_string(strand.when));
  Launch launch{&kernel, {}, nullptr, {}, {}, {}, {}, std::move(label), std::move(text), strand, {}};
  std::memcpy(launch.arguments.constants, constants, sizeof launch.arguments.constants);
  uint64_t bytes = 0;
  for (const RecordedArgument& b : bound) bytes += room(kernel.arguments[b.argument].size);
  launch.values = std::make_unique<uint8_t[]>(bytes + kValueBytes);

  uint8_t* next = launch.values.get();
  for (const RecordedArgument& b : bound) {
    const ArgumentInfo& info = kernel.arguments[b.argument];
    bind(launch, b, next);
    if (info.kind == ArgumentKind::value)
      next += room(info.size);
    else
      launch.ranges.push_back(range_of(b.memory, info.writable, strand.group));
  }
  if (launch.value_patches.empty() && launch.address_patches.empty())
    launch.dispatch = check_launch(kernel, launch.arguments, nullptr);
  const auto moves = [](const AddressPatch& patch) { return !patch.memory.offset.terms.empty(); };
  const std::vector<AddressPatch>& places = launch.address_patches;
  const bool follows = strand.when != Strand::kAlways || !launch.value_patches.empty() ||
                       std::any_of(places.begin(), places.end(), moves);
  launches_.push_back(std::move(launch));
  if (follows) following_.push_back(uint32_t(launches_.size() - 1));
  kept.reset();
  is_ready_ = false;
  order(launches_.back());
}

Program::Stage Program::stage() const {
  if (loops_.empty() || loops_.back().at.end != LoopText::kOpen) return Stage::closed;
  return loops_.back().at.begin == LoopText::kOpen ? Stage::asked : Stage::passes;
}

void Program::require_stage(const char* call, Stage expected) const {
  const char* const names[] = {"no open loop", "a loop after ask", "a loop after begin_passes"};
  if (stage() != expected)
    throw Error(ErrorKind::state, std::string(call) + ": expected " + names[size_t(expected)] + ", got " +
                                      names[size_t(stage())]);
}

// Records the next point of a loop, or the first one of a new loop. Launches on either side of it are ordered
// without being compared.
void Program::mark(const char* call, Stage expected, std::shared_ptr<HostLoop> loop) {
  device_->require_open();
  const std::lock_guard run_lock(running_);
  const std::lock_guard list_lock(growing_);
  require_stage(call, expected);
  for (const Loop& known : loops_)
    if (loop && loop->missing() == known.host->missing())
      throw Error(ErrorKind::argument,
                  std::string(call) + ": expected a loop that the program has not asked yet, got one again");
  if (loop)
    loops_.push_back({std::move(loop), {.ask = launches_.size()}});
  else
    (expected == Stage::asked ? loops_.back().at.begin : loops_.back().at.end) = launches_.size();
  unordered_.clear();
  fenced_ = !launches_.empty();
}

void Program::ask(std::shared_ptr<HostLoop> loop) {
  if (!loop || !loop->missing())
    throw Error(ErrorKind::argument, "ask: expected a loop with a count of what is missing, got none");
  mark("ask", Stage::closed, std::move(loop));
}

void Program::begin_passes() { mark("begin_passes", Stage::asked, nullptr); }

void Program::end_passes() { mark("end_passes", Stage::passes, nullptr); }

void Program::bind(Launch& launch, const RecordedArgument& b, uint8_t* value) {
  const ArgumentInfo& info = launch.kernel->arguments[b.argument];
  Arguments& arguments = launch.arguments;
  if (info.kind == ArgumentKind::value) {
    arguments.buffers[info.index] = value;
    arguments.bytes[info.index] = info.size;
    if (!b.bytes.empty()) {
      std::memcpy(value, b.bytes.data(), std::min<size_t>(info.size, b.bytes.size()));
    } else if (!is_integer(info)) {
      refuse(launch.label, *launch.kernel,
             std::string(info.name) + ": expected a value of its type, got an integer that follows symbols");
    } else if (b.integer.terms.empty()) {
      if (!store(info.dtype, b.integer.constant, value))
        refuse(launch.label, *launch.kernel,
               std::string(info.name) + ": expected a value of its type, got " +
                   std::to_string(b.integer.constant));
    } else {
      launch.value_patches.push_back({info.index, info.name, info.dtype, b.integer});
    }
    return;
  }
  const MemoryRef& memory = b.memory;
  if (memory.storage) {
    device_->use(*memory.storage, memory.start, memory.size);
    launch.owners.push_back(memory.storage);
  }
  if (memory.storage && memory.offset.terms.empty())
    bind_place(arguments, info.index, memory, buffer_of(memory), nullptr, launch.label, *launch.kernel,
               info.name);
  else
    launch.address_patches.push_back({info.index, info.name, memory});
}

// Symbols are never negative. An offset that grows with them may reach everything after its constant part, up
// to `end` if that is given.
Program::Range Program::range_of(const MemoryRef& memory, bool writes, uint32_t group) const {
  const uint32_t space = memory.storage ? 0 : memory.block + 1;
  const uint64_t base = memory.storage ? reinterpret_cast<uintptr_t>(buffer_of(memory).data) : 0;
  uint64_t begin = uint64_t(std::max<int64_t>(0, memory.offset.constant));
  uint64_t end = begin + memory.bytes;
  if (!memory.offset.terms.empty()) {
    for (const Linear::Term& term : memory.offset.terms)
      if (term.factor < 0) begin = 0;
    end = memory.storage ? memory.size : UINT64_MAX;
  }
  if (memory.end >= 0) end = uint64_t(memory.end);
  return {space, base + begin, base + end, writes, group};
}

bool Program::conflict(const Range& a, const Range& b) {
  const bool apart = a.group != 0 && a.group == b.group;
  return !apart && a.space == b.space && a.begin < b.end && b.begin < a.end && (a.writes || b.writes);
}

void Program::order(Launch& launch) {
  const std::vector<Range>& ranges = launch.ranges;
  launch.barrier = fenced_;
  fenced_ = false;
  for (const Range& now : ranges)
    for (const Range& before : unordered_) launch.barrier |= conflict(now, before);
  if (launch.barrier) unordered_.clear();
  unordered_.insert(unordered_.end(), ranges.begin(), ranges.end());
  for (const Range& range : ranges) {
    const auto same = [&](const Range& known) {
      return known.begin == range.begin && known.end == range.end;
    };
    if (range.space == 0 && std::none_of(bound_.begin(), bound_.end(), same)) bound_.push_back(range);
  }
}

// A range that later launches overwrite as a whole needs no further comparison if each launch that conflicts
// with it conflicts with one of those, too: with one of no group, or with one of two groups, since a launch
// is of one group at most.
std::vector<std::vector<uint32_t>> Program::dependencies() const {
  struct Touched {
    Range range;
    uint32_t launch;
    uint32_t covered_by = 0;  // a group
    bool hidden = false;
  };
  std::vector<Touched> touched;
  std::vector<std::vector<uint32_t>> all(launches_.size());
  std::vector<std::vector<bool>> before(launches_.size());  // by launch: all that it follows
  for (uint32_t i = 0; i < launches_.size(); ++i) {
    std::vector<bool> direct(i);
    for (const Range& now : launches_[i].ranges)
      for (const Touched& earlier : touched)
        if (conflict(now, earlier.range)) direct[earlier.launch] = true;
    before[i].resize(launches_.size());
    for (uint32_t j = i; j-- > 0;) {
      if (!direct[j] || before[i][j]) continue;
      all[i].push_back(j);
      before[i][j] = true;
      for (uint32_t k = 0; k < j; ++k)
        if (before[j][k]) before[i][k] = true;
    }
    for (const Range& now : launches_[i].ranges)
      for (Touched& old : touched) {
        const bool covers = now.begin <= old.range.begin && old.range.end <= now.end;
        if (!now.writes || !covers || !conflict(now, old.range)) continue;
        old.hidden |= now.group == 0 || (old.covered_by != 0 && old.covered_by != now.group);
        old.covered_by = now.group;
      }
    std::erase_if(touched, [](const Touched& old) { return old.hidden; });
    for (const Range& now : launches_[i].ranges) touched.push_back({now, i});
  }
  return all;
}

// Dependencies were computed without the addresses of blocks, so blocks must not overlap other memory.
void Program::require_apart(const Block* blocks) const {
  for (uint32_t i = 0; i < blocks_; ++i) {
    const uint64_t begin = reinterpret_cast<uintptr_t>(blocks[i].data), end = begin + blocks[i].bytes;
    bool apart = true;
    for (const Range& range : bound_) apart &= range.end <= begin || end <= range.begin;
    for (uint32_t j = 0; j < i; ++j)
      apart &= blocks[j].data + blocks[j].bytes <= blocks[i].data ||
               blocks[i].data + blocks[i].bytes <= blocks[j].data;
    if (!apart)
      throw Error(ErrorKind::argument,
                  "run: expected blocks apart from each other and from bound memory, "
                  "got block " +
                      std::to_string(i) + " over other memory");
  }
}

void Program::patch(Launch& launch, const int64_t* symbols, const Block* blocks) const {
  const KernelInfo& kernel = *launch.kernel;
  for (const AddressPatch& patch : launch.address_patches) {
    const MemoryRef& memory = patch.memory;
    const Block space = memory.storage ? buffer_of(memory) : blocks[memory.block];
    bind_place(launch.arguments, patch.index, memory, space, symbols, launch.label, kernel, patch.name);
  }
  for (const ValuePatch& patch : launch.value_patches) {
    int64_t value;
    const bool fits = patch.value.at(symbols, value);
    if (!fits || !store(patch.dtype, value, launch.arguments.buffers[patch.index]))
      refuse(launch.label, kernel,
             std::string(patch.name) + ": expected a value of its type, got " +
                 (fits ? std::to_string(value) : "more than 64 bits hold"));
  }
  launch.dispatch = check_launch(kernel, launch.arguments, nullptr);
}

bool Program::has(const Block* blocks) const {
  const auto same = [](const Block& a, const Block& b) { return a.data == b.data && a.bytes == b.bytes; };
  return is_ready_ && std::equal(ready_blocks_.begin(), ready_blocks_.end(), blocks, same);
}

bool Program::has(const int64_t* symbols) const {
  return is_ready_ && std::equal(ready_symbols_.begin(), ready_symbols_.end(), symbols);
}

void Program::complete(uint32_t index, const int64_t* symbols, const Block* blocks) {
  Launch& launch = launches_[index];
  const bool optional = launch.strand.when != Strand::kAlways;
  const bool runs = !optional || symbols[launch.strand.when] != 0;
  const bool changes = optional || !launch.value_patches.empty() || !launch.address_patches.empty();
  if (!runs)
    unbind(launch);
  else if (changes)
    patch(launch, symbols, blocks);
  Dispatch dispatch = launch.dispatch;
  if (!runs) dispatch.groups = {0, 0, 0};
  ready_[index] = {launch.kernel,        &launch.arguments, dispatch, launch.barrier,
                   launch.label.c_str(), changes,           version};
}

// Takes away memory that may be gone by the next replay: devices look at the arguments of launches that do
// not run, too.
void Program::unbind(Launch& launch) {
  for (const AddressPatch& patch : launch.address_patches) {
    launch.arguments.buffers[patch.index] = nullptr;
    launch.arguments.bytes[patch.index] = 0;
  }
}

// Completes and checks the launches whose symbols or blocks differ from those they have.
void Program::set(const int64_t* symbols, const Block* blocks) {
  const bool same_blocks = has(blocks);
  if (same_blocks && has(symbols)) return;
  is_ready_ = false;
  ++version;
  if (same_blocks) {
    for (const uint32_t i : following_) complete(i, symbols, blocks);
  } else {
    require_apart(blocks);
    ready_.resize(launches_.size());
    for (uint32_t i = 0; i < launches_.size(); ++i) complete(i, symbols, blocks);
  }
  ready_symbols_.assign(symbols, symbols + symbols_);
  ready_blocks_.assign(blocks, blocks + blocks_);
  is_ready_ = true;
}

void Program::prepare() {
  device_->require_open();
  const std::lock_guard lock(running_);
  std::vector<ReadyLaunch> launches;
  for (const Launch& launch : launches_)
    launches.push_back(
        {launch.kernel, &launch.arguments, launch.dispatch, launch.barrier, launch.label.c_str()});
  device_->prepare(launches);
}

void Program::prepare(const int64_t* symbols, const Block* blocks) {
  device_->require_open();
  const std::lock_guard lock(running_);
  require_stage("prepare", Stage::closed);
  set_and_prepare(symbols, blocks);
}

void Program::set_and_prepare(const int64_t* symbols, const Block* blocks) {
  set(symbols, blocks);
  if (loops_.empty())
    device_->prepare_replay(ready_, *this);
  else
    device_->prepare(ready_);
}

void Program::run(const int64_t* symbols, const Block* blocks, bool wait, Timeline* timeline,
                  const int64_t* next) {
  device_->require_open();
  if (files_are_mapped()) watch_bus_errors();
  const std::lock_guard lock(running_);
  require_stage("run", Stage::closed);
  if (timeline) *timeline = {};
  set(symbols, blocks);
  ready_loops_.clear();
  for (const Loop& loop : loops_)
    ready_loops_.push_back({loop.at.ask, loop.at.begin, loop.at.end, loop.host.get()});
  const auto prepare_next = [&] {
    try {
      set_and_prepare(next, blocks);
    } catch (const std::exception&) {  // a run that has these symbols will say why
    }
  };
  device_->replay(ready_, ready_loops_, wait, timeline, this,
                  next ? std::function<void()>(prepare_next) : nullptr);
}

std::vector<LaunchText> Program::listing() const {
  const std::lock_guard lock(growing_);
  std::vector<LaunchText> texts;
  for (const Launch& launch : launches_)
    texts.push_back({launch.label, launch.kernel->name, launch.text, launch.barrier, false});
  for (const Loop& loop : loops_)
    for (uint64_t i = loop.at.begin; i < std::min<uint64_t>(loop.at.end, texts.size()); ++i)
      texts[i].repeats = true;
  return texts;
}

std::vector<Part> Program::parts(const int64_t* symbols, const Block* blocks) {
  device_->require_open();
  const std::lock_guard lock(running_);
  require_stage("parts", Stage::closed);
  set(symbols, blocks);
  return device_->parts(ready_);
}

std::vector<LoopText> Program::loops() const {
  const std::lock_guard lock(growing_);
  std::vector<LoopText> places;
  for (const Loop& loop : loops_) places.push_back(loop.at);
  return places;
}

}  // namespace pyturbo
