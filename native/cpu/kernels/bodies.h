// Bodies: implementations of shader kernels that are made for a processor. A body stands for the kernel of
// the same name: it has the same arguments, already checked by the kernel's contract, and results within the
// tolerances of tests/tolerances.py.
//
// A source of bodies is compiled once per level (levels.h), in the namespace of that level. To add a body:
//
//   #include "arguments/norm/rms_norm.h"  // generated from shaders/norm/rms_norm.metal
//   template <typename W>
//   void rms_norm(Batch& batch, const arguments::rms_norm<W>& a) { batch.add(a.tokens, ...); }
//   PYTURBO_BODIES(norm, PYTURBO_BODY(rms_norm))  // once, at the end of norm.cpp
#pragma once

#include "cpu/batch.h"
#include "pyturbo/arguments.h"

namespace pyturbo::cpu {

using RunBody = void (*)(Batch& batch, const KernelInfo& kernel, const Arguments& launch);

// A body for the instances of a kernel that have certain types.
struct BodyForm {
  const DType* types;  // by template parameter; raw: any
  RunBody run;
};

struct Body {
  const char* function;  // KernelInfo::function
  const BodyForm* forms;
  uint32_t form_count;
};

// The bodies of one source.
struct BodyList {
  const Body* bodies;
  uint32_t count;
};

}  // namespace pyturbo::cpu

#ifdef PYTURBO_LEVEL

namespace pyturbo::cpu::PYTURBO_LEVEL {

// Reads the arguments of a launch and calls the body. The body adds items to the batch, or does the work at
// once where there is little; items hold copies of their data.
template <typename A, typename Call>
void run_body(Batch& batch, const KernelInfo& kernel, const Arguments& launch) {
  Call{}(batch, A::pt_read(kernel, launch));
}

template <typename Call, typename... A>
constexpr BodyForm kBodyForms[] = {{A::pt_types, run_body<A, Call>}...};

template <typename Call, typename First, typename... Rest>
constexpr Body make_body(Forms<First, Rest...>, Call) {
  return {First::pt_function, kBodyForms<Call, First, Rest...>, 1 + sizeof...(Rest)};
}

}  // namespace pyturbo::cpu::PYTURBO_LEVEL

#define PYTURBO_FIRST(first, ...) first

// PYTURBO_BODY(kernel): the function, or function template, of the kernel's name is its body.
// PYTURBO_BODY(kernel, function): the function of another name is.
#define PYTURBO_BODY(kernel, ...)                                          \
  make_body(arguments::kernel##_forms{}, [](Batch& batch, const auto& a) { \
    PYTURBO_FIRST(__VA_ARGS__ __VA_OPT__(, ) kernel)                       \
    (batch, a);                                                            \
  })

// PYTURBO_BODIES(stem, bodies...): the bodies of <stem>.cpp. kernels.cmake lists the stems.
#define PYTURBO_BODIES(stem, ...)           \
  namespace {                               \
  constexpr Body kBodies[] = {__VA_ARGS__}; \
  }                                         \
  extern const BodyList stem##_bodies = {kBodies, sizeof kBodies / sizeof *kBodies};

#endif  // PYTURBO_LEVEL
