// Rows of matrices times one vector, for every matvec kernel. The threads of a threadgroup form teams: a team has kRows
// rows, and its lanes share the spans of each. Loops over thread arrays are unrolled, so that the arrays are registers.
#pragma once

#include "held.h"
#include "lane_sums.h"
#include "small_codes.h"
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

// The rows of each matrix that a team multiplies. Rows past the last one of the matrix repeat it.
template <uint count, typename W>
struct TeamRows {
  W w[count];  // from the first of them on
  uint last;   // which of them, 0 to 3, is the last one inside the matrix
};

// The rows of a thread's team, of which all threads of a threadgroup together have rows `first` and on.
template <uint count, typename W>
inline TeamRows<count, W> rows_of(thread const W* w, uint first, uint out, uint tid, uint teams) {
  const uint own = min(first + tid / (kRowThreads / teams) * kRows, out - 1);
  TeamRows<count, W> rows;
#pragma unroll
  for (uint m = 0; m < count; ++m) rows.w[m] = held(from_row(w[m], own));
  rows.last = min(kRows - 1, out - 1 - own);
  return rows;
}

template <uint count, typename W>
inline void fetch_rows(thread const TeamRows<count, W>& rows, uint span, thread typename W::Span* spans) {
#pragma unroll
  for (uint m = 0; m < count; ++m) {
#pragma unroll
    for (uint r = 0; r < kRows; ++r) fetch_span(rows.w[m], min(r, rows.last), span, spans[m * kRows + r]);
  }
}

// Values i to i + 3 of the vector; kernels may have vectors of other types.
inline float4 load_four(device const float* x, uint i) { return *(device const float4*)(x + i); }

// The values of x that a span is multiplied with, times place_of, and their totals before. If `scaled`, all are divided
// by a power of two near them, which is returned.
template <bool scaled, typename W, typename X>
inline float load_values(thread const W& w, X x, uint span, thread float* values, thread float* totals) {
  float size = 0;
#pragma unroll
  for (uint i = 0; i < W::kTotals; ++i) totals[i] = 0;
#pragma unroll
  for (uint i = 0; i < W::kSpan; i += 4) {
    const float4 v = load_four(x, column_of(w, span, i));
    totals[i * W::kTotals / W::kSpan] += (v.x + v.y) + (v.z + v.w);
    size += (abs(v.x) + abs(v.y)) + (abs(v.z) + abs(v.w));
#pragma unroll
    for (uint c = 0; c < 4; ++c) values[i + c] = v[c];
  }
  const float2 power = scaled ? power_near(size) : float2(1);
#pragma unroll
  for (uint i = 0; i < W::kSpan; ++i) values[i] = values[i] * power.y * place_of(w, i);
#pragma unroll
  for (uint i = 0; i < W::kTotals; ++i) totals[i] *= power.y;
  return power.x;
}

// sums[m * kRows + r] += the span of row r of w[m] times x. Returns whether all bits of x count, if x is not too large.
template <uint count, typename W, typename X>
inline bool add_rows(
    thread const W* w,
    thread const typename W::Span* spans,
    X x,
    uint span,
    thread float* sums) {
  float values[W::kSpan];
  float totals[W::kTotals];
  load_values<false>(w[0], x, span, values, totals);
#pragma unroll
  for (uint m = 0; m < count; ++m) {
#pragma unroll
    for (uint r = 0; r < kRows; ++r)
      sums[m * kRows + r] += dot_span(w[m], spans[m * kRows + r], values, totals);
  }
  bool counts = true;
#pragma unroll
  for (uint i = 0; i < W::kTotals; ++i) counts = counts && has_all_bits(totals[i]);
  return counts;
}

// What a lane has of the product of a row and x, whatever x is: its spans are `first` and each `step` after.
template <typename W, typename X>
inline float scaled_row(thread const W& w, uint row, X x, uint spans, uint first, uint step) {
  float sum = 0;
#pragma unroll 1
  for (uint span = first; span < spans; span += step) {
    typename W::Span own;
    float values[W::kSpan];
    float totals[W::kTotals];
    fetch_span(w, row, span, own);
    const float power = load_values<true>(w, x, span, values, totals);
    sum += dot_span(w, own, values, totals) * power;
  }
  return sum;
}

// sums[m * kRows + r] = what a lane has of row r of w[m], as scaled_row says. This is rare: it is slow, but takes few
// instructions and registers.
template <uint count, typename W, typename X>
inline void scale_rows(
    thread const TeamRows<count, W>& rows,
    X x,
    uint spans,
    uint first,
    uint step,
    thread float* sums) {
#pragma unroll
  for (uint m = 0; m < count; ++m) {
#pragma unroll 1
    for (uint r = 0; r < kRows; ++r) {
      const float sum = scaled_row(rows.w[m], min(r, rows.last), x, spans, first, step);
#pragma unroll
      for (uint i = 0; i < kRows; ++i) sums[m * kRows + i] = i == r ? sum : sums[m * kRows + i];
    }
  }
}

// Asks for the first span of a thread.
template <uint count, typename W>
inline void ask_rows(
    thread const TeamRows<count, W>& rows,
    uint spans,
    uint tid,
    uint teams,
    thread typename W::Span* asked) {
  const uint span = tid % (kRowThreads / teams);
  if (span < spans) fetch_rows(rows, span, asked);
}

// sums[m] = row first + tid of w[m] times x, for the threads tid < kRows * teams of the threadgroup, all of which
// call this after ask_rows. A row past out repeats the last one. There are 1, 2, 4, 8 or 16 teams. `partial` has
// room for count times kRowPartials or kRows * teams floats, whichever are more.
template <uint count, typename W, typename X>
inline void multiply_asked(
    thread const TeamRows<count, W>& rows,
    X x,
    uint spans,
    uint tid,
    uint teams,
    threadgroup float* partial,
    thread typename W::Span* even,
    thread float* sums) {
  const uint lanes = kRowThreads / teams;  // of a team
  float own[count * kRows];
#pragma unroll
  for (uint i = 0; i < count * kRows; ++i) own[i] = 0;

  typename W::Span odd[count * kRows];
  bool counts = true;
  uint span = tid % lanes;
  if (W::kAhead) {
    for (; span < spans; span += 2 * lanes) {
      if (span + lanes < spans) fetch_rows(rows, span + lanes, odd);
      counts = add_rows<count>(rows.w, even, x, span, own) && counts;
      if (span + 2 * lanes < spans) fetch_rows(rows, span + 2 * lanes, even);
      if (span + lanes < spans) counts = add_rows<count>(rows.w, odd, x, span + lanes, own) && counts;
    }
  } else {
    for (; span < spans; span += lanes) {
      counts = add_rows<count>(rows.w, even, x, span, own) && counts;
      if (span + lanes < spans) fetch_rows(rows, span + lanes, even);
    }
  }
  if (W::kSmall) {
#pragma unroll
    for (uint i = 0; i < count * kRows; ++i) counts = counts && isfinite(own[i]);
    if (!counts) scale_rows(rows, x, spans, tid % lanes, lanes, own);
  }

  const uint width = min(lanes, 32u);  // lanes of a part of a team, which is inside a simdgroup
  const uint partials = max(kRowPartials, kRows * teams);
  threadgroup float* mine = partial + tid / width * kRows;
#pragma unroll
  for (uint m = 0; m < count; ++m) {
    const float sum = sums_by_lane<kRows>(own + m * kRows, tid % 32, width);
    if (tid % width < kRows) mine[m * partials + tid % width] = sum;
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
  const TeamRows<count, W> rows = rows_of<count>(w, first, out, tid, teams);
  ask_rows(rows, spans, tid, teams, asked);
  multiply_asked(rows, x, spans, tid, teams, partial, asked, sums);
}
