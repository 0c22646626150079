// The gated delta rule on some rows of a head's state, by one simdgroup. With S before a token, y = g S q + d (k . q),
// so that all sums of a token are found at once.
#pragma once

#include "../common/lane_sums.h"

constexpr constant uint kRows = 4;  // rows that a simdgroup has at once

// A lane's columns of the rows: lane, lane + 32, ...
template <uint columns>
struct DeltaRows {
  float s[kRows][columns];
};

template <uint columns>
inline void load_rows(device const float* state, thread DeltaRows<columns>& rows) {
#pragma unroll
  for (uint r = 0; r < kRows; ++r) {
#pragma unroll
    for (uint c = 0; c < columns; ++c) rows.s[r][c] = state[(r * columns + c) * 32];
  }
}

template <uint columns>
inline void store_rows(device float* state, thread const DeltaRows<columns>& rows) {
#pragma unroll
  for (uint r = 0; r < kRows; ++r) {
#pragma unroll
    for (uint c = 0; c < columns; ++c) state[(r * columns + c) * 32] = rows.s[r][c];
  }
}

// k . q over all lanes.
template <uint columns>
inline float key_times_query(thread const float* key, thread const float* query) {
  float sum = 0;
#pragma unroll
  for (uint c = 0; c < columns; ++c) sum = fma(key[c], query[c], sum);
  return simd_sum(sum);
}

// Updates the rows, and returns y of row r to lane kRows + r. `value` is v of row lane % kRows.
template <uint columns>
inline float update_rows(
    thread DeltaRows<columns>& rows,
    thread const float* query,
    thread const float* key,
    float key_query,
    float value,
    float decay,
    float rate,
    uint lane) {
  float sums[2 * kRows] = {0};  // lane r gets S k of row r, lane kRows + r gets S q
#pragma unroll
  for (uint c = 0; c < columns; ++c) {
#pragma unroll
    for (uint r = 0; r < kRows; ++r) {
      sums[r] = fma(rows.s[r][c], key[c], sums[r]);
      sums[kRows + r] = fma(rows.s[r][c], query[c], sums[kRows + r]);
    }
  }
  const float decayed = decay * sums_by_lane<2 * kRows>(sums, lane);
  const float delta = simd_shuffle(rate * (value - decayed), ushort(lane % kRows));
#pragma unroll
  for (uint r = 0; r < kRows; ++r) {
    const float own = simd_shuffle(delta, ushort(r));
#pragma unroll
    for (uint c = 0; c < columns; ++c) rows.s[r][c] = fma(own, key[c], decay * rows.s[r][c]);
  }
  return fma(delta, key_query, decayed);
}
