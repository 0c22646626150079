// Draws tokens from logits.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
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
  void accept(const uint32_t* tokens, uint64_t count);

  const SamplerOptions options;

 private:
  const float* penalise(const float* logits, uint32_t vocab);
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

}  // namespace pyturbo
