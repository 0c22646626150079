#include "sampling/adjustments.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>

#include "pyturbo/error.h"

namespace pyturbo {
namespace {

void require_known(const char* what, uint32_t token, uint32_t vocab) {
  if (token < vocab) return;
  throw Error(ErrorKind::argument, std::string("sample: ") + what + ": expected ids below " +
                                       std::to_string(vocab) + ", got " + std::to_string(token));
}

// base^exponent by squaring, for base >= 1; std::pow has other bits on other machines.
double power(double base, uint64_t exponent) {
  double result = 1;
  for (; exponent; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return std::min(result, double(FLT_MAX));
}

double finite(double value) { return std::clamp(value, double(-FLT_MAX), double(FLT_MAX)); }

}  // namespace

Adjustments::Adjustments(const SamplerOptions& options)
    : options_(options),
      penalises_(options.repetition_penalty != 1 || options.presence_penalty != 0 ||
                 options.frequency_penalty != 0),
      raises_(options.repetition_penalty < 1 || options.presence_penalty < 0 ||
              options.frequency_penalty < 0 ||
              std::any_of(
                  options.logit_bias.begin(), options.logit_bias.end(),
                  [](const TokenBias& each) { return each.bias > 0; })),
      repetitions_(options.dry_breakers) {}

void Adjustments::accept(std::span<const uint32_t> tokens) {
  accepted_.insert(accepted_.end(), tokens.begin(), tokens.end());
  const uint64_t dry = options_.dry_multiplier > 0 ? options_.dry_window : 1;
  const uint64_t window = std::max(options_.repetition_window, dry);
  const bool limited = options_.repetition_window && dry;
  if (limited && accepted_.size() / 2 >= window) accepted_.erase(accepted_.begin(), accepted_.end() - window);
}

void Adjustments::prepare(uint32_t vocab) {
  for (const Change& each : changes_) slots_[each.token] = 0;
  changes_.clear();
  for (const TokenBias& each : options_.logit_bias) {
    require_known("logit_bias", each.token, vocab);
    change(each.token).bias = each.bias;
  }
  for (const uint32_t token : last(options_.repetition_window)) {
    require_known("accepted tokens", token, vocab);
    if (penalises_) ++change(token).occurrences;
  }
  if (options_.dry_multiplier > 0) {
    const std::span<const uint32_t> tokens = last(options_.dry_window);
    for (const uint32_t token : tokens) require_known("accepted tokens", token, vocab);
    repetitions_.find(tokens, options_.dry_allowed_length, [&](uint32_t token, uint64_t length) {
      Change& found = change(token);
      found.repetition = std::max(found.repetition, length);
    });
  }
}

float Adjustments::adjusted(float logit, const Change& change) const {
  if (logit + change.bias == -INFINITY) return -INFINITY;
  double value = finite(logit + change.bias);
  if (change.occurrences) {
    value = finite(value > 0 ? value / options_.repetition_penalty : value * options_.repetition_penalty);
    value = finite(value - (change.occurrences * options_.frequency_penalty + options_.presence_penalty));
  }
  if (change.repetition)
    value -=
        options_.dry_multiplier * power(options_.dry_base, change.repetition - options_.dry_allowed_length);
  return float(finite(value));
}

Adjustments::Change& Adjustments::change(uint32_t token) {
  if (token >= slots_.size()) slots_.resize(token + 1);
  if (!slots_[token]) {
    changes_.push_back({token, 0, 0, 0});
    slots_[token] = uint32_t(changes_.size());
  }
  return changes_[slots_[token] - 1];
}

std::span<const uint32_t> Adjustments::last(uint64_t window) const {
  const std::span<const uint32_t> accepted(accepted_);
  return window ? accepted.last(std::min<size_t>(window, accepted.size())) : accepted;
}

}  // namespace pyturbo
