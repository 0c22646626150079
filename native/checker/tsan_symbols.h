// Included first by every translation unit compiled with -fsanitize=thread. GCC, and Clang before 15, leave
// the copies of structs as calls of memcpy and the like: here they become the reported ones of
// tsan_hooks.cpp.
#pragma once

#if defined(__ELF__)
asm("memcpy = __tsan_memcpy\n"
    "memmove = __tsan_memmove\n"
    "memset = __tsan_memset\n");
#endif
