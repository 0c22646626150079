// Rows of matrices times one vector, for every matvec kernel. The threads of a threadgroup form teams: a team has kRows
// rows, and its lanes share the spans of each. Loops over thread arrays are unrolled, so that the arrays are registers.
#pragma once

#include "units.h"

constexpr constant uint kRows = 4;                          // rows of a team
constexpr constant uint kRowTeams = 2;                      // teams of a threadgroup, but for row_teams.h
constexpr constant uint kRowSimdgroups = 4;                 // simdgroups of a threadgroup
constexpr constant uint kRowsPerGroup = kRows * kRowTeams;  // rows of a threadgroup
constexpr constant uint kRowThreads = 32 * kRowSimdgroups;  // threads of a threadgroup
constexpr constant uint kRowPartials =
    kRows * kRowSimdgroups;              // floats that a threadgroup shares for each matrix
constexpr constant uint kFewTokens = 8;  // tokens of a threadgroup of few_rows.h

// The number of spans in a row of w.
template <typename W>
inline uint spans_of(thread const W& w) {
  return w.units * (kUnit / W::kSpan);
}

// The first row of each matrix that a team multiplies, and the last row there is.
struct RowRange {
  uint first;
  uint last;
};

template <uint count, typename W>
inline void fetch_rows(thread const W* w, RowRange rows, uint span, thread typename W::Span* spans) {
#pragma unroll
  for (uint m = 0; m < count; ++m) {
#pragma unroll
    for (uint r = 0; r < kRows; ++r)
      fetch_span(w[m], min(rows.first + r, rows.last), span, spans[m * kRows + r]);
  }
}

// Values i to i + 3 of the vector; kernels may have vectors of other types.
inline float4 load_four(device const float* x, uint i) { return *(device const float4*)(x + i); }

// sums[m * kRows + r] += the span of row r of w[m] times x.
template <uint count, typename W, typename X>
inline void add_rows(
    thread const W* w,
    thread const typename W::Span* spans,
    X x,
    uint span,
    thread float* sums) {
  float values[W::kSpan];
  float totals[W::kTotals] = {};
#pragma unroll
  for (uint i = 0; i < W::kSpan; i += 4) {
    const float4 v = load_four(x, column_of(w[0], span, i));
    totals[i * W::kTotals / W::kSpan] += (v.x + v.y) + (v.z + v.w);
    values[i] = v.x * place_of(w[0], i);
    values[i + 1] = v.y * place_of(w[0], i + 1);
    values[i + 2] = v.z * place_of(w[0], i + 2);
    values[i + 3] = v.w * place_of(w[0], i + 3);
  }
#pragma unroll
  for (uint m = 0; m < count; ++m) {
#pragma unroll
    for (uint r = 0; r < kRows; ++r)
      sums[m * kRows + r] += dot_span(w[m], spans[m * kRows + r], values, totals);
  }
}

// The rows of a thread's team, of which all threads of a threadgroup together have rows `first` and on.
inline RowRange rows_of(uint first, uint out, uint tid, uint teams) {
  return RowRange{first + tid / (kRowThreads / teams) * kRows, out - 1};
}

// Asks for the first span of a thread.
template <uint count, typename W>
inline void ask_rows(
    thread const W* w,
    uint spans,
    uint first,
    uint out,
    uint tid,
    uint teams,
    thread typename W::Span* asked) {
  const uint span = tid % (kRowThreads / teams);
  if (span < spans) fetch_rows<count>(w, rows_of(first, out, tid, teams), span, asked);
}

// The sum of `width` neighbouring lanes, in each of them; a power of two up to 32.
inline float sum_of_lanes(float value, uint width) {
  if (width == 32) return simd_sum(value);
  for (uint distance = width / 2; distance > 0; distance /= 2)
    value += simd_shuffle_xor(value, ushort(distance));
  return value;
}

// sums[m] = row first + tid of w[m] times x, for the threads tid < kRows * teams of the threadgroup, all of which
// call this after ask_rows. A row past out repeats the last one. There are 1, 2, 4, 8 or 16 teams. `partial` has
// room for count times kRowPartials or kRows * teams floats, whichever are more.
template <uint count, typename W, typename X>
inline void multiply_asked(
    thread const W* w,
    X x,
    uint spans,
    uint first,
    uint out,
    uint tid,
    uint teams,
    threadgroup float* partial,
    thread typename W::Span* even,
    thread float* sums) {
  const uint lanes = kRowThreads / teams;  // of a team
  const RowRange rows = rows_of(first, out, tid, teams);
  float own[count * kRows];
#pragma unroll
  for (uint i = 0; i < count * kRows; ++i) own[i] = 0;

  typename W::Span odd[count * kRows];
  uint span = tid % lanes;
  if (W::kAhead) {
    for (; span < spans; span += 2 * lanes) {
      if (span + lanes < spans) fetch_rows<count>(w, rows, span + lanes, odd);
      add_rows<count>(w, even, x, span, own);
      if (span + 2 * lanes < spans) fetch_rows<count>(w, rows, span + 2 * lanes, even);
      if (span + lanes < spans) add_rows<count>(w, odd, x, span + lanes, own);
    }
  } else {
    for (; span < spans; span += lanes) {
      add_rows<count>(w, even, x, span, own);
      if (span + lanes < spans) fetch_rows<count>(w, rows, span + lanes, even);
    }
  }

  const uint width = min(lanes, 32u);  // lanes of a part of a team, which is inside a simdgroup
  const uint partials = max(kRowPartials, kRows * teams);
  threadgroup float* mine = partial + tid / width * kRows;
#pragma unroll
  for (uint i = 0; i < count * kRows; ++i) {
    const float sum = sum_of_lanes(own[i], width);
    if (tid % width == i) mine[i / kRows * partials + i % kRows] = sum;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid >= kRows * teams) return;
  const uint parts = lanes / width;
  const uint part = tid / kRows * parts * kRows + tid % kRows;
#pragma unroll
  for (uint m = 0; m < count; ++m) {
    sums[m] = partial[m * partials + part];
    for (uint p = 1; p < parts; ++p) sums[m] += partial[m * partials + part + p * kRows];
  }
}

// Both, one after the other.
template <uint count, typename W, typename X>
inline void multiply_rows(
    thread const W* w,
    X x,
    uint spans,
    uint first,
    uint out,
    uint tid,
    uint teams,
    threadgroup float* partial,
    thread float* sums) {
  typename W::Span asked[count * kRows];
  ask_rows<count>(w, spans, first, out, tid, teams, asked);
  multiply_asked<count>(w, x, spans, first, out, tid, teams, partial, asked, sums);
}
