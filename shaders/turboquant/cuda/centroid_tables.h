// The tables of a cache: of the centroids of its keys and of its values, which are one if both have as many bits.
#pragma once

#include "../../common/cuda/shared_rows.h"
#include "codes.h"

constexpr uint kKeyBits = key_bits, kValueBits = value_bits;

// Pairs of codes have a table where it leaves room for the other one. 8-bit codes have none: beside them a table of pairs
// must leave room for the tiles of attention.
constexpr bool has_pairs(uint bits, uint other) {
  if (other == 8) return bits <= 4 && kMostSharedBytes > 99 * 1024;
  return bits < 4 ? other != 4 : bits == 4 && other == 4;
}

using KeyTable = CentroidTable<kKeyBits, has_pairs(kKeyBits, kValueBits)>;
using ValueTable = CentroidTable<kValueBits, has_pairs(kValueBits, kKeyBits)>;
constexpr uint kTableWords = KeyTable::kWords + (kKeyBits == kValueBits ? 0 : ValueTable::kWords);
