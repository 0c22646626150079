// A kernel as the host sees it: arguments, contract and body, as the front end generates them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyturbo {

inline constexpr uint32_t kMaxArguments = 31;            // Metal's limit on buffers of one kernel
inline constexpr uint32_t kMaxConstants = 64;            // function constants of one shader
inline constexpr uint32_t kMaxThreads = 1024;            // threads of one threadgroup
inline constexpr uint32_t kMaxThreadgroupBytes = 32768;  // threadgroup memory, declared and bound together
inline constexpr uint32_t kSimdWidth = 32;

struct Extent {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t(x) * y * z; }
};

// Geometry of one launch: the number of threadgroups, and of threads in each.
struct Dispatch {
  Extent groups;
  Extent threads;
};

enum class DType : uint8_t { f32, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64, boolean, raw };

enum class ArgumentKind : uint8_t {
  buffer,       // device or constant pointer, bound at [[buffer(index)]]
  value,        // constant reference, bound at [[buffer(index)]]
  threadgroup,  // threadgroup pointer, bound at [[threadgroup(index)]]
};

struct ArgumentInfo {
  const char* name;
  const char* type;  // as written in the shader, template parameters substituted
  ArgumentKind kind;
  bool writable;  // buffers: not const
  DType dtype;    // element type (of a vector: its component); raw for structs
  uint32_t index;
  uint32_t size;        // bytes of one element, or of the value
  uint32_t alignment;   // of the memory, or of the value
  uint32_t components;  // of one element, or of the value: more than one for vectors
  int32_t condition;    // slot of the boolean function constant that makes the argument exist, or -1
};

struct ConstantInfo {
  const char* name;
  DType dtype;
  uint32_t index;  // [[function_constant(index)]]
  uint32_t slot;   // in Arguments::constants
  uint32_t size;
  bool required;  // false where the shader asks is_function_constant_defined()
};

// A template parameter, as one instance sets it.
struct ParameterInfo {
  const char* name;
  DType type;     // of a type parameter: the element type it stands for; raw for anything else
  int64_t value;  // of an integer or boolean parameter; 0 for anything else
};

// The bound arguments of one launch. Slots are [[buffer(n)]] and [[threadgroup(n)]] indices.
struct Arguments {
  void* buffers[kMaxArguments] = {};  // address of the data, or of the value's bytes
  uint64_t bytes[kMaxArguments] = {};
  uint32_t threadgroup_bytes[kMaxArguments] = {};
  const void* constants[kMaxConstants] = {};  // by slot: address of the value; null: undefined
};

// The position of one GPU thread. Every other index that Metal offers a thread follows from these.
struct Position {
  Extent thread;  // in its threadgroup
  Extent group;   // in the grid
  Extent threads_per_group;
  Extent groups;
  uint32_t index;  // linear thread index in its threadgroup
};

// Runs one GPU thread of a kernel.
using KernelBody = void (*)(const Arguments&, const Position&);

// One kernel instance. The function pointers are generated from the kernel and from the contract above it.
struct KernelInfo {
  const char* name;      // host_name of the instance
  const char* function;  // name in the shader, without template arguments
  const char* file;      // relative to shaders/
  uint32_t line;
  uint32_t argument_count;
  const ArgumentInfo* arguments;  // in declaration order
  uint32_t constant_count;
  const ConstantInfo* constants;
  uint32_t parameter_count;
  const ParameterInfo* parameters;  // in the order of the template; null without
  uint32_t threadgroup_bytes;       // of the arrays declared inside the kernel
  uint32_t max_threads;  // of a threadgroup: [[max_total_threads_per_threadgroup]], else kMaxThreads
  KernelBody body;

  // Dispatch line of the contract; null when the kernel has none and the caller must give the geometry.
  void (*dispatch)(const Arguments&, Dispatch&);
  // Requires line: the text of the first requirement that does not hold, or null.
  const char* (*violated)(const Arguments&);
  // Shape comment of arguments[i]: the number of elements the kernel may touch; -1 when there is no shape.
  int64_t (*elements)(const Arguments&, uint32_t argument);

  // The shader and its headers, relative to shaders/. Statements refer to them by index (simt::statement).
  const char* const* files;
};

// How the bodies of a table were compiled.
enum class Variant : uint8_t { reference, checked };

// The kernels of a shader. Those of both variants are the same but for their bodies.
struct KernelTable {
  Variant variant;
  uint32_t count;
  const KernelInfo* kernels;  // of the reference
  const KernelBody* bodies;   // of the variant
};

}  // namespace pyturbo
