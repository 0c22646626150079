#include "sampling/repetitions.h"

#include <algorithm>

namespace pyturbo {
namespace {

using Sequence = std::vector<uint32_t>;

std::span<const Sequence> beginning_with(const std::vector<Sequence>& sorted, uint32_t token) {
  const auto first = std::lower_bound(sorted.begin(), sorted.end(), Sequence{token});
  auto last = first;
  while (last != sorted.end() && last->front() == token) ++last;
  return {first, last};
}

}  // namespace

Repetitions::Repetitions(std::vector<Sequence> breakers) : breakers_(std::move(breakers)) {
  std::sort(breakers_.begin(), breakers_.end());
}

// Returns the number of tokens after the breaker that begins last; of several that begin there, the longest.
uint64_t Repetitions::since_breaker(std::span<const uint32_t> tokens) const {
  for (size_t count = 1; count <= tokens.size(); ++count) {
    const std::span<const uint32_t> last = tokens.last(count);
    size_t longest = 0;
    for (const Sequence& breaker : beginning_with(breakers_, last[0]))
      if (breaker.size() <= count && std::equal(breaker.begin(), breaker.end(), last.begin()))
        longest = std::max(longest, breaker.size());
    if (longest) return count - longest;
  }
  return tokens.size();
}

// Computes all lengths in linear time: within the longest match so far, [begin, end), an earlier length tells
// where to start comparing.
void Repetitions::measure(std::span<const uint32_t> tokens) {
  const size_t count = tokens.size();
  const auto at = [&](size_t back) { return tokens[count - 1 - back]; };
  lengths_.assign(count, 0);
  size_t begin = 0, end = 0;
  for (size_t back = 1; back < count; ++back) {
    size_t length = back < end ? std::min<size_t>(lengths_[back - begin], end - back) : 0;
    while (back + length < count && at(length) == at(back + length)) ++length;
    lengths_[back] = length;
    if (back + length > end) begin = back, end = back + length;
  }
}

bool Repetitions::breaks_alone(uint32_t token) const {
  return std::binary_search(breakers_.begin(), breakers_.end(), Sequence{token});
}

}  // namespace pyturbo
