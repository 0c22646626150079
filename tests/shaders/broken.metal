// One kernel per mistake the checker must report, each followed by a correct look-alike it must not flag.
// For tests/test_checker.py.
#include <metal_stdlib>
using namespace metal;

// Reads one element past the end.
// Dispatch: groups (1), threads (32)
kernel void read_past_end(
    device const float* in [[buffer(0)]],
    device float* out [[buffer(1)]],  // [32]
    uint i [[thread_position_in_grid]]) {
  out[i] = in[i + 1];
}

// Reads the next element where there is one.
// Dispatch: groups (1), threads (32)
kernel void read_past_end_ok(
    device const float* in [[buffer(0)]],
    device float* out [[buffer(1)]],  // [32]
    uint i [[thread_position_in_grid]]) {
  out[i] = i < 31 ? in[i + 1] : 0.0f;
}

// Writes far in front of a buffer.
// Dispatch: groups (1), threads (32)
kernel void write_before_start(
    device float* out [[buffer(0)]],
    device const float* other [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  out[int(i) - 2] = other[i];
}

// Writes through a pointer that starts two elements in.
// Dispatch: groups (1), threads (30)
kernel void write_before_start_ok(
    device float* out [[buffer(0)]],
    device const float* other [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  device float* shifted = out + 2;
  shifted[int(i) - 2] = other[i];
}

// Leaves a threadgroup array.
// Dispatch: groups (1), threads (32)
kernel void threadgroup_past_end(
    device float* out [[buffer(0)]],  // [32]
    uint i [[thread_position_in_grid]]) {
  threadgroup float first[32];
  threadgroup float second[32];
  first[i] = 1.0f;
  second[i] = 2.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = first[i + 4] + second[i];
}

// Stays inside it.
// Dispatch: groups (1), threads (32)
kernel void threadgroup_past_end_ok(
    device float* out [[buffer(0)]],  // [32]
    uint i [[thread_position_in_grid]]) {
  threadgroup float first[32];
  threadgroup float second[32];
  first[i] = 1.0f;
  second[i] = 2.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = first[(i + 4) % 32] + second[i];
}

// Half of the threads return before the barrier.
// Dispatch: groups (1), threads (64)
kernel void barrier_not_reached(
    device float* out [[buffer(0)]],  // [64]
    uint i [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = float(i);
  if (i >= 32) return;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[i ^ 1];
}

// They return after it.
// Dispatch: groups (1), threads (64)
kernel void barrier_not_reached_ok(
    device float* out [[buffer(0)]],  // [64]
    uint i [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = float(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i >= 32) return;
  out[i] = shared[i ^ 1];
}

// Threads wait at two different barriers.
// Dispatch: groups (1), threads (64)
kernel void barriers_differ(
    device float* out [[buffer(0)]],  // [64]
    uint i [[thread_position_in_grid]]) {
  if (i < 32) {
    threadgroup_barrier(mem_flags::mem_device);
  } else {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  out[i] = 1.0f;
}

// Reads threadgroup memory that nobody wrote.
// Dispatch: groups (2), threads (32)
kernel void never_written(
    device float* out [[buffer(0)]],  // [64]
    uint i [[thread_position_in_grid]],
    uint tid [[thread_position_in_threadgroup]]) {
  threadgroup float shared[32];
  if (tid < 31) shared[tid] = 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[tid];
}

// Reads what was written.
// Dispatch: groups (2), threads (32)
kernel void never_written_ok(
    device float* out [[buffer(0)]],  // [64]
    uint i [[thread_position_in_grid]],
    uint tid [[thread_position_in_threadgroup]]) {
  threadgroup float shared[32];
  if (tid < 31) shared[tid] = 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = tid < 31 ? shared[tid] : 0.0f;
}

// Reads a neighbour's word without a barrier.
// Dispatch: groups (1), threads (32)
kernel void threadgroup_race(
    device float* out [[buffer(0)]],  // [32]
    uint i [[thread_position_in_grid]]) {
  threadgroup float shared[32];
  shared[i] = float(i);
  out[i] = shared[i == 0 ? 0 : i - 1];
}

// Reads it after a barrier among the simdgroup.
// Dispatch: groups (1), threads (32)
kernel void threadgroup_race_ok(
    device float* out [[buffer(0)]],  // [32]
    uint i [[thread_position_in_grid]]) {
  threadgroup float shared[32];
  shared[i] = float(i);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[i == 0 ? 0 : i - 1];
}

// A simdgroup barrier does not order two simdgroups.
// Dispatch: groups (1), threads (64)
kernel void simdgroup_barrier_race(
    device float* out [[buffer(0)]],  // [64]
    uint i [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  shared[i] = float(i);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[63 - i];
}

// A barrier of the whole threadgroup does.
// Dispatch: groups (1), threads (64)
kernel void simdgroup_barrier_race_ok(
    device float* out [[buffer(0)]],  // [64]
    uint i [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  shared[i] = float(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[63 - i];
}

// The barrier orders threadgroup memory, but the data went through device memory.
// Dispatch: groups (1), threads (32)
kernel void wrong_fence(
    device float* scratch [[buffer(0)]],  // [32]
    device float* out [[buffer(1)]],      // [32]
    uint i [[thread_position_in_grid]]) {
  scratch[i] = float(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = scratch[31 - i];
}

// Here it orders device memory.
// Dispatch: groups (1), threads (32)
kernel void wrong_fence_ok(
    device float* scratch [[buffer(0)]],  // [32]
    device float* out [[buffer(1)]],      // [32]
    uint i [[thread_position_in_grid]]) {
  scratch[i] = float(i);
  threadgroup_barrier(mem_flags::mem_device);
  out[i] = scratch[31 - i];
}

// Two threadgroups write one word.
// Dispatch: groups (2), threads (32)
kernel void groups_race(
    device uint* out [[buffer(0)]],  // [32]
    uint tid [[thread_position_in_threadgroup]]) {
  out[tid] = tid;
}

// They add to it atomically.
// Dispatch: groups (2), threads (32)
kernel void groups_race_ok(
    device atomic_uint* out [[buffer(0)]],  // [32]
    uint tid [[thread_position_in_threadgroup]]) {
  atomic_fetch_add_explicit(&out[tid], tid, memory_order_relaxed);
}

// An atomic and a plain write meet.
// Dispatch: groups (1), threads (32)
kernel void half_atomic(
    device uint* out [[buffer(0)]],  // [1]
    uint tid [[thread_position_in_threadgroup]]) {
  if (tid == 0) {
    out[0] = 1;
  } else {
    atomic_fetch_add_explicit((device atomic_uint*)out, 1u, memory_order_relaxed);
  }
}

// Neighbours write neighbouring bytes of one word.
// Dispatch: groups (1), threads (32)
kernel void half_atomic_ok(
    device uchar* out [[buffer(0)]],  // [32]
    uint tid [[thread_position_in_threadgroup]]) {
  out[tid] = uchar(tid);
}

// Writes a neighbour's word in one statement.
void put(threadgroup float* words, uint at, float value) {
  const uint i = at % 32;
  words[i] = value;
}

// Reads and writes of functions belong to their own statements, those of the caller to the caller's.
// Dispatch: groups (1), threads (32)
kernel void function_race(
    device float* out [[buffer(0)]],  // [32]
    uint i [[thread_position_in_grid]]) {
  threadgroup float shared[32];
  put(shared, i, 1.0f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  put(shared, i + 1, 2.0f);
  out[i] = shared[i];
}

// Half of the statement is in a function.
float twice(threadgroup float* words, uint i) {
  const float value = words[i];
  return 2.0f * value;
}

// The write follows the call in the same statement.
// Dispatch: groups (1), threads (32)
kernel void caller_race(
    device float* out [[buffer(0)]],  // [32]
    uint i [[thread_position_in_grid]]) {
  threadgroup float shared[32];
  shared[i] = 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i / 2] = twice(shared, i);
}

// Each kind of statement in its turn reads what thread 31, the first after the barrier, has written.
// Dispatch: groups (1), threads (32)
kernel void statement_race(
    device float* out [[buffer(0)]],  // [32]
    constant uint& kind [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  threadgroup float shared[2];
  if (i == 0) shared[0] = shared[1] = 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  if (kind == 0)
    sum = shared[0];
  else if (kind == 1 && shared[0] > 0.0f)
    sum = 1.0f;
  for (uint n = kind == 2 ? uint(shared[0]) : 0; n < 1; ++n) sum += 1.0f;
  for (uint n = 0; n < (kind == 3 ? uint(shared[0]) + 1 : 1); n += kind == 4 ? uint(shared[0]) + 1 : 1)
    sum += 1.0f;
  while (kind == 5 && sum < shared[0]) sum += 1.0f;
  do {
    sum += 1.0f;
  } while (kind == 6 && shared[0] > 0.0f);
  switch (kind == 7 ? uint(shared[0]) : kind) {
    case 8: sum += shared[0]; break;
    default: sum += 2.0f;
  }
  const float more = kind == 9 ? shared[0] : 0.0f;
  if (i == 31) shared[0] = more;
  out[i] = sum;
}

// Half of a simdgroup writes and skips the barrier that the other half passes.
// Dispatch: groups (1), threads (32)
kernel void skipped_barrier(
    device float* out [[buffer(0)]],  // [32]
    uint i [[thread_position_in_grid]]) {
  threadgroup float shared[32];
  shared[i] = 0.0f;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (i >= 16) shared[i] = float(i);
  if (i < 16) simdgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = i < 16 ? shared[i + 16] : 0.0f;
}
