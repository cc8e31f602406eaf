/* The board through the vendor's SDK. */
#include <stdarg.h>
#include <stdio.h>

#include "board.h"
#include "gcfr_regs.h"
#include "icc.h"
#include "led.h"
#include "mxc_delay.h"
#include "mxc_sys.h"
#include "nvic_table.h"
#include "tmr.h"

#define QUADRANTS 0xfu

void board_init(void) {
#ifdef __riscv
  MXC_ICC_Enable(MXC_ICC1);
#else
  MXC_ICC_Enable(MXC_ICC0);
  MXC_SYS_Clock_Select(MXC_SYS_CLOCK_IPO);
#endif
  SystemCoreClockUpdate();
}

void board_exit(int status) {
  fflush(stdout);
  for (;;) __asm volatile("" : : "r"(status));
}

void board_printf(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vprintf(format, values);
  va_end(values);
}

void board_wait(const volatile uint32_t *flag) {
  __disable_irq();
  while (*flag == 0) {
    __WFI();
    __enable_irq();
    __disable_irq();
  }
  __enable_irq();
}

void board_delay_ms(uint32_t milliseconds) { MXC_Delay(MXC_DELAY_MSEC(milliseconds)); }

void board_timer_start(uint32_t timer) { MXC_TMR_SW_Start(MXC_TMR_GET_TMR(timer)); }

uint32_t board_timer_stop(uint32_t timer) {
  const uint32_t microseconds = MXC_TMR_SW_Stop(MXC_TMR_GET_TMR(timer));
  return microseconds ? microseconds : 1;
}

void board_cnn_power(uint32_t quadrants) {
  MXC_GCFR->reg3 = QUADRANTS;
  if (quadrants == 0) {
    MXC_GCFR->reg2 = QUADRANTS;
    MXC_GCFR->reg0 = 0;
    MXC_GCFR->reg1 = 0;
  } else {
    MXC_GCFR->reg1 = quadrants;
    MXC_GCFR->reg0 = quadrants;
#if BOARD_CNN_POWER_DELAY
    board_delay_ms(BOARD_CNN_POWER_DELAY);
#endif
    MXC_GCFR->reg2 = ~quadrants & QUADRANTS;
  }
  MXC_GCFR->reg3 = 0;
}

void board_cnn_clock(uint32_t source, uint32_t divider) {
#ifdef BOARD_CNN_CLOCK_IPLL
  if (source == BOARD_CNN_CLOCK_IPLL) {
    MXC_GCR->ipll_ctrl |= MXC_F_GCR_IPLL_CTRL_EN;
    while (!(MXC_GCR->ipll_ctrl & MXC_F_GCR_IPLL_CTRL_RDY)) continue;
  }
#endif
  const uint32_t others = MXC_GCR->pclkdiv & ~(MXC_F_GCR_PCLKDIV_CNNCLKDIV | MXC_F_GCR_PCLKDIV_CNNCLKSEL);
  MXC_GCR->pclkdiv = others | source | divider;
  MXC_SYS_ClockEnable(MXC_SYS_PERIPH_CLOCK_CNN);
}

void board_cnn_clock_off(void) { MXC_SYS_ClockDisable(MXC_SYS_PERIPH_CLOCK_CNN); }

#ifdef __riscv
static void (*cnn_handler)(void);

void __attribute__((interrupt("machine"))) CNN_IRQHandler(void) { cnn_handler(); }
#endif

void board_cnn_interrupt(void (*handler)(void)) {
#ifdef __riscv
  cnn_handler = handler;
  __enable_irq();
#else
  MXC_NVIC_SetVector(CNN_IRQn, handler);
#endif
  NVIC_EnableIRQ(CNN_IRQn);
}

void board_pin_write(board_port *port, uint32_t pin, int high) {
  const mxc_gpio_cfg_t output = {.port = port, .mask = pin, .pad = MXC_GPIO_PAD_NONE, .func = MXC_GPIO_FUNC_OUT};
  MXC_GPIO_Config(&output);
  if (high)
    MXC_GPIO_OutSet(port, pin);
  else
    MXC_GPIO_OutClr(port, pin);
}
