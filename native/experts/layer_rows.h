// The rows of one layer in the tables that host and device share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pyturbo/expert_store.h"

namespace pyturbo::experts {

// Writes `slots` only while no launch of the layer runs, and `table` while none of find_slots does. Owner: a
// store, under its lock.
class LayerRows {
 public:
  LayerRows(const ExpertTables& tables, uint32_t layer, uint32_t experts);

  uint32_t experts() const { return experts_; }
  uint32_t* missing() const { return missing_; }

  // Returns the slot of an expert, or -1. Set by the store alone.
  int32_t slot(uint32_t expert) const { return table_[expert]; }
  void set_slot(uint32_t expert, int32_t slot) { table_[expert] = slot; }

  // Returns how often each expert was chosen since the last call; counts may have wrapped around.
  const std::vector<uint32_t>& take_uses();

  // Experts that an earlier layer expects to be chosen next, and whether there are any since the last call.
  bool has_guesses() const { return !std::equal(guesses_, guesses_ + experts_, guessed_.begin()); }
  std::vector<uint32_t> take_guesses();

  // Returns whether the launches found the expert, so that the first pass has it.
  bool found(uint32_t expert) const { return slots_[expert] >= 0; }

  // Starts a pass without experts, and adds one.
  void clear_pass();
  void add_to_pass(uint32_t expert, int32_t slot) { slots_[expert] = slot; }

 private:
  int32_t* const table_;
  const uint32_t* const counts_;
  int32_t* const slots_;
  uint32_t* const missing_;
  const uint32_t* const guesses_;
  const uint32_t experts_;
  std::vector<uint32_t> seen_;  // counts at the last take_uses()
  std::vector<uint32_t> uses_;
  std::vector<uint32_t> guessed_;  // guesses at the last take_guesses()
};

}  // namespace pyturbo::experts
