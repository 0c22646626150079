// What the delta net in chunks works on.
#pragma once

#include "../common/lane_sums.h"  // for the form of chunks.h

constexpr constant uint kTokens = 32;  // of a chunk, one per lane
constexpr constant uint kBlock = 8;    // rows and columns of a simdgroup matrix
constexpr constant uint kBlocks = kTokens / kBlock;
constexpr constant uint kSimdgroups = 8;  // of a threadgroup, each with kBlock rows of the state
constexpr constant uint kThreads = 32 * kSimdgroups;
constexpr constant uint kRows = kSimdgroups * kBlock;  // state rows of a threadgroup
constexpr constant uint kColumns = 32;                 // of q and k that are staged at a time
constexpr constant uint kStride = 32 + 4;  // floats of a row in threadgroup memory: rows start in other banks

// Threadgroup memory that the simdgroups share.
struct ChunkMemory {
  threadgroup float* keys;     // [kTokens, kStride], a tile of k
  threadgroup float* queries;  // [kTokens, kStride], a tile of q
  threadgroup float* steps;    // [kTokens, kStride]: -beta[l] G(l, i) (k[l] . k[i]) for i < l
  threadgroup float* weights;  // [kTokens, kStride]: G(l, i) (q[l] . k[i]) for i <= l
  threadgroup float* kept;     // [kTokens, kBlock]: kBlock times G(l)
  threadgroup float* rates;    // [kTokens]: beta
  threadgroup float* ends;     // [kTokens]: G(last, i)
  threadgroup float* updates;  // [kSimdgroups, kTokens, kBlock]: u of each simdgroup
  threadgroup float* sums;     // [kSimdgroups, kBlock, kBlock], scratch
};

// One value head.
struct ChunkHead {
  device const float* q;  // token t at t * qk_stride, and so is that of k
  device const float* k;
  device const float* v;  // token t at t * v_stride
  device const float* g;  // token t at t * gate_stride, and so is that of beta
  device const float* beta;
  device float* state;  // [v_dim, k_dim]
  device float* y;      // token t at t * y_stride
  uint tokens;
  uint v_dim;
  uint qk_stride;
  uint v_stride;
  uint gate_stride;
  ulong y_stride;
};
