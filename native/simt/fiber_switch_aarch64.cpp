// The switch for AAPCS64 (Linux and macOS) saves x19-x30, d8-d15 and the stack pointer.
#if defined(__aarch64__)

#define PYTURBO_STRING(x) #x
#define PYTURBO_EXPAND(x) PYTURBO_STRING(x)
#define PYTURBO_SYMBOL(name) PYTURBO_EXPAND(__USER_LABEL_PREFIX__) #name

// clang-format off
asm(
    ".text\n"
    ".p2align 5\n"
    ".globl " PYTURBO_SYMBOL(pyturbo_fiber_switch) "\n"
#if defined(__ELF__)
    ".protected pyturbo_fiber_switch\n"
    ".type pyturbo_fiber_switch, %function\n"
#endif
    PYTURBO_SYMBOL(pyturbo_fiber_switch) ":\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n"
    "  stp x21, x22, [sp, #16]\n"
    "  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n"
    "  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n"
    "  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n"
    "  ldp x21, x22, [sp, #16]\n"
    "  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n"
    "  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n"
    "  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
#if defined(__ELF__)
    ".size pyturbo_fiber_switch, .-pyturbo_fiber_switch\n"
#endif
    ".p2align 5\n"
    ".globl " PYTURBO_SYMBOL(pyturbo_fiber_start) "\n"
#if defined(__ELF__)
    ".protected pyturbo_fiber_start\n"
    ".type pyturbo_fiber_start, %function\n"
#endif
    PYTURBO_SYMBOL(pyturbo_fiber_start) ":\n"
    "  .cfi_startproc\n"
    "  .cfi_undefined x30\n"
    "  mov x0, x19\n"
    "  blr x20\n"
    "  brk #1\n"
    "  .cfi_endproc\n"
#if defined(__ELF__)
    ".size pyturbo_fiber_start, .-pyturbo_fiber_start\n"
#endif
);
// clang-format on

#endif
