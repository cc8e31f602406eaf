/* Formatted text without a C library. */
#include <stdarg.h>
#include <stdbool.h>

#include "board.h"

enum { DIGITS = 10 };

static void put_number(uint32_t value, uint32_t base, int width, char fill) {
  char digits[DIGITS];
  int n = 0;
  do {
    digits[n++] = "0123456789abcdef"[value % base];
    value /= base;
  } while (value);
  for (int i = n; i < width; i++) board_putc(fill);
  while (n) board_putc(digits[--n]);
}

static void put_signed(int value, int width, char fill) {
  const bool negative = value < 0;
  const uint32_t size = negative ? 0u - (uint32_t)value : (uint32_t)value;
  int length = negative;
  for (uint32_t rest = size; rest >= 10; rest /= 10) length++;
  if (fill == ' ')
    for (; width > length + 1; width--) board_putc(' ');
  if (negative) board_putc('-');
  put_number(size, 10, width - negative, '0');
}

static void put_text(const char *text) {
  while (*text) board_putc(*text++);
}

void board_printf(const char *format, ...) {
  va_list values;
  va_start(values, format);
  for (; *format; format++) {
    if (*format != '%') {
      board_putc(*format);
      continue;
    }
    const char fill = *++format == '0' ? '0' : ' ';
    int width = 0;
    while (*format >= '0' && *format <= '9') width = 10 * width + (*format++ - '0');
    switch (*format) {
      case 's': put_text(va_arg(values, const char *)); break;
      case 'c': board_putc((char)va_arg(values, int)); break;
      case 'd': put_signed(va_arg(values, int), width, fill); break;
      case 'u': put_number(va_arg(values, unsigned), 10, width, fill); break;
      case 'x': put_number(va_arg(values, unsigned), 16, width, fill); break;
      default: board_putc(*format);
    }
  }
  va_end(values);
}
