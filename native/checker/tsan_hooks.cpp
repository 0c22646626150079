// The callbacks of -fsanitize=thread as GCC 11-13 and Clang 14-19 emit them. Compiled into each kernel
// library without that flag and with hidden visibility, so that only the checked kernels of that library call
// them.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "checker/access.h"

namespace {

using pyturbo::checker::access;
using pyturbo::checker::kAtomic;
using pyturbo::checker::kRead;
using pyturbo::checker::kWrite;

constexpr uint32_t kUpdate = kRead | kWrite | kAtomic;

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_ignore_thread_begin() {}
void __tsan_ignore_thread_end() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define PYTURBO_ACCESS(size)                                                             \
  void __tsan_read##size(void* p) { access(p, size, kRead); }                            \
  void __tsan_write##size(void* p) { access(p, size, kWrite); }                          \
  void __tsan_read_write##size(void* p) { access(p, size, kRead | kWrite); }             \
  void __tsan_unaligned_read##size(void* p) { access(p, size, kRead); }                  \
  void __tsan_unaligned_write##size(void* p) { access(p, size, kWrite); }                \
  void __tsan_unaligned_read_write##size(void* p) { access(p, size, kRead | kWrite); }   \
  void __tsan_volatile_read##size(void* p) { access(p, size, kRead); }                   \
  void __tsan_volatile_write##size(void* p) { access(p, size, kWrite); }                 \
  void __tsan_unaligned_volatile_read##size(void* p) { access(p, size, kRead); }         \
  void __tsan_unaligned_volatile_write##size(void* p) { access(p, size, kWrite); }       \
  void __tsan_read##size##_pc(void* p, void*) { access(p, size, kRead); }                \
  void __tsan_write##size##_pc(void* p, void*) { access(p, size, kWrite); }              \
  void __tsan_read_write##size##_pc(void* p, void*) { access(p, size, kRead | kWrite); } \
  void __tsan_unaligned_read##size##_pc(void* p, void*) { access(p, size, kRead); }      \
  void __tsan_unaligned_write##size##_pc(void* p, void*) { access(p, size, kWrite); }    \
  void __tsan_unaligned_read_write##size##_pc(void* p, void*) { access(p, size, kRead | kWrite); }

PYTURBO_ACCESS(1)
PYTURBO_ACCESS(2)
PYTURBO_ACCESS(4)
PYTURBO_ACCESS(8)
PYTURBO_ACCESS(16)

void __tsan_read_range(void* p, size_t size) { access(p, size, kRead); }
void __tsan_write_range(void* p, size_t size) { access(p, size, kWrite); }
void __tsan_read_range_pc(void* p, size_t size, void*) { access(p, size, kRead); }
void __tsan_write_range_pc(void* p, size_t size, void*) { access(p, size, kWrite); }

void* __tsan_memcpy(void* to, const void* from, size_t size) {
  access(from, size, kRead);
  access(to, size, kWrite);
  return std::memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, size_t size) {
  access(from, size, kRead);
  access(to, size, kWrite);
  return std::memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, size_t size) {
  access(to, size, kWrite);
  return std::memset(to, value, size);
}

// Threadgroups of a checked launch run on one OS thread, so every memory order of an atomic holds.
#define PYTURBO_FETCH(bits, op)                                                                        \
  uint##bits##_t __tsan_atomic##bits##_fetch_##op(volatile uint##bits##_t* p, uint##bits##_t v, int) { \
    access(p, sizeof(v), kUpdate);                                                                     \
    return __atomic_fetch_##op(p, v, __ATOMIC_RELAXED);                                                \
  }

#define PYTURBO_COMPARE(bits, kind)                                                                       \
  int __tsan_atomic##bits##_compare_exchange_##kind(volatile uint##bits##_t* p, uint##bits##_t* expected, \
                                                    uint##bits##_t v, int, int) {                         \
    access(p, sizeof(v), kUpdate);                                                                        \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);        \
  }

#define PYTURBO_ATOMIC(bits)                                                                         \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* p, int) {                 \
    access(p, bits / 8, kRead | kAtomic);                                                            \
    return __atomic_load_n(p, __ATOMIC_RELAXED);                                                     \
  }                                                                                                  \
  void __tsan_atomic##bits##_store(volatile uint##bits##_t* p, uint##bits##_t v, int) {              \
    access(p, sizeof(v), kWrite | kAtomic);                                                          \
    __atomic_store_n(p, v, __ATOMIC_RELAXED);                                                        \
  }                                                                                                  \
  uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t* p, uint##bits##_t v, int) { \
    access(p, sizeof(v), kUpdate);                                                                   \
    return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);                                              \
  }                                                                                                  \
  PYTURBO_FETCH(bits, add)                                                                           \
  PYTURBO_FETCH(bits, sub)                                                                           \
  PYTURBO_FETCH(bits, and)                                                                           \
  PYTURBO_FETCH(bits, or)                                                                            \
  PYTURBO_FETCH(bits, xor)                                                                           \
  PYTURBO_FETCH(bits, nand)                                                                          \
  PYTURBO_COMPARE(bits, strong)                                                                      \
  PYTURBO_COMPARE(bits, weak)                                                                        \
  uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                         \
      volatile uint##bits##_t* p, uint##bits##_t expected, uint##bits##_t v, int, int) {             \
    access(p, sizeof(v), kUpdate);                                                                   \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);         \
    return expected;                                                                                 \
  }

PYTURBO_ATOMIC(8)
PYTURBO_ATOMIC(16)
PYTURBO_ATOMIC(32)
PYTURBO_ATOMIC(64)

void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
