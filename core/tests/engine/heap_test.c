/* What sessions and engine ask of the heap, call by call: nothing, whatever the drivers do. */
#include "heap.h"

#include "models.h"

static long requests_of(const mace_model *model, const mace_config *config) {
  size_t bytes;
  mace_session *session;
  void *memory = session_memory(model, config, &bytes);
  static _Alignas(64) float x[2 * FAKE_VALUES] = {1}, y[2 * FAKE_VALUES];
  const void *inputs[] = {x}, *bound[] = {NULL};
  void *outputs[] = {y};
  const mace_buffer buffer = {sizeof buffer, MACE_HOST, x, 0, 0, sizeof x, -1};
  mace_buffer allocated = {.struct_bytes = sizeof allocated};
  heap_requests = 0;
  heap_is_watched = 1;
  CHECK(!mace_open(model, config, memory, bytes, &session));
  CHECK(!mace_run(session, inputs, outputs) && !mace_reset(session));
  CHECK(!mace_submit(session, inputs, outputs) && !mace_wait(session, MACE_FOREVER));
  CHECK(model->state_count || !mace_run_batch(session, 2, inputs, outputs));
  CHECK(!mace_bind(session, 0, &buffer) && !mace_run(session, bound, outputs));
  (void)mace_allocate(session, 0, &allocated); /* refused where no device has the port */
  CHECK(*mace_part_device(session, 0));
  CHECK(mace_run(session, inputs, NULL) == MACE_NO_TENSOR && *mace_error(session));
  fake.fails = FAKE_RUN, fake.status = MACE_FAILED, fake.after = fake.calls[FAKE_RUN];
  (void)mace_run(session, inputs, outputs); /* fails, or falls back */
  fake.fails = FAKE_NONE;
  mace_close(session);
  heap_is_watched = 0;
  free(memory);
  return heap_requests;
}

int main(void) {
  static const mace_driver *const drivers[] = {&fake_own, &fake_shared, &fake_import, &fake_compile,
                                               &fake_async};
  static const mace_config plain = {.struct_bytes = sizeof plain};
  static const mace_config repeats = {.struct_bytes = sizeof repeats, .fallback = MACE_FALLBACK_AT_RUN};
  fixture f;
  for (size_t d = 0; d < sizeof drivers / sizeof *drivers; d++)
    for (int kind = 0; kind < 6; kind++) {
      make_models(&f, drivers[d], kind % 3 == 1, kind % 3 == 2);
      f.device.fallback = &f.cpu;
      const mace_config *config = kind < 3 ? &plain : &repeats;
      CHECK(requests_of(&f.cpu, config) == 0);
      const long requests = requests_of(&f.device, config);
      CHECK((requests != 0) == (drivers[d] == &fake_async)); /* it says so, and is counted */
      CHECK(!(drivers[d]->flags & MACE_ALLOCATES) == (requests == 0));
    }
  return 0;
}
