/* hexagon_options.c - options of mace_config.options, by the names that MACE had in C++:
 *
 *   hexagon.corner=release|svs2|svs|svsplus|nominal|nomplus|turbo, hexagon.dcvs=0|1,
 *   hexagon.latency_us=1..1000000      SetHexagonPower(corner, dcvs_enable, latency)
 *   hexagon.performance=NAME           SetQnnPerformance(HEXAGON_NAME)
 *   hexagon.unsigned=0|1               SetHexagonToUnsignedPD()
 *   hexagon.threads=0..8               on the DSP; 0: as many as it has vector units
 *   hexagon.vtcm=0|1                   whether tensors may lie in the memory of its vector units
 */
#include <string.h>

#include "hexagon_part.h"

#define PREFIX "hexagon."
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { MAX_LATENCY_US = 1000000, MAX_THREADS = 8 };

/* HexagonNNCornerType without HEXAGON_NN_CORNER_, in the order of the SDK's HAP_power.h: behind the first,
 * that of MACE's C++ is the reverse of it. */
static const char *const corners[] = {"release", "svs2", "svs", "svsplus", "nominal", "nomplus", "turbo"};

/* HexagonPerformanceType without HEXAGON_: corner and latency that MACE's qnn_performance.cc asks for, always
 * without changes of the clock by load. For burst it has a corner above turbo, which HexagonNNCornerType
 * lacks; "system_settings" asks for nothing, as mace_config.power does without a value. */
static const struct profile {
  const char *name;
  uint32_t corner, latency_us;
} profiles[] = {
    {"burst", HEXAGON_TURBO, 40},
    {"sustained_high_performance", HEXAGON_TURBO, 100},
    {"high_performance", HEXAGON_TURBO, 100},
    {"balanced", HEXAGON_NOMPLUS, 1000},
    {"low_balanced", HEXAGON_NOMINAL, 1000},
    {"high_power_saver", HEXAGON_SVSPLUS, 1000},
    {"power_saver", HEXAGON_SVS, 1000},
    {"low_power_saver", HEXAGON_SVS2, 1000},
};

/* A piece of text that does not end with a 0. */
typedef struct piece {
  const char *at;
  size_t bytes;
} piece;

static int is_word(piece text, const char *word) {
  return text.bytes == strlen(word) && !memcmp(text.at, word, text.bytes);
}

static int read_corner(piece value, uint32_t *corner) {
  for (uint32_t i = 0; i < COUNT(corners); i++)
    if (is_word(value, corners[i])) {
      *corner = i;
      return 1;
    }
  return 0;
}

static int read_profile(piece value, hexagon_settings *settings) {
  for (size_t i = 0; i < COUNT(profiles); i++)
    if (is_word(value, profiles[i].name)) {
      settings->corner = profiles[i].corner;
      settings->dcvs = 0;
      settings->latency_us = profiles[i].latency_us;
      return 1;
    }
  return 0;
}

static int read_number(piece value, uint32_t greatest, uint32_t *number) {
  uint32_t read = 0;
  for (size_t i = 0; i < value.bytes; i++) {
    if (value.at[i] < '0' || value.at[i] > '9' || read > greatest) return 0;
    read = read * 10 + (uint32_t)(value.at[i] - '0');
  }
  *number = read;
  return value.bytes && read <= greatest;
}

static int read_option(hexagon_settings *settings, piece key, piece value) {
  uint32_t is_unsigned;
  if (is_word(key, "corner")) return read_corner(value, &settings->corner);
  if (is_word(key, "dcvs")) return read_number(value, 1, &settings->dcvs);
  if (is_word(key, "latency_us"))
    return read_number(value, MAX_LATENCY_US, &settings->latency_us) && settings->latency_us;
  if (is_word(key, "performance")) return read_profile(value, settings);
  if (is_word(key, "threads")) return read_number(value, MAX_THREADS, &settings->threads);
  if (is_word(key, "vtcm")) return read_number(value, 1, &settings->vtcm);
  if (!is_word(key, "unsigned") || !read_number(value, 1, &is_unsigned)) return 0;
  settings->is_unsigned = (int32_t)is_unsigned;
  return 1;
}

mace_status mace_hexagon_read_options(hexagon_settings *settings, const char *options, mace_text text) {
  while (options && *options) {
    const size_t bytes = strcspn(options, ";");
    if (!strncmp(options, PREFIX, strlen(PREFIX))) {
      const char *key = options + strlen(PREFIX), *const end = options + bytes;
      const char *equals = memchr(key, '=', (size_t)(end - key));
      const piece name = {key, equals ? (size_t)(equals - key) : 0};
      const piece value = {equals ? equals + 1 : end, equals ? (size_t)(end - equals - 1) : 0};
      if (!equals || !read_option(settings, name, value))
        return mace_say(
            text, MACE_REFUSED,
            "the option %.*s is not allowed; corner=release|svs2|svs|svsplus|nominal|nomplus|turbo, "
            "dcvs=0|1, latency_us=1..1000000, performance=burst|balanced|..., threads=0..8, vtcm=0|1 and "
            "unsigned=0|1 are",
            (int)(bytes < 60 ? bytes : 60), options);
    }
    options += bytes + (options[bytes] == ';');
  }
  return MACE_OK;
}
