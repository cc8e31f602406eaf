/* What qemu_counter.c counts of a program for ARM: instructions. */
enum { INSTRUCTIONS, KINDS };

/* The numbers of clock_gettime on Linux: 113 for 64-bit ARM (asm-generic/unistd.h), 263 for 32-bit ARM and 403
 * with seconds of 64 bits (arch/arm/tools/syscall.tbl). */
static int is_clock_call(int64_t number) { return number == 113 || number == 263 || number == 403; }

static void count_words(const void *words, size_t size, uint64_t *counts) {
  (void)words, (void)size, (void)counts; /* QEMU's number of instructions is all */
}
