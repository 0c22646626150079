// Draws tokens from logits.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace pyturbo {

class Adjustments;
class Candidates;

struct TokenLogit {
  uint32_t token;
  float logit;
};

struct TokenBias {
  uint32_t token;
  double bias;  // added to the logit; -inf forbids the token
};

struct SamplerOptions {
  double temperature = 0;           // 0: the most likely token
  double top_p = 1;                 // 1: off
  uint64_t top_k = 0;               // 0: off
  double min_p = 0;                 // 0: off
  double typical_p = 1;             // 1: off
  double top_n_sigma = 0;           // 0: off
  double xtc_probability = 0;       // 0: off
  double xtc_threshold = 0.1;       // of a probability
  double repetition_penalty = 1;    // 1: off
  double presence_penalty = 0;      // 0: off
  double frequency_penalty = 0;     // 0: off
  uint64_t repetition_window = 64;  // number of last accepted tokens that are penalised; 0: all
  double dry_multiplier = 0;        // 0: off
  double dry_base = 1.75;
  uint64_t dry_allowed_length = 2;                  // of a repetition that costs the multiplier
  uint64_t dry_window = 64;                         // number of last accepted tokens that count; 0: all
  std::vector<std::vector<uint32_t>> dry_breakers;  // sequences of tokens that no repetition spans
  std::vector<TokenBias> logit_bias;
  uint64_t seed = 0;
};

struct TokenLogprob {
  uint32_t token;
  double logprob;  // of the logits as given
};

// Which tokens may be drawn: bit t % 32 of word t / 32 for token t, a word for each 32 tokens that have
// begun. Without words all tokens may be drawn.
using TokenMask = std::span<const uint32_t>;

// The first tokens of a ranking of logits, the larger logit first and equal ones by token, and what else a
// device has found out about the others.
struct TopLogits {
  std::vector<TokenLogit> first;
  uint32_t vocab;  // number of logits
  float total;     // sum of exp(logit - first logit) over all of them

  // Whether they are such a ranking of logits that a Sampler takes. Devices rank NaN and +inf first.
  bool valid() const;
};

// Applies, in this order: mask, logit bias, penalties, DRY, top_n_sigma, top_k, typical_p, top_p, min_p, XTC,
// temperature, one draw. The filters see probabilities without temperature; equal logits are ordered by
// token. The same options, logits, masks and accepted tokens give the same tokens on every machine;
// log-probabilities may differ by the rounding of std::log.
// Owner: the Python Sampler. Any thread; one lock serialises calls. In a child of fork(), a sampler that
// another thread of the parent was using throws Error{state}.
class Sampler {
 public:
  // A draw that depends on nothing but logits and these, in the order in which they apply.
  struct Draw {
    uint64_t top_k;  // 1: the most likely token
    double top_p, min_p, temperature;
    double number;  // the random one
  };
  explicit Sampler(const SamplerOptions& options);
  ~Sampler();

  // Logits are finite or -inf, which forbids a token; at least one is finite. They are copied first, so that
  // others may write them during the call.
  TokenLogprob sample(const float* logits, uint32_t vocab, TokenMask allowed = {});

  // Returns the token that sample() would draw from all logits, or nothing if that may depend on the others,
  // or they are not valid. Log-probabilities may differ by the rounding of `total`.
  std::optional<TokenLogprob> sample(const TopLogits& top, TokenMask allowed = {});
  void accept(const uint32_t* tokens, uint64_t count);

  // Returns the number-th of the next draws, from 1 on, or nothing if the options say more than a Draw can.
  std::optional<Draw> upcoming(uint64_t number);

  const SamplerOptions options;

 private:
  const float* adjust(const float* logits, uint32_t vocab);
  std::optional<std::vector<TokenLogit>> first_of(const TopLogits& top, TokenMask allowed);
  uint32_t draw(double* total);
  double uniform(uint64_t draw) const;
  double next_uniform() { return uniform(++draws_); }
  std::unique_lock<std::mutex> lock();

  float scale_;  // 1 / temperature
  uint64_t draws_ = 0;
  std::vector<float> logits_;  // copy, for the current sample
  std::vector<float> adjusted_;
  std::unique_ptr<Adjustments> adjustments_;
  std::unique_ptr<Candidates> candidates_;
  std::mutex running_;
  std::atomic<uint32_t> forks_;  // fork_count() at the last call
};

// Returns the `count` most likely tokens, most likely first; fewer when fewer are allowed.
std::vector<TokenLogprob> top_logprobs(const float* logits, uint32_t vocab, uint32_t count);

// The same from the first logits alone; nothing if they do not suffice.
std::optional<std::vector<TokenLogprob>> top_logprobs(const TopLogits& top, uint32_t count);

}  // namespace pyturbo
