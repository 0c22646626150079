// Repetitions of the last tokens, for the DRY penalty.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pyturbo {

// Memory is reused from one search to the next. Owner: Adjustments.
class Repetitions {
 public:
  // A repetition begins after the last breaker: a sequence of one token or more.
  explicit Repetitions(std::vector<std::vector<uint32_t>> breakers);

  // Calls found(token, length) for each place at which the last `length` >= `least` tokens have been before,
  // and `token` came next. A token that is a breaker by itself is left out.
  template <typename Found>
  void find(std::span<const uint32_t> tokens, uint64_t least, Found found) {
    const uint64_t longest = since_breaker(tokens);
    if (longest < least) return;
    measure(tokens);
    for (size_t back = 1; back < tokens.size(); ++back) {
      const uint64_t length = std::min(lengths_[back], longest);
      const uint32_t next = tokens[tokens.size() - back];
      if (length >= least && !breaks_alone(next)) found(next, length);
    }
  }

 private:
  uint64_t since_breaker(std::span<const uint32_t> tokens) const;
  void measure(std::span<const uint32_t> tokens);
  bool breaks_alone(uint32_t token) const;

  std::vector<std::vector<uint32_t>> breakers_;  // sorted
  std::vector<uint64_t> lengths_;  // by `back`: how many tokens before the last `back` equal the last tokens
};

}  // namespace pyturbo
