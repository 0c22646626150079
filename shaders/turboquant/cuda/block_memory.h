// The memory of a threadgroup that attends to compressed keys on NVIDIA's matrix units.
#pragma once

#include "centroid_tables.h"

constexpr uint kUnitHeads = 8;
constexpr uint kWarpKeys = 16;
constexpr uint kBlockThreads = 32 * kOnlineSimdgroups;

// The memory of a block: tables and queries, and in the end the sums of half of the warps.
template <uint max_dim>
struct BlockMemory {
  // The columns of a lane of the result, and floats from those to the next lane's and from one head to the next, so that
  // lanes use different banks.
  static constexpr uint kColumns = max_dim / 8, kLane = kColumns + 2, kHead = 8 * kLane + 4;
  static constexpr uint kCopies = kOnlineSimdgroups / 2, kCopy = kUnitHeads * kHead;
  static constexpr uint kWork = kTableWords + kUnitHeads * max_dim, kJoin = kCopies * kCopy;
  static constexpr uint kSums = kWork > kJoin ? kWork : kJoin;
  static constexpr uint kEach = kOnlineSimdgroups * kUnitHeads;
  static constexpr uint kFloats = kSums + 3 * kEach;

  float* memory;

  uint* key_table() const { return reinterpret_cast<uint*>(memory); }
  uint* value_table() const { return key_table() + (kKeyBits == kValueBits ? 0 : KeyTable::kWords); }
  uint4* queries() const { return reinterpret_cast<uint4*>(memory + kTableWords); }
  float* sums(uint warp) const { return memory + warp % kCopies * kCopy; }
  float* tops() const { return memory + kSums; }  // [warps, heads], and so are the others
  float* totals() const { return memory + kSums + kEach; }
  float* means() const { return memory + kSums + 2 * kEach; }
};
