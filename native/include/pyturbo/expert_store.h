// Experts of a model that are brought into memory when a replay chooses them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pyturbo/host_loop.h"
#include "pyturbo/process.h"
#include "pyturbo/storage.h"

namespace pyturbo {

// A file with the records of one layer: expert e has the bytes from e * stride on.
struct ExpertFile {
  std::string path;
  uint32_t experts;
};

// The records of one layer in memory that is already mapped.
struct MappedExperts {
  std::shared_ptr<Storage> storage;
  const uint8_t* records;  // in the storage; starts on a page of kDirectAlignment
  uint32_t experts;
};

inline constexpr uint32_t kExpertRows = 5;

// Rows shared with the device, int32 [layers, kExpertRows, padded]: of each layer `table` (slot of an expert,
// or -1), `counts` (choices so far, modulo 2^32), `slots` (of the experts in this pass, else -1), `missing`
// (one value), `guesses` (choices that an earlier layer expected so far, modulo 2^32).
struct ExpertTables {
  std::shared_ptr<Storage> storage;
  int32_t* rows;
  uint32_t padded;  // elements of a row, a multiple of 4
};

// The memory of a store that reads: `slots` records of `stride` bytes, aligned to kDirectAlignment.
struct ExpertSlab {
  std::shared_ptr<Storage> storage;
  uint8_t* data;
  uint32_t slots;
};

inline constexpr uint64_t kDirectAlignment = 4096;  // of memory, offsets and sizes in direct I/O

struct ExpertStoreOptions {
  uint64_t stride = 0;        // bytes of a record, a multiple of kDirectAlignment
  uint64_t split = 0;         // bytes of one read, a multiple of kDirectAlignment; 0: the whole record
  uint32_t threads = 0;       // that read, 1 to 256
  bool direct = false;        // past the page cache, where the file system can
  double half_life = 0;       // tokens after which a use counts half
  uint32_t top_k = 1;         // choices of one token
  uint32_t pass_experts = 1;  // a pass waits for so many experts, or for all that are being read
  uint32_t staging = 0;       // slots for experts that are not worth keeping; below the number of slots
};

struct ExpertCounters {
  uint64_t requests = 0;  // distinct experts, summed over replays
  uint64_t hits = 0;      // of these, the ones that had a slot
  uint64_t misses = 0;
  uint64_t guessed = 0;     // requests of experts that were read, or are being read, because of a guess
  uint64_t bytes = 0;       // read, or made present
  uint64_t reads = 0;       // system calls for them, including those that were repeated
  double read_seconds = 0;  // in which records were being read; moments are shared with those of other layers
  double wait_seconds = 0;  // that replays waited for reads
};

// A record that was read, in seconds of std::chrono::steady_clock.
struct ExpertRead {
  uint32_t layer, expert;
  bool ahead;  // because of a guess
  double begin, end;
};

// Brings the experts that replays choose, layer by layer. Owner: the Python ExpertStore and every loop of it.
// Any thread; one lock, which is not held while a loop waits for reads, but while they are cancelled. One
// replay uses it at a time. It belongs to the process that opened it; a child of fork() is refused and drops
// it without destroying it.
class ExpertStore : public ClosedAtEnd {
 public:
  virtual uint32_t layers() const = 0;
  // The loop keeps the store and the tables alive. When it begins, it also starts to read what the guesses of
  // the layer `ahead` name, unless that is negative. Throws Error{argument} for a layer that is not there.
  virtual std::shared_ptr<HostLoop> loop(uint32_t layer, int32_t ahead) = 0;
  virtual std::vector<ExpertCounters> counters() const = 0;  // by layer
  virtual void reset_counters() = 0;
  // Starts or ends the recording of reads, and returns those recorded since the last call. A read is recorded
  // when it is counted: by the loop that begins or continues after its end.
  virtual std::vector<ExpertRead> trace(bool on) = 0;
  // Returns whether all files are read past the page cache. Throws Error{state} when it is closed.
  virtual bool direct() const = 0;
  virtual bool closed() const = 0;
  // Uses at most that many of the slab's slots, and at least one, from now on; the memory of the others is
  // given back, unless the system refuses: then filled() counts them still. `staging` of them, but not all,
  // are for experts that are not worth keeping. No replay may be under way. A store over mapped files has no
  // slots.
  virtual void resize(uint32_t slots, uint32_t staging) = 0;
  virtual uint32_t slots() const = 0;
  // Returns how many slots take memory: those that have been read into, apart from memory given back.
  virtual uint32_t filled() const = 0;
  // Throws Error{file} when a file was changed after it was opened. A store that is closed has none.
  virtual void require_unchanged() const = 0;
  // Ends reads and threads, and closes files. Loops that are asked afterwards throw Error{state}, also one
  // that waits now. The tables are left alone, because launches may be reading them: a replay that finds all
  // its experts in slots still works. Returns when all is done, also in a second caller.
  void close() override = 0;
};

// Both write all rows of the tables. They throw Error{argument}, Error{file} or Error{format}.
// Reads records into the slots of a slab and keeps the most used ones.
std::shared_ptr<ExpertStore> open_expert_store(const std::vector<ExpertFile>& files, const ExpertSlab& slab,
                                               const ExpertTables& tables, const ExpertStoreOptions& options);
// Makes the records of mapped files present before their first use. The slot of an expert is its number. Uses
// stride, split, threads and pass_experts of the options.
std::shared_ptr<ExpertStore> map_expert_store(const std::vector<MappedExperts>& layers,
                                              const ExpertTables& tables, const ExpertStoreOptions& options);

struct ExpertPlace {
  uint32_t layer, expert;
};

struct ExpertBursts {
  std::vector<double> seconds;  // of each burst
  bool direct;                  // all of them were read past the page cache
};

// Measures reads: fills the slots of the slab with records, as many at once as it has slots, again and again
// until all of `records` are read or `seconds` have passed. Uses stride, split, threads and direct of the
// options. Throws what open_expert_store throws, and what reads do.
ExpertBursts time_expert_reads(const std::vector<ExpertFile>& files, const ExpertSlab& slab,
                               const std::vector<ExpertPlace>& records, const ExpertStoreOptions& options,
                               double seconds);

}  // namespace pyturbo
