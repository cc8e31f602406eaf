/* The RISC-V core: from reset to main(), the accelerator's interrupt, sleep and time. */
#include "board.h"

extern uint32_t board_data[], board_data_end[], board_bss[], board_bss_end[];
extern const uint32_t board_data_source[];

int main(void);
void board_begin(void) __attribute__((noreturn));
void board_trap(void) __attribute__((interrupt("machine")));

enum { CNN_IRQ = 57, FAULT_STATUS = 255 };

#define INTERRUPT_ENABLE(n) REGISTER(0xe5070000u + 16 * ((n) / 32))
#define EVENT_ENABLE(n) REGISTER(0xe5070020u + 16 * ((n) / 32))
#define INTERRUPT_CLEAR(n) REGISTER(0xe507000cu + 16 * ((n) / 32))
#define CAUSE_INTERRUPT (UINT32_C(1) << 31)

static void (*cnn_handler)(void);
static uint32_t begin;

/* The core starts at the first instruction; after it, a jump for each interrupt. */
__asm(
    ".section .vectors, \"ax\", @progbits\n"
    ".option push\n"
    ".option norvc\n"
    ".global _start\n"
    "_start:\n"
    "  la sp, board_stack\n"
    "  la t0, board_jumps + 1\n" /* + 1: vectored */
    "  csrw mtvec, t0\n"
    "  j board_begin\n"
    ".balign 256\n"
    "board_jumps:\n"
    ".rept 64\n"
    "  j board_trap\n"
    ".endr\n"
    ".option pop\n"
    ".text\n");

void board_trap(void) {
  uint32_t cause;
  __asm volatile("csrr %0, mcause" : "=r"(cause));
  if (!(cause & CAUSE_INTERRUPT)) board_exit(FAULT_STATUS);
  INTERRUPT_CLEAR(CNN_IRQ) = UINT32_C(1) << CNN_IRQ % 32;
  cnn_handler();
}

void board_begin(void) {
  const uint32_t *from = board_data_source;
  for (uint32_t *to = board_data; to < board_data_end;) *to++ = *from++;
  for (uint32_t *to = board_bss; to < board_bss_end;) *to++ = 0;
  board_exit(main());
}

void board_cnn_interrupt(void (*handler)(void)) {
  cnn_handler = handler;
  INTERRUPT_ENABLE(CNN_IRQ) |= UINT32_C(1) << CNN_IRQ % 32;
  EVENT_ENABLE(CNN_IRQ) |= UINT32_C(1) << CNN_IRQ % 32;
  __asm volatile("csrsi mstatus, 8" ::: "memory");
}

void board_wait(const volatile uint32_t *flag) {
  __asm volatile("csrci mstatus, 8" ::: "memory");
  while (*flag == 0) {
    __asm volatile("wfi" ::: "memory");
    __asm volatile("csrsi mstatus, 8\n\tnop\n\tcsrci mstatus, 8" ::: "memory");
  }
  __asm volatile("csrsi mstatus, 8" ::: "memory");
}

static uint32_t cycles(void) {
  uint32_t now;
  __asm volatile("csrr %0, mcycle" : "=r"(now));
  return now;
}

void board_timer_start(uint32_t timer) {
  (void)timer;
  begin = cycles();
}

uint32_t board_timer_stop(uint32_t timer) {
  (void)timer;
  const uint32_t microseconds = (cycles() - begin) / (BOARD_CORE_HERTZ / 1000000u);
  return microseconds ? microseconds : 1;
}

void board_delay_ms(uint32_t milliseconds) {
  while (milliseconds--) {
    const uint32_t now = cycles();
    while (cycles() - now < BOARD_CORE_HERTZ / 1000u) continue;
  }
}
