/* Makes the processor look like one without some of its instructions, to this process and what it starts later
 * by clone: so that all runtimes of a benchmark choose the kernels that they have for a smaller processor.
 * Linux lets CPUID fault (arch_prctl, ARCH_SET_CPUID) where the processor can do that; the handler of the fault
 * answers in its place, with bits cleared. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { ARCH_SET_CPUID = 0x1012 };

/* The bits of one register of a leaf that are to read as 0. */
typedef struct hidden_bits {
  uint32_t leaf, subleaf, number; /* number: 0 to 3 for eax, ebx, ecx, edx */
  uint32_t bits;
} hidden_bits;

enum { MAX_HIDDEN = 32 };

static hidden_bits hidden[MAX_HIDDEN];
static int32_t hidden_count;

static void set_cpuid(int is_allowed) { syscall(SYS_arch_prctl, ARCH_SET_CPUID, is_allowed); }

static void answer(uint32_t leaf, uint32_t subleaf, uint32_t registers[4]) {
  set_cpuid(1);
  __cpuid_count(leaf, subleaf, registers[0], registers[1], registers[2], registers[3]);
  set_cpuid(0);
  for (int32_t i = 0; i < hidden_count; i++)
    if (hidden[i].leaf == leaf && hidden[i].subleaf == subleaf)
      registers[hidden[i].number] &= ~hidden[i].bits;
}

static void on_fault(int number, siginfo_t *info, void *context) {
  (void)info;
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  if (memcmp((const void *)registers[REG_RIP], "\x0f\xa2", 2)) { /* a fault of another kind: end as ever */
    signal(number, SIG_DFL);
    return;
  }
  uint32_t values[4];
  answer((uint32_t)registers[REG_RAX], (uint32_t)registers[REG_RCX], values);
  registers[REG_RAX] = values[0];
  registers[REG_RBX] = values[1];
  registers[REG_RCX] = values[2];
  registers[REG_RDX] = values[3];
  registers[REG_RIP] += 2;
}

/* Hides these bits from now on. Returns 0, or -1 where CPUID cannot be made to fault or there are more than
 * MAX_HIDDEN of them. */
int hide_features(const hidden_bits *bits, int32_t count) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  if (count > MAX_HIDDEN) return -1;
  memcpy(hidden, bits, (size_t)count * sizeof *bits);
  hidden_count = count;
  if (sigaction(SIGSEGV, &action, 0)) return -1;
  return syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0) ? -1 : 0;
}
