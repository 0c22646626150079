// The factor that normalises a row.
#pragma once

#include "../common/reduce.h"

// A thread's share of the sum of (x * scale)^2 over a row. x is a pointer, or has values by index as a pointer does.
template <typename X, typename Row>
inline float own_squares(X x, uint dim, float scale, Row row) {
  float sum = 0.0f;
  for (uint i = row.index; i < dim; i += row.count) {
    const float value = x[i] * scale;
    sum = fma(value, value, sum);
  }
  return sum;
}

// rsqrt(sum(x^2) / divisor + eps): divisor dim for an RMS norm, 1 for an l2 norm; `squares` is the thread's share of the
// sum. All threads of `row` must call it, and get the same bits. Squares of a finite row may overflow (|x| above
// 1e18); such a row is read, and summed at a scale where they cannot.
template <typename X, typename Row>
inline float inverse_norm_of(float squares, X x, uint dim, float divisor, float eps, Row row) {
  const float sum = row.sum(squares);
  if (!isinf(sum)) return rsqrt(sum / divisor + eps);
  const float shrink = 8.271806125530277e-25f;  // 2^-80
  return rsqrt(row.sum(own_squares(x, dim, shrink, row)) / divisor) * shrink;
}

template <typename X, typename Row>
inline float inverse_norm(X x, uint dim, float divisor, float eps, Row row) {
  return inverse_norm_of(own_squares(x, dim, 1.0f, row), x, dim, divisor, eps, row);
}
