// Rows of quantised matrices times one vector, for every matvec kernel. The simdgroups of a threadgroup form
// pairs: a pair has kRows rows, and each of the two half of the spans of a row. Loops over thread arrays are
// unrolled, so that the arrays are registers.
#pragma once

#include "units.h"

constexpr constant uint kRows = 4;                                        // rows of a pair of simdgroups
constexpr constant uint kSplit = 2;                                       // simdgroups that share rows
constexpr constant uint kRowSimdgroups = 4;                               // simdgroups of a threadgroup
constexpr constant uint kRowsPerGroup = kRows * kRowSimdgroups / kSplit;  // rows of a threadgroup
constexpr constant uint kRowThreads = 32 * kRowSimdgroups;                // threads of a threadgroup
constexpr constant uint kRowPartials =
    kRows * kRowSimdgroups;              // floats that a threadgroup shares for each matrix
constexpr constant uint kFewTokens = 8;  // tokens of a threadgroup of few_rows.h

// The number of spans in a row of w.
template <typename W>
inline uint spans_of(thread const W& w) {
  return w.units * (kUnit / W::kSpan);
}

// The first row of each matrix that a simdgroup multiplies, and the last row there is.
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

// The first rows of a thread's simdgroup, of which all threads of a threadgroup together have rows `first` and on.
inline RowRange rows_of(uint first, uint out, uint tid) {
  return RowRange{first + tid / 32 / kSplit * kRows, out - 1};
}

// Asks for the first span of a thread.
template <uint count, typename W>
inline void ask_rows(
    thread const W* w,
    uint spans,
    uint first,
    uint out,
    uint tid,
    thread typename W::Span* asked) {
  const uint span = tid % (32 * kSplit);
  if (span < spans) fetch_rows<count>(w, rows_of(first, out, tid), span, asked);
}

// sums[m] = row first + tid of w[m] times x, for the threads tid < kRowsPerGroup of the threadgroup, all of which
// call this after ask_rows. A row past out repeats the last one. `partial` has room for count * kRowPartials floats.
template <uint count, typename W, typename X>
inline void multiply_asked(
    thread const W* w,
    X x,
    uint spans,
    uint first,
    uint out,
    uint tid,
    threadgroup float* partial,
    thread typename W::Span* even,
    thread float* sums) {
  const uint simd = tid / 32;
  const uint lane = tid % 32;
  const RowRange rows = rows_of(first, out, tid);
  float own[count * kRows];
#pragma unroll
  for (uint i = 0; i < count * kRows; ++i) own[i] = 0;

  constexpr uint kStep = 32 * kSplit;
  typename W::Span odd[count * kRows];
  uint span = tid % kStep;
  if (W::kAhead) {
    for (; span < spans; span += 2 * kStep) {
      if (span + kStep < spans) fetch_rows<count>(w, rows, span + kStep, odd);
      add_rows<count>(w, even, x, span, own);
      if (span + 2 * kStep < spans) fetch_rows<count>(w, rows, span + 2 * kStep, even);
      if (span + kStep < spans) add_rows<count>(w, odd, x, span + kStep, own);
    }
  } else {
    for (; span < spans; span += kStep) {
      add_rows<count>(w, even, x, span, own);
      if (span + kStep < spans) fetch_rows<count>(w, rows, span + kStep, even);
    }
  }

#pragma unroll
  for (uint i = 0; i < count * kRows; ++i) {
    const float sum = simd_sum(own[i]);
    if (lane == i) partial[i / kRows * kRowPartials + simd * kRows + i % kRows] = sum;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid >= kRowsPerGroup) return;
  const uint part = tid / kRows * kSplit * kRows + tid % kRows;
#pragma unroll
  for (uint m = 0; m < count; ++m)
    sums[m] = partial[m * kRowPartials + part] + partial[m * kRowPartials + part + kRows];
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
    threadgroup float* partial,
    thread float* sums) {
  typename W::Span asked[count * kRows];
  ask_rows<count>(w, spans, first, out, tid, asked);
  multiply_asked<count>(w, x, spans, first, out, tid, partial, asked, sums);
}
