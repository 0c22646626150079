// The one implementation of ExpertStore: what replays need, brought by a reader to places.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "experts/layer_rows.h"
#include "experts/places.h"
#include "experts/reader.h"
#include "experts/scores.h"
#include "pyturbo/expert_store.h"

namespace pyturbo::experts {

// A loop of a layer is under way from begin() until a pass is known to be its last one, or it fails. What its
// last pass uses is held until the next call that belongs to a later moment of the replay.
class Store final : public ExpertStore, public std::enable_shared_from_this<Store> {
 public:
  using MakePlaces =
      std::function<std::unique_ptr<Places>(std::vector<LayerRows>&, const std::vector<Scores>&)>;

  // `experts`: their number, by layer.
  Store(const std::vector<uint32_t>& experts, const ExpertTables& tables, const ExpertStoreOptions& options,
        std::unique_ptr<Source> source, const MakePlaces& make_places);
  ~Store() override;

  uint32_t layers() const override { return uint32_t(rows_.size()); }
  std::shared_ptr<HostLoop> loop(uint32_t layer, int32_t ahead) override;
  std::vector<ExpertCounters> counters() const override;
  void reset_counters() override;
  std::vector<ExpertRead> trace(bool on) override;
  bool direct() const override;
  bool closed() const override;
  void close() override;
  void resize(uint32_t slots, uint32_t staging) override;
  uint32_t slots() const override;
  uint32_t filled() const override;
  void require_unchanged() const override;

  bool opened_here() const { return born_ == fork_count(); }

 private:
  class Loop;
  struct ExpertSlot {
    uint32_t expert;
    int32_t slot;
  };
  static constexpr int64_t kNoLayer = -1;

  // Returns the number of the loop, which next() and cancel() take.
  uint64_t begin(uint32_t layer, int32_t ahead);
  bool next(uint32_t layer, uint64_t number);
  void finish(uint32_t layer);
  void cancel(uint32_t layer, uint64_t number);

  void require_usable() const;
  // The following need the lock.
  void require_open() const;
  void start_reads();
  bool make_room(std::exception_ptr& error);
  void start_guesses(uint32_t layer);
  // Reads experts of the next layer into free slots, once all of this one are under way.
  void start_next_layer();
  // Returns false if there is no slot for the expert.
  bool start_ahead(uint32_t layer, uint32_t expert, Places::Hope hope);
  void count_guess(uint32_t layer, uint32_t expert);
  // Takes what the reader has done. The first failure of the loop goes to `error`, if that is empty.
  void settle(std::exception_ptr& error);
  void settle(const Ended& ended, std::exception_ptr& error);
  void add_to_pass(uint32_t expert, int32_t slot);
  // Releases records of a layer, or of all, that were read ahead; those with `uses` belong to the pass now.
  void release_early(int64_t layer, const std::vector<uint32_t>* uses);
  void note(const Ended& ended);
  void release_pass();
  void abandon();

  const ExpertTables tables_;
  const uint64_t stride_;
  const uint32_t pass_experts_;
  const uint32_t born_ = fork_count();
  Reader reader_;
  std::once_flag closing_;
  Claim claim_;  // of all loops, which share the slots

  mutable std::mutex mutex_;  // guards the rest; taken before the reader's
  std::vector<LayerRows> rows_;
  std::vector<Scores> scores_;
  std::vector<ExpertCounters> counters_;
  bool traces_ = false;
  std::vector<ExpertRead> traced_;
  std::unique_ptr<Places> places_;   // null: closed
  int64_t layer_ = kNoLayer;         // whose loop is under way
  uint64_t loops_ = 0;               // number of the loop, for a thread that waits in it
  std::vector<uint32_t> waiting_;    // experts that have no place yet, in the order of the file
  std::vector<ExpertSlot> arrived_;  // of experts that came after the launches had looked for them
  uint32_t under_way_ = 0;           // records of the loop that the reader has not returned
  int64_t next_layer_ = kNoLayer;    // whose experts will nearly all be needed, as those of the loop are
  // By layer: slots of experts that are read ahead of their loop, else kNone.
  std::vector<std::vector<int32_t>> slots_ahead_;
  std::vector<std::vector<bool>> guessed_;  // read ahead and not used since
  std::vector<int32_t> pass_;               // slots that are held for the pass
  std::vector<Record> early_;               // came ahead of their loop, until which their slots are held
};

// All throw Error{argument}: for options or tables that cannot be, for a slab without slots or not on a page,
// for options of reads.
void check_options(const std::vector<uint32_t>& experts, const ExpertTables& tables,
                   const ExpertStoreOptions& options);
void check_slab(const ExpertSlab& slab);
void check_reads(const ExpertStoreOptions& options);

// Hands a store to its owners: closed when the process ends, never destroyed in a child of fork().
std::shared_ptr<ExpertStore> share(std::unique_ptr<Store> store);

}  // namespace pyturbo::experts
