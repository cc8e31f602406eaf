/* hexagon_power.c - votes for the DSP's clocks and its vector unit, through a function of the DSP's system.
 *
 * Names, numbers and layout as the Hexagon SDK documents HAP_power_set ("HAP_power API", requests
 * HAP_power_set_HVX, HAP_power_set_apptype and HAP_power_set_DCVS_v2), which v65 and later have. The union of
 * the vendor's requests is aligned to 8 bytes, because others of them have members of 64 bits.
 */
#include <string.h>

#include "hexagon_dsp.h"

enum { SET_HVX = 2, SET_APPTYPE = 3, SET_DCVS_V2 = 7 };
enum { COMPUTE_CLIENT = 4 };
enum { ADJUST_UP_DOWN = 1, PERFORMANCE_MODE = 16 };

typedef struct dcvs_v2 {
  int8_t dcvs_enable;
  int32_t dcvs_option;
  int8_t set_latency;
  uint32_t latency;
  int8_t set_dcvs_params;
  int32_t target_corner, min_corner, max_corner;
  uint32_t reserved[3];
} dcvs_v2;

typedef struct power_request {
  int32_t type;
  union {
    uint64_t room[32]; /* the vendor's function may read the largest of its requests */
    int8_t power_up;
    int32_t apptype;
    dcvs_v2 dcvs;
  } of;
} power_request;

/* Weak: where the system of a DSP has no such function, there are no votes. */
extern int HAP_power_set(void *context, power_request *request) __attribute__((weak));

static int set(void *context, int32_t type, power_request *request) {
  request->type = type;
  return HAP_power_set(context, request);
}

int mace_hexagon_vote(void *context, uint32_t corner, uint32_t dcvs, uint32_t latency_us) {
  const int is_release = corner == HEXAGON_RELEASE;
  power_request request;
  int code;
  if (!HAP_power_set) return is_release ? 0 : HEXAGON_NO_VOTES;
  if (corner > HEXAGON_TURBO || dcvs > 1) return HEXAGON_EBADPARM;
  memset(&request, 0, sizeof request);
  request.of.apptype = COMPUTE_CLIENT;
  code = set(context, SET_APPTYPE, &request);
  if (code) return code;
  memset(&request, 0, sizeof request);
  request.of.power_up = !is_release;
  code = set(context, SET_HVX, &request);
  if (code) return code;
  memset(&request, 0, sizeof request);
  request.of.dcvs.dcvs_enable = is_release || dcvs;
  request.of.dcvs.dcvs_option = is_release || dcvs ? ADJUST_UP_DOWN : PERFORMANCE_MODE;
  request.of.dcvs.set_latency = latency_us > 0;
  request.of.dcvs.latency = latency_us;
  request.of.dcvs.set_dcvs_params = 1;
  request.of.dcvs.target_corner = (int32_t)corner;
  return set(context, SET_DCVS_V2, &request);
}
