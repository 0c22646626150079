// Soft CUDA, for tests: what the GPU pretends to be, what was done wrong, what is still alive, what shall
// fail. All functions may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "soft/state.h"

namespace soft_cuda {

// What soft CUDA watches over.
enum class Rule {
  no_context,       // a call that needs a context on a thread that has none
  forked,           // a call in a child of fork()
  handle,           // an object that does not exist
  geometry,         // no threads, more than the kernel or the GPU allows, or an empty grid
  parameter,        // a value or address that the contract of the kernel excludes
  overlap,          // a copy within the GPU whose source and target overlap
  memory_range,     // memory that was never allocated, was freed, or is too short
  alignment,        // an address that is no multiple of the element's alignment
  shared_memory,    // too small for the kernel, or too large for the GPU
  missing_edge,     // two nodes of a graph depend on each other, and no path leads from one to the other
  host_memory,      // a copy from or to memory that is not the host's
  freed_in_use,     // memory was freed before work with it had ended
  compile_options,  // options or constants that the kernel does not know, or lacks
  kernel,           // the kernel itself failed
};

const char* rule_name(Rule rule);

using Violation = SoftViolation<Rule>;

struct Options {
  std::string name = "Soft CUDA";
  int capability = 90;
  int devices = 1;
  int multiprocessors = 132;
  int driver = 13000;  // the version of CUDA that the driver supports
  uint64_t memory = uint64_t(16) << 30;
  uint32_t max_threads = 1024;                              // of any kernel
  uint32_t max_shared_bytes = 49152;                        // of a threadgroup that did not ask for more
  uint32_t form_span = 1;                                   // of the form that every kernel has: threadgroups
  uint32_t form_bytes = 0;                                  // that are one, and shared memory; 0: no form
  uint32_t form_threads = 0;                                // of a threadgroup; 0: as in the contract
  uint32_t form_size = 16;                                  // of what the kernel says of it, in bytes
  uint32_t form_parts = 1;                                  // of one of the contract
  bool read_only_register = true;                           // cuMemHostRegister of mapped files
  std::vector<int> archs = {75, 80, 86, 89, 90, 100, 120};  // that NVRTC knows
  uint64_t seed = 1;                                        // of the order of nodes
};

enum class Fault {
  allocation,        // cuMemAlloc and cuMemHostAlloc find no memory
  compile,           // NVRTC fails with the text
  load,              // cuModuleLoadData fails
  load_memory,       // cuModuleLoadData finds no memory
  refused,           // a launch is refused
  instantiate,       // cuGraphInstantiate finds no memory
  launch,            // a launch or graph fails while it runs
  slow,              // a launch or graph ends `milliseconds` later
  slow_compile,      // NVRTC takes `milliseconds` longer
  slow_instantiate,  // so does cuGraphInstantiate
  slow_copy,         // so does the call of cuMemcpyHtoDAsync
  device_lost,       // this and every later call fails
};

using Injection = SoftInjection<Fault>;

// What happened since the last reset().
struct Counters {
  uint64_t launches = 0;  // single ones
  uint64_t groups = 0;    // threadgroups of these
  uint64_t graph_launches = 0;
  uint64_t graphs = 0;          // instantiated
  uint64_t nodes = 0;           // run
  uint64_t disabled_nodes = 0;  // reached, but disabled
  uint64_t edges = 0;           // of the graphs that ran
  uint64_t needless_edges = 0;  // of these: the two nodes do not depend on each other
  uint64_t early_edges = 0;     // made: the second node starts early, and waits
  uint64_t node_updates = 0;    // parameters set, or nodes enabled or disabled
  uint64_t compiled = 0;
  uint64_t loaded = 0;
  uint64_t copies_in = 0;
  uint64_t copies_out = 0;
  uint64_t registered = 0;
  uint64_t waits = 0;  // for a stream
  uint64_t allocations = 0;
};

void set_options(const Options& options);
Options options();
void inject(const Injection& injection);
std::vector<Violation> violations();
Counters counters();

// Options, violations, injections and counters as in a new process, and a context that works. Objects live
// on.
void reset();

// Objects that have not been destroyed, by class ("memory"). Classes without any are absent.
std::map<std::string, int> live_objects();

}  // namespace soft_cuda
