/* notify_tests.h - part of engine_test.c: who is notified of a run in flight, and when. thread_test.c has
 * drivers with threads of their own. */

static int32_t notices;
static mace_session *noticed_session;

static void notice(void *context) {
  CHECK(context == &notices);
  /* By then the thread that had the session is out of it. */
  CHECK(!noticed_session || !noticed_session->busy);
  notices++;
}

static void end_of_device(void) {
  CHECK(fake.done);
  fake.done(fake.done_context);
  fake.done = NULL;
}

static void test_notify(void) {
  fixture f;
  size_t bytes;
  mace_session *session;
  float x[FAKE_VALUES] = {1}, y[FAKE_VALUES];
  const void *inputs[] = {x};
  void *outputs[] = {y};
  make_models(&f, &fake_notify, 0, 0);
  void *memory = session_memory(&f.device, NULL, &bytes);
  CHECK(!mace_open(&f.device, NULL, memory, bytes, &session));
  notices = 0, noticed_session = session;
  mace_notify(session, notice, &notices);
  for (int i = 1; i <= 3; i++) {
    fake.waits = 1;
    CHECK(!mace_submit(session, inputs, outputs) && notices == i - 1);
    CHECK(mace_wait(session, 0) == MACE_BUSY && notices == i - 1);
    mace_notify(session, NULL, NULL); /* without effect while a run is in flight */
    end_of_device();
    CHECK(notices == i);
    CHECK(!mace_wait(session, 0) && y[0] == 14 && notices == i);
  }
  /* A device that ends while a call has the session: that call notifies, when it is over. */
  fake.ends = 1;
  CHECK(!mace_submit(session, inputs, outputs) && notices == 4);
  CHECK(!mace_wait(session, 0));
  fake.ends = 0;
  /* A run that mace_wait has ended notifies nobody. */
  CHECK(!mace_submit(session, inputs, outputs));
  session->busy = 1;
  end_of_device();
  session->busy &= 2u;
  CHECK(session->busy && !mace_wait(session, 0) && notices == 4 && !session->busy);
  /* A driver that cannot notify this time is waited for, and the thread itself notifies. */
  fake.fails = FAKE_NOTIFY, fake.status = MACE_FAILED, fake.after = fake.calls[FAKE_NOTIFY];
  CHECK(!mace_submit(session, inputs, outputs) && notices == 5 && !fake.submitted);
  CHECK(!mace_wait(session, 0) && y[0] == 14);
  fake.fails = FAKE_NONE;
  mace_notify(session, NULL, NULL);
  CHECK(!mace_submit(session, inputs, outputs) && !fake.done && !mace_wait(session, 0) && notices == 5);
  mace_close(session);
  free(memory);
  balanced();
}

/* Models whose runs are over when mace_submit returns, and runs that fail. */
static void test_notify_without_flight(void) {
  static const mace_driver *const drivers[] = {&fake_own, &fake_async};
  fixture f;
  size_t bytes;
  mace_session *session;
  int waits;
  for (int kind = 0; kind < 3; kind++) {
    make_models(&f, drivers[kind % 2], 0, 0);
    const mace_model *model = kind == 2 ? &f.cpu : &f.device;
    void *memory = session_memory(model, NULL, &bytes);
    CHECK(!mace_open(model, NULL, memory, bytes, &session));
    notices = 0, noticed_session = session;
    mace_notify(session, notice, &notices);
    CHECK(!submit_and_check(session, 1, 0, &waits) && notices == 1 && !waits);
    CHECK(!run_and_check(session, 1, 0) && notices == 1);
    if (kind < 2) {
      fake.fails = FAKE_RUN, fake.status = MACE_FAILED, fake.after = fake.calls[FAKE_RUN];
      CHECK(submit_and_check(session, 1, 0, &waits) == MACE_FAILED && notices == 1);
      fake.fails = FAKE_NONE;
    }
    CHECK(!submit_and_check(session, 1, 0, &waits) && notices == 2);
    mace_close(session);
    free(memory);
    balanced();
  }
  mace_notify(NULL, notice, &notices);
}
