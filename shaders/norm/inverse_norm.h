// The factor that normalises a row.
#pragma once

#include "../common/reduce.h"

// Sum of (x * scale)^2 over a row; all threads of `row` must call it and get the same bits. x is a pointer, or
// has values by index as a pointer does.
template <typename X, typename Row>
inline float sum_squares(X x, uint dim, float scale, Row row) {
  float sum = 0.0f;
  for (uint i = row.index; i < dim; i += row.count) {
    const float value = x[i] * scale;
    sum = fma(value, value, sum);
  }
  return row.sum(sum);
}

// rsqrt(sum(x^2) / divisor + eps): divisor dim for an RMS norm, 1 for an l2 norm. Squares of a finite row may
// overflow (|x| above 1e18); such a row is summed again at a scale where they cannot.
template <typename X, typename Row>
inline float inverse_norm(X x, uint dim, float divisor, float eps, Row row) {
  const float sum = sum_squares(x, dim, 1.0f, row);
  if (!isinf(sum)) return rsqrt(sum / divisor + eps);
  const float shrink = 8.271806125530277e-25f;  // 2^-80
  return rsqrt(sum_squares(x, dim, shrink, row) / divisor) * shrink;
}
