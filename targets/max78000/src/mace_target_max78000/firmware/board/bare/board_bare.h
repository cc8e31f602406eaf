/* The board without a vendor's SDK. */
#ifndef BOARD_BARE_H
#define BOARD_BARE_H

#define REGISTER(address) (*(volatile uint32_t *)(address))

/* Registers of a port of pins. */
typedef struct board_port {
  volatile uint32_t enable0, enable0_set, enable0_clear;
  volatile uint32_t output, output_set, output_clear;
  volatile uint32_t out, out_set, out_clear;
} board_port;

#define BOARD_PORT(n) ((board_port *)((n) == 2 ? 0x40080400u : 0x40008000u + 0x1000u * (n)))
#define BOARD_PIN(n) (UINT32_C(1) << (n))

#define BOARD_CNN_CLOCK_PCLK (UINT32_C(0) << 17)
#define BOARD_CNN_CLOCK_IPLL (UINT32_C(3) << 17)
#define BOARD_CNN_CLOCK_DIV1 (UINT32_C(4) << 14)
#define BOARD_CNN_CLOCK_DIV2 (UINT32_C(0) << 14)
#define BOARD_CNN_CLOCK_DIV4 (UINT32_C(1) << 14)
#define BOARD_CNN_CLOCK_DIV8 (UINT32_C(2) << 14)
#define BOARD_CNN_CLOCK_DIV16 (UINT32_C(3) << 14)

/* One character to the console. */
void board_putc(char c);

/* One character to the console. */
void board_putc(char c);

#endif
