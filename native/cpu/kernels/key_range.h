// Ranges of keys, and the blocks that they are cut into.
#pragma once

#include "cpu/kernels/vector.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Keys [begin, end).
struct KeyRange {
  uint32_t begin, end;
};

// Keys of a block: as many as `blocks` blocks need for `keys` keys, but not fewer than `fewest`.
PYTURBO_INLINE uint32_t block_length(uint32_t keys, uint32_t blocks, uint32_t fewest) {
  const uint32_t share = (keys + blocks - 1) / blocks;
  return share > fewest ? share : fewest;
}

// Those of `all` in the `block`th of `blocks` blocks; later ones may have none.
PYTURBO_INLINE KeyRange block_of(KeyRange all, uint32_t block, uint32_t blocks, uint32_t fewest) {
  const uint32_t length = block_length(all.end - all.begin, blocks, fewest);
  const uint32_t from = uint32_t(least(all.begin + uint64_t(block) * length, uint64_t(all.end)));
  return {from, from + least(length, all.end - from)};
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
