/* hexagon_driver.c - the driver of Qualcomm's Hexagon DSPs: opens FastRPC, shares memory with the DSP, and
 * votes for its clocks.
 *
 * Order of remote calls: the DSP library of the model is opened, each region loaded; memory is mapped at the
 * first run that uses it; one call computes a region; regions are unloaded, memory unmapped, the library
 * closed.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hexagon_part.h"

/* ---- remote calls ---- */

int mace_hexagon_note(mace_device *device, int code) {
  /* The connection was reset, or FastRPC or the DSP knows no such handle any more. */
  if (code == HEXAGON_ECONNRESET || code == HEXAGON_ENOSUCH ||
      (uint32_t)code == HEXAGON_DSP_ERRORS + HEXAGON_EBADSTATE)
    device->is_lost = 1;
  return code;
}

int mace_hexagon_call(mace_device *device, uint32_t scalars, remote_arg *arguments) {
  if (device->is_lost) return HEXAGON_ECONNRESET;
  return mace_hexagon_note(device,
                           device->library.remote_handle64_invoke(device->handle, scalars, arguments));
}

mace_status mace_hexagon_judge(mace_device *device, const char *call, int code, mace_text text) {
  const char *const library = device->library.name;
  if (device->is_lost)
    return mace_say(text, MACE_LOST,
                    "the process on the DSP died: %s of %s answered %d (0x%x); open the session "
                    "again",
                    call, library, code, (unsigned)code);
  switch ((uint32_t)code) {
    case HEXAGON_STALE:
      return mace_say(text, MACE_STALE,
                      "lib%s_skel.so was built with another library than this one; copy the file of "
                      "the same build to the device",
                      device->module);
    case HEXAGON_NO_ROOM:
    case HEXAGON_ENOMEMORY:
    case HEXAGON_DSP_ERRORS + HEXAGON_ENOMEMORY:
      return mace_say(text, MACE_NO_MEMORY,
                      "%s of %s answered %d (0x%x): the DSP has too little memory; close other users "
                      "of the DSP, and open again",
                      call, library, code, (unsigned)code);
    case HEXAGON_NO_VOTES:
      return mace_say(text, MACE_REFUSED,
                      "the DSP takes no votes for its clocks; leave mace_config.power and "
                      "hexagon.corner out");
    case HEXAGON_NO_VECTORS:
      return mace_say(text, MACE_FAILED,
                      "the DSP gave no vector unit; close other users of the DSP, and run again");
    default:
      return mace_say(text, MACE_FAILED,
                      "%s of %s answered %d (0x%x); look into the system's log for FastRPC, and open "
                      "the session again",
                      call, library, code, (unsigned)code);
  }
}

/* ---- opening ---- */

/* Kernels have frames of 12 KB together, and the stack of a remote call has 16 KB by default. A hint: some
 * libraries know no such request, or have threads already. */
static void ask_stack(mace_device *device) {
  hexagon_thread_params request = {HEXAGON_CDSP, -1, HEXAGON_STACK_BYTES};
  if (device->library.remote_session_control)
    device->library.remote_session_control(HEXAGON_THREAD_PARAMS, &request, sizeof request);
}

static mace_status allow_unsigned(mace_device *device, mace_text text) {
  hexagon_unsigned_module request = {HEXAGON_CDSP, 1};
  int code;
  if (!device->settings.is_unsigned) return MACE_OK;
  if (!device->library.remote_session_control)
    return mace_say(text, MACE_NO_DEVICE,
                    "%s loads signed libraries alone; sign lib%s_skel.so, and set hexagon.unsigned=0",
                    device->library.name, device->module);
  code = device->library.remote_session_control(HEXAGON_UNSIGNED_MODULE, &request, sizeof request);
  if (!code) return MACE_OK;
  return mace_say(text, MACE_NO_DEVICE,
                  "the DSP takes no unsigned libraries: remote_session_control answered %d (0x%x); "
                  "sign lib%s_skel.so, and set hexagon.unsigned=0",
                  code, (unsigned)code, device->module);
}

static mace_status judge_open(const mace_device *device, int code, mace_text text) {
  const char *folders = getenv("ADSP_LIBRARY_PATH");
  const uint32_t error = (uint32_t)code & ~HEXAGON_DSP_ERRORS;
  if (error == HEXAGON_ENOMEMORY)
    return mace_say(text, MACE_NO_MEMORY,
                    "the DSP has too little memory for lib%s_skel.so: remote_handle64_open answered "
                    "%d (0x%x); close other users of the DSP",
                    device->module, code, (unsigned)code);
  if (error == HEXAGON_EINVALIDSIGNATURE || error == HEXAGON_EUNSIGNEDMOD || error == HEXAGON_ENOROOTOFTRUST)
    return mace_say(text, MACE_NO_DEVICE,
                    "the DSP refused the signature of lib%s_skel.so: remote_handle64_open answered "
                    "%d (0x%x); sign it for the device, or set hexagon.unsigned=1",
                    device->module, code, (unsigned)code);
  if (!folders || !*folders)
    return mace_say(text, MACE_NO_DEVICE,
                    "the DSP cannot load lib%s_skel.so: remote_handle64_open answered %d (0x%x), and "
                    "ADSP_LIBRARY_PATH is not set; set it to the folder that holds the file",
                    device->module, code, (unsigned)code);
  return mace_say(text, MACE_NO_DEVICE,
                  "the DSP cannot load lib%s_skel.so: remote_handle64_open answered %d (0x%x); copy the file "
                  "of this build into a folder of ADSP_LIBRARY_PATH, which is %.120s",
                  device->module, code, (unsigned)code, folders);
}

mace_status mace_hexagon_open_module(mace_device *device, const char *module, mace_text text) {
  char uri[2 * HEXAGON_MAX_MODULE + 80];
  mace_status status;
  int code;
  if (device->is_open) {
    if (!strcmp(device->module, module)) return MACE_OK;
    return mace_say(text, MACE_STALE, "parts of one model name two DSP libraries; build it again");
  }
  snprintf(device->module, sizeof device->module, "%s", module);
  ask_stack(device);
  status = allow_unsigned(device, text);
  if (status) return status;
  /* As the vendor's compiler writes it for an interface, with the domain appended. */
  snprintf(uri, sizeof uri, "file:///lib%s_skel.so?%s_skel_handle_invoke&_modver=1.0&_dom=cdsp", module,
           module);
  code = device->library.remote_handle64_open(uri, &device->handle);
  if (code) return judge_open(device, code, text);
  device->is_open = 1;
  return MACE_OK;
}

/* Append words to the device's name. */
__attribute__((format(printf, 2, 3))) static void describe_more(mace_device *device, const char *format, ...) {
  const size_t length = strlen(device->name);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(device->name + length, sizeof device->name - length, format, arguments);
  va_end(arguments);
}

void mace_hexagon_describe(mace_device *device, const hexagon_load_outputs *loaded) {
  device->name[0] = 0;
  describe_more(device, "compute DSP through %s", device->library.name);
  if (!loaded) return;
  describe_more(device, ", %u thread%s", (unsigned)loaded->threads, loaded->threads == 1 ? "" : "s");
  if (!loaded->vectors) describe_more(device, ", no vector unit: plain C computes");
  if (!device->settings.vtcm || !loaded->vtcm_planned) return;
  if (loaded->vtcm_bytes)
    describe_more(device, ", %u bytes of VTCM", (unsigned)loaded->vtcm_bytes);
  else
    describe_more(device, ", no VTCM (%u bytes were not free)", (unsigned)loaded->vtcm_planned);
}

static int has_vote(const hexagon_settings *settings) {
  return settings->corner != HEXAGON_NO_CORNER || settings->dcvs != HEXAGON_NO_CORNER || settings->latency_us;
}

static mace_status open_hexagon(const mace_config *config, void *memory, mace_device **opened,
                                mace_text text) {
  mace_device *device = memory;
  mace_status status;
  memset(device, 0, sizeof *device);
  device->settings.corner = device->settings.dcvs = HEXAGON_NO_CORNER;
  device->settings.is_unsigned = 1;
  device->settings.vtcm = 1;
  device->timeout_ms = config->timeout_ms ? config->timeout_ms : HEXAGON_TIMEOUT_MS;
  status = mace_hexagon_read_options(&device->settings, config->options, text);
  if (!status && config->power == MACE_POWER_IDLE && has_vote(&device->settings))
    status = mace_say(text, MACE_REFUSED,
                      "hexagon.corner, dcvs and latency_us state how mace_config.power is asked for, "
                      "and it asks for nothing; set it as well");
  if (!status) status = mace_hexagon_open_library(&device->library, text);
  if (status) return status;
  if (mace_hexagon_start_watchdog(device)) {
    mace_hexagon_close_library(&device->library);
    return mace_say(text, MACE_NO_MEMORY, "no thread can be started; end some");
  }
  mace_hexagon_describe(device, NULL);
  *opened = device;
  return MACE_OK;
}

static void close_hexagon(mace_device *device) {
  /* Also after a loss: FastRPC starts a new process only when all handles of the old one are closed. */
  if (device->is_open) device->library.remote_handle64_close(device->handle);
  device->is_open = 0;
  mace_hexagon_stop_watchdog(&device->watchdog);
  mace_hexagon_close_library(&device->library);
}

static const char *describe(mace_device *device) { return device->name; }

/* ---- power ---- */

/* Ask FastRPC to keep the processor awake while a call is under way. It is a hint, which old libraries lack.
 */
static void ask_latency(mace_device *device, int is_busy, uint32_t latency_us) {
  hexagon_latency request = {is_busy ? HEXAGON_PM_QOS : HEXAGON_NO_QOS, latency_us};
  if (device->library.remote_handle64_control)
    device->library.remote_handle64_control(device->handle, HEXAGON_CONTROL_LATENCY, &request,
                                            sizeof request);
}

static mace_status set_power(mace_device *device, mace_power level, mace_text text) {
  /* By level; idle drops the votes. The corners are ours: the vendor's default is nominal. */
  static const uint32_t corners[] = {HEXAGON_RELEASE, HEXAGON_SVS, HEXAGON_NOMINAL, HEXAGON_TURBO};
  const hexagon_settings *settings = &device->settings;
  const int is_idle = level == MACE_POWER_IDLE || level > MACE_POWER_BURST;
  uint32_t words[3] = {is_idle ? HEXAGON_RELEASE : corners[level], level != MACE_POWER_BURST, 0};
  remote_arg argument;
  int code;
  if (!device->is_open || device->is_lost) return MACE_OK; /* votes end with the process that made them */
  if (!is_idle && settings->corner != HEXAGON_NO_CORNER) words[0] = settings->corner;
  if (settings->dcvs != HEXAGON_NO_CORNER) words[1] = settings->dcvs;
  words[2] = is_idle ? 0 : settings->latency_us ? settings->latency_us : 100;
  ask_latency(device, !is_idle, words[2]);
  argument.buf.pv = words;
  argument.buf.nLen = sizeof words;
  code = mace_hexagon_call(device, HEXAGON_SCALARS(HEXAGON_POWER, 1, 0, 0, 0), &argument);
  return code ? mace_hexagon_judge(device, "power", code, text) : MACE_OK;
}

/* ---- memory ---- */

static mace_status allocate(mace_device *device, const mace_need *need, mace_buffer *buffer, mace_text text) {
  const size_t granule = need->granule ? need->granule : 1;
  const size_t bytes = (need->bytes + granule - 1) / granule * granule + need->slack;
  void *at = NULL;
  int descriptor;
  if (bytes <= INT32_MAX)
    at = device->library.rpcmem_alloc(HEXAGON_HEAP_SYSTEM, HEXAGON_HEAP_FLAGS, (int)bytes);
  if (!at)
    return mace_say(text, MACE_NO_MEMORY,
                    "rpcmem_alloc of %s gave no %zu bytes; close other users of shared memory",
                    device->library.name, bytes);
  descriptor = device->library.rpcmem_to_fd(at);
  if (descriptor < 0) {
    device->library.rpcmem_free(at);
    return mace_say(text, MACE_NO_MEMORY,
                    "rpcmem_to_fd of %s answered %d: the memory cannot be shared; restart the device",
                    device->library.name, descriptor);
  }
  memset(at, 0, bytes); /* what the application never wrote must not come from another process */
  buffer->struct_bytes = sizeof *buffer;
  buffer->kind = MACE_RPCMEM;
  buffer->host = at;
  buffer->handle = (uint64_t)descriptor;
  buffer->offset = 0;
  buffer->bytes = bytes;
  buffer->fence = -1;
  return MACE_OK;
}

static void free_memory(mace_device *device, mace_buffer *buffer) {
  device->library.rpcmem_free(buffer->host);
  buffer->host = NULL;
}

/* Memory is mapped by the first run that uses it, because only a session that has loaded something has a
 * process on the DSP to map it in. */
static mace_status import(mace_device *device, const mace_need *need, mace_memory *memory, mace_text text) {
  (void)device, (void)need, (void)text;
  memset(memory->own, 0, sizeof memory->own);
  return MACE_OK;
}

static void release(mace_device *device, mace_memory *memory) {
  const mace_buffer *buffer = &memory->buffer;
  /* The mappings of a process that died went with it. */
  if (memory->own[0] && !device->is_lost)
    device->library.fastrpc_munmap(HEXAGON_CDSP, (int)buffer->handle, buffer->host, buffer->bytes);
  memory->own[0] = NULL;
}

/* ---- the driver ---- */

const mace_driver mace_hexagon_driver = {
    .struct_bytes = sizeof(mace_driver),
    .major = MACE_DRIVER_MAJOR,
    .flags = MACE_ALLOCATES,
    .name = "hexagon",
    .version = "0.1.0",
    .bytes = mace_hexagon_count_bytes,
    .open = open_hexagon,
    .load = mace_hexagon_load,
    .run = mace_hexagon_run,
    .unload = mace_hexagon_unload,
    .close = close_hexagon,
    .describe = describe,
    .allocate = allocate,
    .free = free_memory,
    .import = import,
    .release = release,
    .power = set_power,
};
