/* What qemu_counter.c counts of a program for Hexagon: packets, words of HVX instructions, words of vrmpy, and
 * accesses of vectors to memory. QEMU translates a packet as one instruction. */
enum { PACKETS, VECTORS, PRODUCTS, ACCESSES, KINDS };

/* The numbers of clock_gettime on Linux, with seconds of 32 and of 64 bits (asm-generic/unistd.h). */
static int is_clock_call(int64_t number) { return number == 113 || number == 403; }

/* Of the words of a packet (Hexagon V66 HVX Programmer's Reference Manual): class 1 with bit 27 are vector
 * instructions, without it jumps that compare; 0x28 to 0x2b in the upper byte are vector accesses; vrmpy of
 * vector and scalar begins with 0x19000000 and 0x19400000, that of vectors with 0x1c000000. Words with bits 14
 * and 15 clear are duplexes. */
static void count_words(const uint32_t *words, size_t size, uint64_t *counts) {
  for (size_t i = 0; i < size / 4; i++) {
    const uint32_t word = words[i];
    if (!(word & 0xc000)) continue;
    counts[VECTORS] += word >> 27 == 3;
    counts[ACCESSES] += word >> 26 == 0x28 >> 2;
    const uint32_t scalar = word & 0xffe020e0, vector = word & 0xffe02000;
    counts[PRODUCTS] += scalar == 0x19002080 || (vector == 0x1c002000 && (word & 0xe0) <= 0x80);
  }
}
