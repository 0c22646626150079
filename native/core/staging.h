// Copies of host memory for single launches, as devices that cannot use it in place keep them. A `Copy` has
// the memory from `begin` to `end` that it stands for, and `written`, whether launches write it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace pyturbo {

// Sorts copies by address, and makes one of those that overlap.
template <typename Copy>
void merge_overlaps(std::vector<Copy>& copies) {
  std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) { return a.begin < b.begin; });
  std::vector<Copy> apart;
  for (Copy& copy : copies) {
    if (apart.empty() || copy.begin >= apart.back().end) {
      apart.push_back(std::move(copy));
    } else {
      apart.back().end = std::max(apart.back().end, copy.end);
      apart.back().written |= copy.written;
    }
  }
  copies = std::move(apart);
}

// Returns the copy that stands for this address. There must be one.
template <typename Copy>
const Copy& copy_at(const std::vector<Copy>& copies, const void* address) {
  const auto next =
      std::upper_bound(copies.begin(), copies.end(), address,
                       [](const void* a, const Copy& copy) { return a < static_cast<void*>(copy.begin); });
  return *std::prev(next);
}

}  // namespace pyturbo
