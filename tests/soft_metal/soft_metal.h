// Soft Metal, for tests: what the device pretends to be, what was done wrong, what is still alive, what shall
// fail. All functions may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "soft/state.h"

namespace soft_metal {

// What soft Metal watches over. Each is broken and kept by a case in cases/.
enum class Rule {
  autorelease_pool,      // an object was autoreleased where no pool is
  unknown_function,      // a name that the library does not have
  function_constant,     // missing, or of another type than the shader's
  pipeline_missing,      // dispatch before setComputePipelineState:
  unbound_argument,      // dispatch without a buffer or value that the kernel takes
  argument_size,         // a buffer shorter than the kernel's contract, or a value of another size
  argument_requirement,  // values that the kernel's Requires line excludes
  offset,                // past the buffer's end, or not a multiple of the element's alignment
  set_bytes_length,      // 0, or more than 4096 bytes
  binding_index,         // 31 or more
  threadgroup_size,      // no threads, more than the pipeline allows, or an empty grid
  threadgroup_memory,    // unset, not a multiple of 16 bytes, too small for the kernel, or too large for the
                         // device
  missing_barrier,       // two dispatches of a concurrent encoder depend on each other
  untracked_write,       // a kernel writes to a buffer whose hazards Metal was told not to track
  encoder_ended,         // use of an encoder after endEncoding
  encoder_open,          // commit, event or second encoder while one is open; or released before endEncoding
  debug_groups,          // popDebugGroup without pushDebugGroup, or groups left open
  committed,             // use of a command buffer after commit
  never_committed,       // a command buffer was released after enqueue and before commit (a warning)
  queue_full,            // a queue has as many command buffers as it makes, and none of them will finish
  wait_before_commit,    // waitUntilCompleted or waitUntilScheduled would never return
  released_in_use,       // a resource was released before a command buffer without references had finished
  buffer_length,         // 0, or more than maxBufferLength
  buffer_options,        // a storage mode that the call does not allow
  no_copy_alignment,     // pointer or length not a multiple of 16384, or not all of it mapped
  sample_buffer,         // counter samples where the device has none, or outside the buffer
  kernel,                // the checker's report about the kernel itself
};

const char* rule_name(Rule rule);

using Violation = SoftViolation<Rule>;

struct Options {
  std::string name = "Soft Metal";
  uint64_t max_buffer_length = uint64_t(1) << 33;
  uint64_t recommended_working_set = uint64_t(1) << 34;
  uint32_t max_threadgroup_bytes = 32768;
  uint32_t max_threads = 1024;  // of any pipeline
  uint32_t gpu_cores = 10;      // 0: the registry has no number
  std::vector<int64_t> families = {1007, 1008, 2002, 3001, 3002, 3003, 5001};  // MTLGPUFamily
  bool present = true;                                                         // false: there is no device
  bool counter_sampling = true;       // timestamps at pass boundaries
  bool residency_sets = true;         // answers to macOS 15's selectors
  bool checked = false;               // kernels run under the checker
  bool does_nothing = false;          // command queues made from now on run nothing
  uint32_t event_timeout_ms = 10000;  // a longer wait fails
};

enum class Fault {
  allocation,      // newBuffer... returns nil
  library,         // newLibrary... returns nil and an error
  pipeline,        // newComputePipelineState... returns nil and an error
  command_buffer,  // a committed command buffer runs nothing and ends with an error
  slow_pipeline,   // newComputePipelineState... takes `milliseconds` longer
  slow,            // a committed command buffer completes `milliseconds` later
  device_lost,     // this and every later command buffer ends with an error
  slow_residency,  // requestResidency takes `milliseconds` longer
};

using Injection = SoftInjection<Fault>;

// What happened since the last reset().
struct Counters {
  uint64_t command_buffers = 0;         // committed
  uint64_t made = 0;                    // command buffers
  uint64_t dropped = 0;                 // command buffers that were released before enqueue and commit
  uint64_t encoders = 0;                // ended
  uint64_t dispatches = 0;              // executed
  uint64_t empty_dispatches = 0;        // indirect ones that found no threadgroups
  uint64_t round_trips = 0;             // waits for a command buffer with nothing committed behind it
  uint64_t barriers = 0;                // encoded in concurrent encoders and reached
  uint64_t needless_barriers = 0;       // of these: nothing behind depends on anything before
  uint64_t pipelines_compiled = 0;      // not found in a binary archive
  uint64_t pipelines_from_archive = 0;  // found in one
  uint64_t libraries_from_source = 0;
  uint64_t residency_requests = 0;
  uint64_t resident = 0;  // allocations of the residency set that was committed or requested last
};

void set_options(const Options& options);  // for devices from now on and for those that exist
Options options();
void inject(const Injection& injection);
std::vector<Violation> violations();
Counters counters();

// Options, violations, injections and counters as in a new process. Objects live on.
void reset();

// Objects of soft Metal that have not been deallocated, by class ("MTLBuffer"). Classes without any are
// absent.
std::map<std::string, int> live_objects();

}  // namespace soft_metal
