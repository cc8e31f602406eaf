/* Clocks, console, pins and the accelerator's supply, by registers; addresses and bits are those of the maker's user guide. */
#include "board.h"

#define CLOCK_CONTROL REGISTER(0x40000008u)
#define CLOCK_IPO_ENABLE (UINT32_C(1) << 19)
#define CLOCK_IPO_READY (UINT32_C(1) << 27)
#define CLOCK_READY (UINT32_C(1) << 13)
#define CLOCK_SELECT (UINT32_C(7) << 9)
#define CLOCK_SELECT_IPO (UINT32_C(4) << 9)
#define PLL_CONTROL REGISTER(0x40000010u)
#define PLL_ENABLE UINT32_C(1)
#define PLL_READY UINT32_C(2)
#define PERIPHERAL_DIVIDER REGISTER(0x40000018u)
#define CNN_CLOCK (UINT32_C(0x1f) << 14)
#define PERIPHERALS_OFF REGISTER(0x40000024u)
#define GPIO0_OFF (UINT32_C(1) << 0)
#define GPIO1_OFF (UINT32_C(1) << 1)
#define UART0_OFF (UINT32_C(1) << 9)
#define CNN_OFF (UINT32_C(1) << 25)

#define CNN_POWER REGISTER(0x40005800u)
#define CNN_MEMORY_POWER REGISTER(0x40005804u)
#define CNN_ISOLATION REGISTER(0x40005808u)
#define CNN_RESET REGISTER(0x4000580cu)
#define QUADRANTS 0xfu

#define GPIO0_ALTERNATE_CLEAR REGISTER(0x40008070u)
#define UART0_CONTROL REGISTER(0x40042000u)
#define UART0_STATUS REGISTER(0x40042004u)
#define UART0_DIVIDER REGISTER(0x40042010u)
#define UART0_FIFO REGISTER(0x40042020u)
#define UART_EIGHT_BITS (UINT32_C(3) << 10)
#define UART_CLOCK (UINT32_C(1) << 15)
#define UART_FULL (UINT32_C(1) << 7)
#define UART_BUSY UINT32_C(1)

#define PERIPHERAL_HERTZ (BOARD_CORE_HERTZ / 2)
#define BAUD 115200u

static void console_init(void) {
  board_port *port = BOARD_PORT(0);
  PERIPHERALS_OFF &= ~(GPIO0_OFF | GPIO1_OFF | UART0_OFF);
  port->enable0_clear = BOARD_PIN(0) | BOARD_PIN(1);
  GPIO0_ALTERNATE_CLEAR = BOARD_PIN(0) | BOARD_PIN(1);
  UART0_DIVIDER = PERIPHERAL_HERTZ / BAUD;
  UART0_CONTROL = UART_EIGHT_BITS | UART_CLOCK;
}

void board_init(void) {
  CLOCK_CONTROL |= CLOCK_IPO_ENABLE;
  while (!(CLOCK_CONTROL & CLOCK_IPO_READY)) continue;
  CLOCK_CONTROL = (CLOCK_CONTROL & ~CLOCK_SELECT) | CLOCK_SELECT_IPO;
  while (!(CLOCK_CONTROL & CLOCK_READY)) continue;
  console_init();
}

void board_putc(char c) {
  if (c == '\n') board_putc('\r');
  while (UART0_STATUS & UART_FULL) continue;
  UART0_FIFO = (uint8_t)c;
}

void board_exit(int status) {
  while (UART0_STATUS & UART_BUSY) continue;
  for (;;) __asm volatile("" : : "r"(status));
}

void board_cnn_power(uint32_t quadrants) {
  CNN_RESET = QUADRANTS;
  if (quadrants == 0) {
    CNN_ISOLATION = QUADRANTS;
    CNN_POWER = 0;
    CNN_MEMORY_POWER = 0;
  } else {
    CNN_MEMORY_POWER = quadrants;
    CNN_POWER = quadrants;
#if BOARD_CNN_POWER_DELAY
    board_delay_ms(BOARD_CNN_POWER_DELAY);
#endif
    CNN_ISOLATION = ~quadrants & QUADRANTS;
  }
  CNN_RESET = 0;
}

void board_cnn_clock(uint32_t source, uint32_t divider) {
  if (source == BOARD_CNN_CLOCK_IPLL) {
    PLL_CONTROL |= PLL_ENABLE;
    while (!(PLL_CONTROL & PLL_READY)) continue;
  }
  PERIPHERAL_DIVIDER = (PERIPHERAL_DIVIDER & ~CNN_CLOCK) | source | divider;
  PERIPHERALS_OFF &= ~CNN_OFF;
}

void board_cnn_clock_off(void) { PERIPHERALS_OFF |= CNN_OFF; }

void board_pin_write(board_port *port, uint32_t pin, int high) {
  port->enable0_set = pin;
  port->output_set = pin;
  if (high)
    port->out_set = pin;
  else
    port->out_clear = pin;
}
