#include "cpu/features.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace pyturbo::cpu {
namespace {

struct Feature {
  const char* name;
  uint32_t word, bit;     // where the machine says that it has it
  const char* levels[3];  // that use it, or something better
};

#if defined(__x86_64__)

// `word` is a register, a to d, of leaf 7 of cpuid: 0 to 3 of subleaf 0, 4 to 7 of subleaf 1.
constexpr Feature kFeatures[] = {
    {"avx512f", 1, 16, {"amx", "vnni", "avx512"}},
    {"avx512_vnni", 2, 11, {"amx", "vnni"}},
    {"avx_vnni", 4, 4, {"amx", "vnni", "avxvnni"}},
    {"avx512_vbmi", 2, 1, {}},
    {"avx512_bf16", 4, 5, {}},
    {"avx512_fp16", 3, 23, {}},
    {"amx_int8", 3, 25, {}},
    {"amx_bf16", 3, 22, {"amx"}},
    {"amx_fp16", 4, 21, {}},
    {"avx_vnni_int8", 7, 4, {}},
};

bool has(const Feature& feature) {
  unsigned words[4];
  if (!__get_cpuid_count(7, feature.word / 4, words, words + 1, words + 2, words + 3)) return false;
  return words[feature.word % 4] >> feature.bit & 1;
}

#elif defined(__aarch64__) && defined(__linux__)

// `word` is 0 for AT_HWCAP, 1 for AT_HWCAP2.
constexpr Feature kFeatures[] = {
    {"asimddp", 0, 20, {"i8mm", "dotprod"}},
    {"i8mm", 1, 13, {"i8mm"}},
    {"asimdhp", 0, 10, {}},
    {"bf16", 1, 14, {}},
    {"sve", 0, 22, {}},
    {"sve2", 1, 1, {}},
    {"sme", 1, 23, {}},
    {"sme2", 1, 37, {}},
};

bool has(const Feature& feature) {
  return getauxval(feature.word == 0 ? AT_HWCAP : AT_HWCAP2) >> feature.bit & 1;
}

#elif defined(__aarch64__) && defined(__APPLE__)

constexpr Feature kFeatures[] = {
    {"FEAT_DotProd", 0, 0, {"i8mm", "dotprod"}},
    {"FEAT_I8MM", 0, 0, {"i8mm"}},
    {"FEAT_FP16", 0, 0, {}},
    {"FEAT_BF16", 0, 0, {}},
    {"FEAT_SME", 0, 0, {}},
    {"FEAT_SME2", 0, 0, {}},
};

bool has(const Feature& feature) {
  int found = 0;
  size_t size = sizeof found;
  const std::string name = std::string("hw.optional.arm.") + feature.name;
  return sysctlbyname(name.c_str(), &found, &size, nullptr, 0) == 0 && found;
}

#else

constexpr Feature kFeatures[] = {{"", 0, 0, {}}};

bool has(const Feature&) { return false; }

#endif

bool uses(const char* level, const Feature& feature) {
  for (const char* user : feature.levels)
    if (user && std::strcmp(user, level) == 0) return true;
  return false;
}

}  // namespace

std::string unused_features(const char* level) {
  std::string names;
  for (const Feature& feature : kFeatures)
    if (!uses(level, feature) && has(feature))
      names += (names.empty() ? "" : " ") + std::string(feature.name);
  return names;
}

}  // namespace pyturbo::cpu
