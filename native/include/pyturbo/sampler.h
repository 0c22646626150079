// Draws tokens from logits.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace pyturbo {

class Candidates;

struct SamplerOptions {
  double temperature = 0;           // 0: the most likely token
  double top_p = 1;                 // 1: off
  uint64_t top_k = 0;               // 0: off
  double min_p = 0;                 // 0: off
  double repetition_penalty = 1;    // 1: off
  uint64_t repetition_window = 64;  // number of last accepted tokens that are penalised; 0: all
  uint64_t seed = 0;
};

struct TokenLogprob {
  uint32_t token;
  double logprob;  // of the logits as given
};

struct TokenLogit {
  uint32_t token;
  float logit;
};

// The first tokens of a ranking of logits, the larger logit first and equal ones by token, and what else a
// device has found out about the others.
struct TopLogits {
  std::vector<TokenLogit> first;
  uint32_t vocab;  // number of logits
  float total;     // sum of exp(logit - first logit) over all of them

  // Whether they are such a ranking of logits that a Sampler takes. Devices rank NaN and +inf first.
  bool valid() const;
};

// Applies, in this order: repetition penalty, top_k, top_p, min_p, temperature, one draw. The filters see
// probabilities without temperature; equal logits are ordered by token. The same options, logits and accepted
// tokens give the same tokens on every machine; log-probabilities may differ by the rounding of std::log.
// Owner: the Python Sampler. Any thread; one lock serialises calls.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);
  ~Sampler();

  // Logits are finite or -inf, which forbids a token; at least one is finite. They are copied first, so that
  // others may write them during the call.
  TokenLogprob sample(const float* logits, uint32_t vocab);

  // Returns the token that sample() would draw from all logits, or nothing if that may depend on the others,
  // or they are not valid. Log-probabilities may differ by the rounding of `total`.
  std::optional<TokenLogprob> sample(const TopLogits& top);
  void accept(const uint32_t* tokens, uint64_t count);

  const SamplerOptions options;

 private:
  std::span<const uint32_t> penalised_tokens(uint32_t vocab) const;
  const float* penalise(const float* logits, uint32_t vocab);
  std::optional<std::vector<TokenLogit>> penalise(const TopLogits& top, size_t count) const;
  uint32_t draw(double* total);
  double next_uniform();

  float scale_;  // 1 / temperature
  uint64_t draws_ = 0;
  std::vector<uint32_t> accepted_;
  std::vector<float> logits_;  // copy, for the current sample
  std::vector<float> penalised_;
  std::unique_ptr<Candidates> candidates_;
  std::mutex running_;
};

// Returns the `count` most likely tokens, most likely first; fewer when fewer are allowed.
std::vector<TokenLogprob> top_logprobs(const float* logits, uint32_t vocab, uint32_t count);

// The same from the first logits alone; nothing if they do not suffice.
std::optional<std::vector<TokenLogprob>> top_logprobs(const TopLogits& top, uint32_t count);

}  // namespace pyturbo
