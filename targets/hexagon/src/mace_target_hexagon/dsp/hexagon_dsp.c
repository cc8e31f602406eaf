/* hexagon_dsp.c - executes remote calls on the DSP: open, close, load, unload, power, and one for each
 * region.
 *
 * Arguments are packed as the vendor's compiler qaic packs them, see hexagon_part.c. Whatever does not have
 * exactly the form of its method is refused, because the other side may be another version or an attacker.
 */
#include "hexagon_dsp.h"

#include <stdlib.h>
#include <string.h>

#include "hexagon_qurt.h"
#include "hexagon_threads.h"
#include "hexagon_vtcm.h"

enum { MAX_PORTS = HEXAGON_MAX_BUFFERS };

/* What a handle stands for. */
typedef struct opened {
  const hexagon_module *module;
  mace_config config;    /* of the sessions of all regions; complete once one is loaded */
  mace_threads *threads; /* NULL: one thread */
  hexagon_vtcm vtcm;
  size_t vtcm_planned;   /* bytes that the tensors of the largest region want in VTCM */
  uint32_t is_busy;      /* whether a call of the handle is in progress: its regions share threads */
  void *memory[];        /* by region: of its session, as malloc gave it; NULL: not loaded */
} opened;

static mace_session *session_of(opened *o, int32_t region) {
  const uintptr_t at = (uintptr_t)o->memory[region];
  return (mace_session *)((at + MACE_ALIGNMENT - 1) / MACE_ALIGNMENT * MACE_ALIGNMENT);
}

static int open_module(const hexagon_module *module, remote_arg *arguments) {
  opened *o = calloc(1, sizeof *o + (size_t)module->region_count * sizeof o->memory[0]);
  if (!o) return HEXAGON_NO_ROOM;
  o->module = module;
  arguments[2].h64 = (remote_handle64)(uintptr_t)o;
  return 0;
}

static void unload_region(opened *o, int32_t region) {
  if (!o->memory[region]) return;
  mace_close(session_of(o, region));
  free(o->memory[region]);
  o->memory[region] = NULL;
}

static int close_module(opened *o) {
  mace_hexagon_vote(o, HEXAGON_RELEASE, 1, 0);
  for (int32_t i = 0; i < o->module->region_count; i++) unload_region(o, i);
  mace_hexagon_end_threads(o->threads);
  mace_hexagon_release_vtcm(&o->vtcm);
  free(o);
  return 0;
}

static int32_t find_region(const hexagon_module *module, const char *digest) {
  for (int32_t i = 0; i < module->region_count; i++)
    if (!memcmp(module->regions[i].digest, digest, HEXAGON_DIGEST_BYTES)) return i;
  return -1;
}

/* Whether the kernels that the sessions choose have vectors; see has_hvx of kernels/hexagon.h.in. */
static int has_vectors(void) { return !qurt_hvx_get_units || qurt_count_units() > 0; }

/* Take memory for the tensors that were planned there. One piece serves all regions, which compute one after
 * another and keep nothing there; another process or session may have all of it. */
static void take_vtcm(opened *o, int is_allowed) {
  /* Without vector units plain C computes, whose scalar loads are slower from there. */
  if (!has_vectors()) return;
  for (int32_t i = 0; i < o->module->region_count; i++) {
    const size_t bytes = o->module->regions[i].model->fast_bytes;
    if (bytes > o->vtcm_planned) o->vtcm_planned = bytes;
  }
  if (!is_allowed || !o->vtcm_planned) return;
  o->vtcm = mace_hexagon_take_vtcm((uint32_t)o->vtcm_planned);
  o->config.fast_memory = o->vtcm.memory;
  if (o->vtcm.memory) o->config.fast_bytes = o->vtcm_planned;
}

/* Take what the regions of a handle share; the first region that is loaded decides. */
static void configure(opened *o, const hexagon_load_inputs *in) {
  if (o->config.struct_bytes) return;
  o->config.struct_bytes = sizeof o->config;
  o->threads = mace_hexagon_start_threads(in->threads);
  o->config.threads = o->threads;
  take_vtcm(o, in->vtcm == 1);
}

static int open_region(opened *o, int32_t region) {
  const mace_model *model = o->module->regions[region].model;
  const size_t bytes = mace_session_bytes(model, &o->config);
  mace_session *session;
  o->memory[region] = malloc(bytes + MACE_ALIGNMENT);
  if (!o->memory[region]) return HEXAGON_NO_ROOM;
  if (!mace_open(model, &o->config, session_of(o, region), bytes, &session)) return 0;
  free(o->memory[region]);
  o->memory[region] = NULL;
  return HEXAGON_CANNOT_COMPUTE;
}

static int load_region(opened *o, const remote_arg *arguments) {
  hexagon_load_inputs in;
  hexagon_load_outputs out;
  int32_t region;
  int code;
  memcpy(&in, arguments[0].buf.pv, sizeof in);
  if (in.digest_bytes != HEXAGON_DIGEST_BYTES || arguments[1].buf.nLen < in.digest_bytes)
    return HEXAGON_EBADPARM;
  region = find_region(o->module, arguments[1].buf.pv);
  if (region < 0) return HEXAGON_STALE;
  configure(o, &in);
  code = o->memory[region] ? 0 : open_region(o, region);
  if (code) return code;
  out.method = HEXAGON_FIRST_REGION + (uint32_t)region;
  out.threads = o->threads ? (uint32_t)o->threads->workers : 1;
  out.vtcm_bytes = (uint32_t)o->config.fast_bytes;
  out.vtcm_planned = (uint32_t)o->vtcm_planned;
  out.vectors = (uint32_t)has_vectors();
  memcpy(arguments[2].buf.pv, &out, sizeof out);
  return 0;
}

static int32_t region_of(const opened *o, uint32_t method) {
  const uint32_t region = method - HEXAGON_FIRST_REGION;
  return method >= HEXAGON_FIRST_REGION && region < (uint32_t)o->module->region_count ? (int32_t)region : -1;
}

static int unload(opened *o, const remote_arg *arguments) {
  uint32_t method;
  int32_t region;
  memcpy(&method, arguments[0].buf.pv, sizeof method);
  region = region_of(o, method);
  if (region < 0) return HEXAGON_EBADPARM;
  unload_region(o, region);
  return 0;
}

static int vote(opened *o, const remote_arg *arguments) {
  uint32_t words[3];
  memcpy(words, arguments[0].buf.pv, sizeof words);
  return mace_hexagon_vote(o, words[0], words[1], words[2]);
}

/* Whether a sequence of octets and the length that goes with it are those of a tensor. */
static int is_tensor(const remote_arg *argument, const char *lengths, int32_t number, size_t bytes) {
  uint32_t length;
  memcpy(&length, lengths + (size_t)number * sizeof length, sizeof length);
  return length == bytes && argument->buf.nLen >= bytes && (argument->buf.pv || !bytes);
}

/* Run a session with a vector unit for this thread, if the DSP counts any. */
static int compute(mace_session *session, const void *const *inputs, void *const *outputs) {
  const int needs_unit = qurt_count_units() && qurt_hvx_lock && qurt_hvx_unlock;
  mace_status status;
  if (needs_unit && qurt_hvx_lock(QURT_HVX_MODE_128B) != QURT_OK) return HEXAGON_NO_VECTORS;
  status = mace_run(session, inputs, outputs);
  if (needs_unit) qurt_hvx_unlock();
  return status ? HEXAGON_CANNOT_COMPUTE : 0;
}

static int run_region(opened *o, int32_t region, uint32_t scalars, const remote_arg *arguments) {
  const mace_model *model = o->module->regions[region].model;
  const void *inputs[MAX_PORTS];
  void *outputs[MAX_PORTS];
  const size_t skipped = HEXAGON_METHOD(scalars) == HEXAGON_FAR_METHOD ? sizeof(uint32_t) : 0;
  const size_t lengths = ((size_t)model->input_count + (size_t)model->output_count) * sizeof(uint32_t);
  const char *words = (const char *)arguments[0].buf.pv + skipped;
  if (!o->memory[region]) return HEXAGON_NOT_LOADED;
  if (HEXAGON_INPUTS(scalars) != (uint32_t)model->input_count + 1 ||
      HEXAGON_OUTPUTS(scalars) != (uint32_t)model->output_count || HEXAGON_HANDLES_IN(scalars) ||
      HEXAGON_HANDLES_OUT(scalars) || arguments[0].buf.nLen != skipped + lengths)
    return HEXAGON_EBADPARM;
  for (int32_t i = 0; i < model->input_count; i++) {
    if (!is_tensor(&arguments[1 + i], words, i, model->inputs[i].bytes)) return HEXAGON_EBADPARM;
    inputs[i] = arguments[1 + i].buf.pv;
  }
  for (int32_t i = 0; i < model->output_count; i++) {
    const int32_t number = model->input_count + i;
    if (!is_tensor(&arguments[1 + number], words, number, model->outputs[i].bytes)) return HEXAGON_EBADPARM;
    outputs[i] = arguments[1 + number].buf.pv;
  }
  return compute(session_of(o, region), inputs, outputs);
}

/* The method of a call; UINT32_MAX where a far one is not stated. */
static uint32_t read_method(uint32_t scalars, const remote_arg *arguments) {
  uint32_t method = HEXAGON_METHOD(scalars);
  if (method != HEXAGON_FAR_METHOD) return method;
  if (!HEXAGON_INPUTS(scalars) || arguments[0].buf.nLen < sizeof method) return UINT32_MAX;
  memcpy(&method, arguments[0].buf.pv, sizeof method);
  return method < HEXAGON_FAR_METHOD ? UINT32_MAX : method;
}

/* Whether a call has the form of a method with `words` words in its first input. */
static int has_form(uint32_t scalars, uint32_t form, const remote_arg *arguments, uint32_t words) {
  return scalars == form && (!words || arguments[0].buf.nLen == words * sizeof(uint32_t));
}

/* Execute a call of an open handle. */
static int dispatch_open(opened *o, uint32_t method, uint32_t scalars, const remote_arg *arguments) {
  int32_t region;
  switch (method) {
    case HEXAGON_LOAD:
      if (!has_form(scalars, HEXAGON_SCALARS(HEXAGON_LOAD, 2, 1, 0, 0), arguments, HEXAGON_LOAD_WORDS) ||
          arguments[2].buf.nLen != sizeof(hexagon_load_outputs))
        return HEXAGON_EBADPARM;
      return load_region(o, arguments);
    case HEXAGON_UNLOAD:
      if (!has_form(scalars, HEXAGON_SCALARS(HEXAGON_UNLOAD, 1, 0, 0, 0), arguments, 1))
        return HEXAGON_EBADPARM;
      return unload(o, arguments);
    case HEXAGON_POWER:
      if (!has_form(scalars, HEXAGON_SCALARS(HEXAGON_POWER, 1, 0, 0, 0), arguments, 3))
        return HEXAGON_EBADPARM;
      return vote(o, arguments);
    default:
      region = region_of(o, method);
      return region < 0 ? HEXAGON_EUNSUPPORTED : run_region(o, region, scalars, arguments);
  }
}

int mace_hexagon_dispatch(const hexagon_module *module, remote_handle64 handle, uint32_t scalars,
                          remote_arg *arguments) {
  opened *o = (opened *)(uintptr_t)handle;
  const uint32_t method = read_method(scalars, arguments);
  int code;
  if (method == HEXAGON_OPEN) {
    if (scalars != HEXAGON_SCALARS(HEXAGON_OPEN, 2, 0, 0, 1)) return HEXAGON_EBADPARM;
    return open_module(module, arguments);
  }
  if (method == HEXAGON_CLOSE) {
    if (scalars != HEXAGON_SCALARS(HEXAGON_CLOSE, 0, 0, 1, 0)) return HEXAGON_EBADPARM;
    return close_module((opened *)(uintptr_t)arguments[0].h64);
  }
  /* The driver makes one call at a time; whoever makes two would let both use the same memory. */
  if (__atomic_exchange_n(&o->is_busy, 1, __ATOMIC_ACQUIRE)) return HEXAGON_CANNOT_COMPUTE;
  code = dispatch_open(o, method, scalars, arguments);
  __atomic_store_n(&o->is_busy, 0, __ATOMIC_RELEASE);
  return code;
}
