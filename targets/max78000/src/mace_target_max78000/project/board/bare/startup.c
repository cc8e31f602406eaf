/* From reset to main() on a Cortex-M4. */
#include <stdint.h>

#include "board.h"

extern uint32_t board_stack[], board_data[], board_data_end[], board_bss[], board_bss_end[];
extern const uint32_t board_data_source[];

int main(void);
void _start(void);
void board_fault(void);
void board_cnn_handler(void);
void board_systick_handler(void);

enum { EXCEPTIONS = 16, INTERRUPTS = 128, SYSTICK = 15, CNN_IRQ = 101, FAULT_STATUS = 255 };

typedef union vector {
  void (*handler)(void);
  const void *stack;
} vector;

/* Everything that is not named here is a fault. */
extern const vector board_vectors[EXCEPTIONS + INTERRUPTS];
__attribute__((section(".vectors"), used)) const vector board_vectors[EXCEPTIONS + INTERRUPTS] = {
    {.stack = board_stack},
    {.handler = _start},
    {.handler = board_fault}, /* non-maskable interrupt */
    {.handler = board_fault},
    {.handler = board_fault}, /* memory */
    {.handler = board_fault}, /* bus */
    {.handler = board_fault}, /* usage */
    [SYSTICK] = {.handler = board_systick_handler},
    [EXCEPTIONS + CNN_IRQ] = {.handler = board_cnn_handler},
};

#define VECTOR_TABLE (*(volatile uintptr_t *)0xe000ed08u)

void board_fault(void) { board_exit(FAULT_STATUS); }

void _start(void) {
  const uint32_t *from = board_data_source;
  for (uint32_t *to = board_data; to < board_data_end;) *to++ = *from++;
  for (uint32_t *to = board_bss; to < board_bss_end;) *to++ = 0;
  VECTOR_TABLE = (uintptr_t)board_vectors;
  board_exit(main());
}
