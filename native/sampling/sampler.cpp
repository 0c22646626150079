#include "pyturbo/sampler.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <sstream>

#include "pyturbo/error.h"
#include "sampling/candidates.h"
#include "sampling/softmax.h"

namespace pyturbo {
namespace {

void require(bool fulfilled, const char* name, const char* expected, double got) {
  if (fulfilled) return;
  std::ostringstream text;
  text << "Sampler: " << name << ": expected " << expected << ", got " << got;
  throw Error(ErrorKind::argument, text.str());
}

const SamplerOptions& checked(const SamplerOptions& o) {
  require(o.temperature >= 0 && std::isfinite(o.temperature), "temperature", "a finite number from 0 on",
          o.temperature);
  require(o.top_p > 0 && o.top_p <= 1, "top_p", "a number above 0 and at most 1", o.top_p);
  require(o.min_p >= 0 && o.min_p <= 1, "min_p", "a number from 0 to 1", o.min_p);
  require(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), "repetition_penalty",
          "a finite number above 0", o.repetition_penalty);
  return o;
}

// The finaliser of splitmix64: a permutation in which every input bit reaches every output bit.
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// `total` is the weight of all logits, relative to that of `top`.
double logprob_of(float logit, float top, double total) { return (double(logit) - top) - std::log(total); }

float penalised_logit(float logit, double penalty) {
  if (logit == -INFINITY) return logit;
  const double value = logit > 0 ? logit / penalty : logit * penalty;
  return float(std::clamp(value, double(-FLT_MAX), double(FLT_MAX)));
}

bool ranks_before(const TokenLogit& a, const TokenLogit& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

}  // namespace

bool TopLogits::valid() const {
  if (first.empty() || first.size() > vocab || !std::isfinite(first[0].logit)) return false;
  for (size_t i = 0; i < first.size(); ++i)
    if (first[i].token >= vocab || (i > 0 && !ranks_before(first[i - 1], first[i]))) return false;
  return total > 0 && std::isfinite(total);
}

Sampler::Sampler(const SamplerOptions& given)
    : options(checked(given)),
      scale_(float(std::clamp(1 / options.temperature, double(FLT_MIN), double(FLT_MAX)))),
      candidates_(std::make_unique<Candidates>()) {}

Sampler::~Sampler() = default;

void Sampler::accept(const uint32_t* tokens, uint64_t count) {
  std::lock_guard lock(running_);
  accepted_.insert(accepted_.end(), tokens, tokens + count);
  const uint64_t window = options.repetition_window;
  if (window && accepted_.size() / 2 >= window) accepted_.erase(accepted_.begin(), accepted_.end() - window);
}

TokenLogprob Sampler::sample(const float* shared, uint32_t vocab) {
  std::lock_guard lock(running_);
  logits_.resize(vocab);
  const float* logits = logits_.data();
  const Peak given = copy_logits("sample", shared, vocab, logits_.data());
  const float* penalised = penalise(logits, vocab);
  const Peak peak = penalised == logits ? given : find_peak("sample", penalised, vocab);

  uint32_t token = peak.position;
  double total = 0;  // weight of the logits as given, if a step below has computed it
  if (options.temperature > 0) {
    const bool limited = options.top_k && options.top_k < vocab;
    candidates_->start(penalised, vocab, peak.value);
    if (limited) candidates_->keep_count(uint32_t(options.top_k));
    token = draw(limited || penalised != logits ? nullptr : &total);
  }
  if (total == 0) total = weigh(logits, vocab, given.value, 1);
  return {token, logprob_of(logits[token], given.value, total)};
}

std::optional<TokenLogprob> Sampler::sample(const TopLogits& top) {
  std::lock_guard lock(running_);
  // Where top_k keeps all tokens, sums are those of all logits.
  const uint64_t count = options.temperature > 0 ? options.top_k : 1;
  if (!top.valid() || count == 0 || count > top.first.size()) return {};
  if (options.temperature > 0 && count == top.vocab) return {};
  std::optional<std::vector<TokenLogit>> kept = penalise(top, size_t(count));
  if (!kept) return {};

  uint32_t token = kept->front().token;
  if (options.temperature > 0) {
    std::erase_if(*kept, [](const TokenLogit& each) { return each.logit == -INFINITY; });
    std::sort(kept->begin(), kept->end(),
              [](const TokenLogit& a, const TokenLogit& b) { return a.token < b.token; });
    candidates_->start(*kept);
    token = draw(nullptr);
  }
  const auto drawn = std::find_if(top.first.begin(), top.first.end(),
                                  [&](const TokenLogit& each) { return each.token == token; });
  return TokenLogprob{token, logprob_of(drawn->logit, top.first[0].logit, top.total)};
}

// Draws one of the candidates after top_p and min_p. `total`, unless null, gets the weight that top_p
// computes.
uint32_t Sampler::draw(double* total) {
  if (options.top_p < 1) {
    const double sum = candidates_->keep_share(options.top_p);
    if (total) *total = sum;
  }
  if (options.min_p > 0) candidates_->keep_weight(options.min_p);
  return candidates_->draw(scale_, next_uniform());
}

// Returns the accepted tokens that the repetition penalty counts; none if it is off.
std::span<const uint32_t> Sampler::penalised_tokens(uint32_t vocab) const {
  const uint64_t window = options.repetition_window;
  const size_t count = window ? std::min<size_t>(window, accepted_.size()) : accepted_.size();
  const std::span<const uint32_t> tokens = std::span(accepted_).last(count);
  const auto outside =
      std::find_if(tokens.begin(), tokens.end(), [&](uint32_t token) { return token >= vocab; });
  if (outside != tokens.end())
    throw Error(ErrorKind::argument, "sample: accepted tokens: expected ids below " + std::to_string(vocab) +
                                         ", got " + std::to_string(*outside));
  return options.repetition_penalty == 1 ? std::span<const uint32_t>() : tokens;
}

// Returns the logits after the repetition penalty for accepted tokens, rounded to float once.
const float* Sampler::penalise(const float* logits, uint32_t vocab) {
  const std::span<const uint32_t> tokens = penalised_tokens(vocab);
  if (tokens.empty()) return logits;
  penalised_.assign(logits, logits + vocab);
  for (const uint32_t token : tokens)
    penalised_[token] = penalised_logit(logits[token], options.repetition_penalty);
  return penalised_.data();
}

// Returns the first `count` tokens by rank after the repetition penalty, or nothing if others may be among
// them.
std::optional<std::vector<TokenLogit>> Sampler::penalise(const TopLogits& top, size_t count) const {
  const std::span<const uint32_t> tokens = penalised_tokens(top.vocab);
  std::vector<TokenLogit> ranked = top.first;
  if (!tokens.empty()) {
    if (options.repetition_penalty < 1) return {};  // any token may rise
    for (TokenLogit& each : ranked)
      if (std::find(tokens.begin(), tokens.end(), each.token) != tokens.end())
        each.logit = penalised_logit(each.logit, options.repetition_penalty);
    std::sort(ranked.begin(), ranked.end(), ranks_before);
    // Tokens that are not listed rank after the last one that is, and a penalty only lowers them.
    if (top.first.size() < top.vocab && ranks_before(top.first.back(), ranked[count - 1])) return {};
  }
  ranked.resize(count);
  return ranked;
}

// Hashes the number of the draw: uniform over (0, 1], in steps of 2^-53.
double Sampler::next_uniform() {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  const uint64_t bits = mix(mix(options.seed) + ++draws_ * kGolden);
  return double((bits >> 11) + 1) * 0x1p-53;
}

std::vector<TokenLogprob> top_logprobs(const float* shared, uint32_t vocab, uint32_t count) {
  thread_local std::vector<float> logits;  // its memory, and that of `candidates`, is reused by the next call
  logits.resize(vocab);
  const Peak peak = copy_logits("top_logprobs", shared, vocab, logits.data());
  if (count == 0) return {};
  const double total = weigh(logits.data(), vocab, peak.value, 1);
  thread_local Candidates candidates;
  candidates.start(logits.data(), vocab, peak.value);
  candidates.keep_count(count);
  std::vector<TokenLogprob> top(candidates.count());
  for (uint32_t i = 0; i < top.size(); ++i)
    top[i] = {candidates.token(i), logprob_of(logits[candidates.token(i)], peak.value, total)};
  std::stable_sort(top.begin(), top.end(), [&](const TokenLogprob& a, const TokenLogprob& b) {
    return logits[a.token] > logits[b.token];
  });
  return top;
}

std::optional<std::vector<TokenLogprob>> top_logprobs(const TopLogits& top, uint32_t count) {
  if (!top.valid() || (count > top.first.size() && top.first.size() < top.vocab)) return {};
  std::vector<TokenLogprob> likeliest;
  for (const TokenLogit& each : std::span(top.first).first(std::min<size_t>(count, top.first.size())))
    if (each.logit > -INFINITY)
      likeliest.push_back({each.token, logprob_of(each.logit, top.first[0].logit, top.total)});
  return likeliest;
}

}  // namespace pyturbo
