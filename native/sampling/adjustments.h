// Changes of single logits before the filters: bias, and penalties for tokens that were accepted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pyturbo/sampler.h"
#include "sampling/repetitions.h"

namespace pyturbo {

// The sum of a logit and its bias is divided by the repetition penalty if it is positive, otherwise
// multiplied; then the presence penalty, the frequency penalty for each occurrence and the DRY penalty are
// subtracted. Computed in double, rounded to a finite float once. Owner: a Sampler, under its lock.
class Adjustments {
 public:
  // A logit that changes.
  struct Change {
    uint32_t token;
    uint32_t occurrences;  // among the tokens of the repetition window
    uint64_t repetition;   // length of the longest repetition that the token would continue; 0: none
    double bias;
  };

  explicit Adjustments(const SamplerOptions& options);

  void accept(std::span<const uint32_t> tokens);

  // Finds the changes for logits of a vocabulary. Throws Error{argument} for tokens that it does not have.
  void prepare(uint32_t vocab);

  std::span<const Change> changes() const { return changes_; }
  const Change* change_of(uint32_t token) const {
    return token < slots_.size() && slots_[token] ? &changes_[slots_[token] - 1] : nullptr;
  }
  float adjusted(float logit, const Change& change) const;

  // Whether some logits may become larger.
  bool raises() const { return raises_; }

 private:
  Change& change(uint32_t token);
  std::span<const uint32_t> last(uint64_t window) const;

  const SamplerOptions& options_;  // of the owner
  bool penalises_, raises_;
  std::vector<uint32_t> accepted_;
  std::vector<Change> changes_;
  std::vector<uint32_t> slots_;  // by token: 1 + the index of its change, or 0
  Repetitions repetitions_;
};

}  // namespace pyturbo
