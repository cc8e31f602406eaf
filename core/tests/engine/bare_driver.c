/* A driver without any library, and a model that uses it: what a bare machine with an accelerator links. */
#include "driver.h"

struct mace_device {
  int unused;
};

struct mace_loaded {
  const mace_payload *payload;
};

static size_t bytes(const mace_payload *payload) {
  return payload ? sizeof(mace_loaded) : sizeof(mace_device);
}

static mace_status open_device(const mace_config *config, void *memory, mace_device **device,
                               mace_text text) {
  (void)config, (void)text;
  *device = memory;
  return MACE_OK;
}

static mace_status load(mace_device *device, const mace_payload *payload, void *memory, mace_loaded **loaded,
                        mace_text text) {
  (void)device, (void)text;
  *loaded = memory;
  (*loaded)->payload = payload;
  return MACE_OK;
}

static mace_status run(mace_loaded *loaded, const mace_binding *ports, uint32_t timeout_ms, mace_text text) {
  const float *x = (const float *)ports[0].memory->buffer.host;
  float *y = (float *)ports[1].memory->buffer.host;
  (void)loaded, (void)timeout_ms, (void)text;
  for (int i = 0; i < 8; i++) y[i] = 2 * x[i];
  return MACE_OK;
}

static mace_status compile(mace_loaded *loaded, mace_text text) {
  (void)loaded, (void)text;
  return MACE_OK;
}

static mace_status restore(mace_loaded *loaded, const void *compiled, size_t size, mace_text text) {
  (void)loaded, (void)compiled, (void)size, (void)text;
  return MACE_OK;
}

static size_t save(mace_loaded *loaded, void *compiled, size_t size) {
  (void)loaded, (void)compiled, (void)size;
  return 0;
}

static void unload(mace_loaded *loaded) { (void)loaded; }
static void close_device(mace_device *device) { (void)device; }
static const char *choose(int32_t *levels) {
  (void)levels;
  return NULL;
}

static const mace_driver driver = {
    .struct_bytes = sizeof driver,
    .major = MACE_DRIVER_MAJOR,
    .name = "bare",
    .version = "1",
    .bytes = bytes,
    .open = open_device,
    .load = load,
    .run = run,
    .unload = unload,
    .close = close_device,
    .compile = compile,
    .restore = restore,
    .save = save,
};

static const mace_driver *const drivers[] = {&driver};
static const mace_need needs[2] = {{sizeof(mace_need), 0, 16, 16, 0, 32},
                                   {sizeof(mace_need), 0, 16, 16, 0, 32}};
static const mace_payload payload = {
    .struct_bytes = sizeof payload, .inputs = 1, .outputs = 1, .digest = "00", .ports = needs};
static const mace_place places[] = {{MACE_IN_INPUT, 0, 0}, {MACE_IN_OUTPUT, 0, 0}};
static const mace_task task = {0, 0, &payload, places, 0, 0, NULL, 0, NULL};
static const mace_step step = {.task = 0};
static const uint8_t host_ports[2] = {0, 0};
static const mace_plan plan = {
    sizeof plan, 1, 0, 1, 1, drivers, NULL, &task, &step, NULL, host_ports,
};
static const mace_tensor tensor = {"x", MACE_F32, 1, {8}, 32, 0, 0};
static const mace_part part = {"bare0", -1, NULL};
static const mace_model model = {
    .abi = MACE_ABI,
    .struct_bytes = sizeof model,
    .name = "bare",
    .input_count = 1,
    .output_count = 1,
    .part_count = 1,
    .inputs = &tensor,
    .outputs = &tensor,
    .parts = &part,
    .choose = choose,
    .engine = &mace_device_engine,
    .plan = &plan,
};

extern const mace_model *const MODEL;
const mace_model *const MODEL = &model;
