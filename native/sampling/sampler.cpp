#include "pyturbo/sampler.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <string>

#include "pyturbo/error.h"
#include "pyturbo/process.h"
#include "sampling/adjustments.h"
#include "sampling/candidates.h"
#include "sampling/softmax.h"

namespace pyturbo {
namespace {

void require(bool fulfilled, const char* name, const char* expected, double got) {
  if (fulfilled) return;
  char number[32];
  std::snprintf(number, sizeof number, "%g", got);
  throw Error(ErrorKind::argument,
              std::string("Sampler: ") + name + ": expected " + expected + ", got " + number);
}

const SamplerOptions& checked(const SamplerOptions& o) {
  require(o.temperature >= 0 && std::isfinite(o.temperature), "temperature", "a finite number from 0 on",
          o.temperature);
  require(o.top_p > 0 && o.top_p <= 1, "top_p", "a number above 0 and at most 1", o.top_p);
  require(o.min_p >= 0 && o.min_p <= 1, "min_p", "a number from 0 to 1", o.min_p);
  require(o.typical_p > 0 && o.typical_p <= 1, "typical_p", "a number above 0 and at most 1", o.typical_p);
  require(o.top_n_sigma >= 0 && std::isfinite(o.top_n_sigma), "top_n_sigma", "a finite number from 0 on",
          o.top_n_sigma);
  require(o.xtc_probability >= 0 && o.xtc_probability <= 1, "xtc_probability", "a number from 0 to 1",
          o.xtc_probability);
  require(o.xtc_threshold >= 0 && o.xtc_threshold <= 0.5, "xtc_threshold", "a number from 0 to 0.5",
          o.xtc_threshold);
  require(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), "repetition_penalty",
          "a finite number above 0", o.repetition_penalty);
  require(std::isfinite(o.presence_penalty), "presence_penalty", "a finite number", o.presence_penalty);
  require(std::isfinite(o.frequency_penalty), "frequency_penalty", "a finite number", o.frequency_penalty);
  require(o.dry_multiplier >= 0 && std::isfinite(o.dry_multiplier), "dry_multiplier",
          "a finite number from 0 on", o.dry_multiplier);
  require(o.dry_base >= 1 && std::isfinite(o.dry_base), "dry_base", "a finite number from 1 on", o.dry_base);
  require(o.dry_allowed_length >= 1, "dry_allowed_length", "an integer from 1 on",
          double(o.dry_allowed_length));
  for (const TokenBias& each : o.logit_bias)
    require(each.bias < INFINITY, "logit_bias", "finite numbers or -inf", each.bias);
  for (const std::vector<uint32_t>& breaker : o.dry_breakers)
    require(!breaker.empty(), "dry_breakers", "sequences of at least one token", 0);
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

bool ranks_before(const TokenLogit& a, const TokenLogit& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

void require_words(TokenMask allowed, uint32_t vocab) {
  const size_t words = (size_t(vocab) + 31) / 32;
  if (!allowed.empty() && allowed.size() != words)
    throw Error(ErrorKind::argument, "sample: allowed: expected " + std::to_string(words) + " words for " +
                                         std::to_string(vocab) + " tokens, got " +
                                         std::to_string(allowed.size()));
}

bool is_allowed(TokenMask allowed, uint32_t token) {
  return allowed.empty() || (allowed[token / 32] >> (token % 32) & 1);
}

// Returns how many tokens of a vocabulary a mask allows.
uint32_t count_allowed(TokenMask allowed, uint32_t vocab) {
  uint32_t count = 0;
  for (uint32_t begin = 0; begin < vocab; begin += 32)
    count += uint32_t(std::popcount(allowed[begin / 32] & (~0u >> (32 - std::min(32u, vocab - begin)))));
  return count;
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
      adjustments_(std::make_unique<Adjustments>(options)),
      candidates_(std::make_unique<Candidates>()),
      forks_(fork_count()) {}

Sampler::~Sampler() = default;

std::unique_lock<std::mutex> Sampler::lock() {
  const uint32_t forks = fork_count();
  if (forks_.load() == forks) return std::unique_lock(running_);
  std::unique_lock locked(running_, std::try_to_lock);
  if (!locked) {
    if (forks_.load() == forks)
      return std::unique_lock(running_);  // another thread of this process was first
    // A thread that has it is the parent's, and never gives it back.
    throw Error(ErrorKind::state, "the sampler was in use by another thread when this process was forked");
  }
  forks_.store(forks);
  return locked;
}

void Sampler::accept(const uint32_t* tokens, uint64_t count) {
  const auto locked = lock();
  adjustments_->accept({tokens, count});
}

TokenLogprob Sampler::sample(const float* shared, uint32_t vocab, TokenMask allowed) {
  const auto locked = lock();
  require_words(allowed, vocab);
  logits_.resize(vocab);
  const float* logits = logits_.data();
  const Peak given = copy_logits("sample", shared, vocab, logits_.data());
  const float* adjusted = adjust(logits, vocab);
  const bool unchanged = adjusted == logits && allowed.empty();

  uint32_t token;
  if (allowed.empty()) {
    const Peak peak = unchanged ? given : find_peak("sample", adjusted, vocab);
    token = peak.position;
    if (options.temperature > 0) candidates_->start(adjusted, vocab, peak.value);
  } else {
    if (!candidates_->start(adjusted, vocab, allowed))
      throw Error(ErrorKind::argument,
                  "sample: allowed: expected at least one token that may be drawn, got none");
    token = candidates_->first();
  }
  double total = 0;  // weight of the logits as given, if a step below has computed it
  if (options.temperature > 0) {
    const bool limited = options.top_k && options.top_k < vocab;
    const bool filtered = limited || options.top_n_sigma > 0 || options.typical_p < 1;
    if (options.top_n_sigma > 0) candidates_->keep_sigma(options.top_n_sigma);
    if (limited) candidates_->keep_count(uint32_t(options.top_k));
    token = draw(unchanged && !filtered ? &total : nullptr);
  }
  if (total == 0) total = weigh(logits, vocab, given.value, 1);
  return {token, logprob_of(logits[token], given.value, total)};
}

std::optional<TokenLogprob> Sampler::sample(const TopLogits& top, TokenMask allowed) {
  const auto locked = lock();
  require_words(allowed, top.vocab);
  std::optional<std::vector<TokenLogit>> kept = first_of(top, allowed);
  if (!kept) return {};

  uint32_t token = kept->front().token;
  if (options.temperature > 0) {
    std::sort(kept->begin(), kept->end(),
              [](const TokenLogit& a, const TokenLogit& b) { return a.token < b.token; });
    candidates_->start(*kept);
    token = draw(nullptr);
  }
  const auto drawn = std::find_if(top.first.begin(), top.first.end(),
                                  [&](const TokenLogit& each) { return each.token == token; });
  return TokenLogprob{token, logprob_of(drawn->logit, top.first[0].logit, top.total)};
}

// Draws one of the candidates that top_n_sigma and top_k have left. `total`, unless null, gets the weight
// that top_p computes.
uint32_t Sampler::draw(double* total) {
  if (options.typical_p < 1) candidates_->keep_typical(options.typical_p);
  if (options.top_p < 1) {
    const double sum = candidates_->keep_share(options.top_p);
    if (total) *total = sum;
  }
  if (options.min_p > 0) candidates_->keep_weight(options.min_p);
  if (options.xtc_probability > 0 && next_uniform() <= options.xtc_probability)
    candidates_->drop_likeliest(options.xtc_threshold);
  return candidates_->draw(scale_, next_uniform());
}

// Returns the logits after bias and penalties.
const float* Sampler::adjust(const float* logits, uint32_t vocab) {
  adjustments_->prepare(vocab);
  if (adjustments_->changes().empty()) return logits;
  adjusted_.assign(logits, logits + vocab);
  for (const Adjustments::Change& change : adjustments_->changes())
    adjusted_[change.token] = adjustments_->adjusted(logits[change.token], change);
  return adjusted_.data();
}

// Returns the tokens that sample() draws from, by rank: the first one at temperature 0, otherwise those that
// top_k keeps. Nothing if they are not all among `top`, or if sample() does not list its candidates, so that
// its sums have other bits.
std::optional<std::vector<TokenLogit>> Sampler::first_of(const TopLogits& top, TokenMask allowed) {
  if (!top.valid()) return {};
  adjustments_->prepare(top.vocab);
  const uint64_t count = options.temperature > 0 ? options.top_k : 1;
  if (options.temperature > 0 && options.top_n_sigma > 0) return {};
  if (allowed.empty() && (count == 0 || (options.temperature > 0 && count >= top.vocab))) return {};

  std::vector<TokenLogit> ranked = top.first;
  std::erase_if(ranked, [&](const TokenLogit& each) { return !is_allowed(allowed, each.token); });
  bool complete = top.first.size() == top.vocab || top.first.back().logit == -INFINITY;
  if (!allowed.empty() && !complete) complete = ranked.size() == count_allowed(allowed, top.vocab);
  if (!complete && adjustments_->raises()) return {};
  for (TokenLogit& each : ranked)
    if (const Adjustments::Change* change = adjustments_->change_of(each.token))
      each.logit = adjustments_->adjusted(each.logit, *change);
  std::erase_if(ranked, [](const TokenLogit& each) { return each.logit == -INFINITY; });
  std::sort(ranked.begin(), ranked.end(), ranks_before);
  if (ranked.empty()) return {};
  if (!complete) {
    // Tokens that are not listed rank after the last one that is, and nothing raises them.
    if (count == 0 || ranked.size() < count) return {};
    if (ranks_before(top.first.back(), ranked[size_t(count) - 1])) return {};
  }
  if (count && count < ranked.size()) ranked.resize(size_t(count));
  return ranked;
}

std::optional<Sampler::Draw> Sampler::upcoming(uint64_t number) {
  const SamplerOptions& o = options;
  const bool adjusts = o.repetition_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0 ||
                       o.dry_multiplier > 0 || !o.logit_bias.empty();
  if (adjusts) return {};
  if (o.temperature == 0) return Draw{1, 1, 0, 1, 1};
  if (o.top_k == 0 || o.typical_p < 1 || o.top_n_sigma > 0 || o.xtc_probability > 0) return {};
  const auto locked = lock();
  return Draw{o.top_k, o.top_p, o.min_p, o.temperature, uniform(draws_ + number)};
}

// Hashes the number of the draw: uniform over (0, 1], in steps of 2^-53.
double Sampler::uniform(uint64_t draw) const {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  const uint64_t bits = mix(mix(options.seed) + draw * kGolden);
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
