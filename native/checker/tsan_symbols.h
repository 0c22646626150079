// Included by every translation unit compiled with -fsanitize=thread. GCC, and Clang before 15, copy
// structs by calls of memcpy, memmove and memset that are not reported. These definitions replace them by the
// reported ones of tsan_hooks.cpp.
#pragma once

#if defined(__ELF__)
asm("memcpy = __tsan_memcpy\n"
    "memmove = __tsan_memmove\n"
    "memset = __tsan_memset\n");
#endif
