// The switch for System V x86-64 saves rbx, rbp, r12-r15 and the stack pointer. It returns by `ret`, which
// the processor predicts correctly for lanes that wait at the same place.
#if defined(__x86_64__)

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
    ".type pyturbo_fiber_switch, @function\n"
#endif
    PYTURBO_SYMBOL(pyturbo_fiber_switch) ":\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n"
#if defined(__ELF__)
    ".size pyturbo_fiber_switch, .-pyturbo_fiber_switch\n"
#endif
    ".p2align 5\n"
    ".globl " PYTURBO_SYMBOL(pyturbo_fiber_start) "\n"
#if defined(__ELF__)
    ".protected pyturbo_fiber_start\n"
    ".type pyturbo_fiber_start, @function\n"
#endif
    PYTURBO_SYMBOL(pyturbo_fiber_start) ":\n"
    "  .cfi_startproc\n"
    "  .cfi_undefined rip\n"
    "  movq %r12, %rdi\n"
    "  callq *%r13\n"
    "  ud2\n"
    "  .cfi_endproc\n"
#if defined(__ELF__)
    ".size pyturbo_fiber_start, .-pyturbo_fiber_start\n"
#endif
);
// clang-format on

#endif
