/* Times the first inference of a process. argv: LEVEL RUNS. Prints a line of JSON.
 *
 * The program reads the clock and executes itself, so that what follows holds the loader's work and none of the
 * parent's: load_ns until main begins; open_ns from there to the first mace_run: the session's memory is asked for,
 * and the session opened; run_ns of each run, of the processor, so that others on the machine do not count;
 * page_faults of each run, whose time is in run_ns.
 * LEVEL is what MACE_CPU_LEVEL names, "" for the best. Inputs and outputs are touched before, as an application's are.
 * LARGE_PAGES takes the session's memory in pages of 2 MB, as far as the system has them. Without HEADER there is no
 * library: load_ns is what any program takes.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static long long read_clock(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

static long long now(void) { return read_clock(CLOCK_MONOTONIC); }

/* Execute the program anew with the time in its arguments. */
static int start_again(char **argv) {
  char stamp[32];
  char *const arguments[] = {argv[0], argv[1], argv[2], stamp, NULL};
  if (*argv[1]) setenv("MACE_CPU_LEVEL", argv[1], 1);
  snprintf(stamp, sizeof stamp, "%lld", now());
  execv("/proc/self/exe", arguments);
  return 4;
}

#ifdef HEADER
#include HEADER

enum { MAX_PORTS = 16, MAX_RUNS = 64, LARGE = 2 << 20 };

static long page_faults(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return used.ru_minflt + used.ru_majflt;
}

static void *allocate(size_t bytes, size_t alignment) {
  void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!memory) exit(3);
  return memory;
}

static void *allocate_session(size_t bytes) {
#ifdef LARGE_PAGES
  void *memory = allocate(bytes, LARGE);
  if (madvise(memory, (bytes + LARGE - 1) / LARGE * LARGE, MADV_HUGEPAGE)) exit(3);
  return memory;
#else
  return allocate(bytes, MACE_ALIGNMENT);
#endif
}

static void *allocate_port(size_t bytes) { return memset(allocate(bytes, MACE_ALIGNMENT), 1, bytes); }

static void print_runs(const char *name, const long long *values, int runs) {
  printf(", \"%s\": [", name);
  for (int i = 0; i < runs; i++) printf("%s%lld", i ? ", " : "", values[i]);
  printf("]");
}

static int infer(const mace_model *model, long long load, int runs) {
  if (runs < 1 || runs > MAX_RUNS || model->input_count > MAX_PORTS || model->output_count > MAX_PORTS) return 2;
  const void *in[MAX_PORTS];
  void *out[MAX_PORTS];
  for (int i = 0; i < model->input_count; i++) in[i] = allocate_port(model->inputs[i].bytes);
  for (int i = 0; i < model->output_count; i++) out[i] = allocate_port(model->outputs[i].bytes);
  const long long start = now();
  mace_session *session;
  const size_t bytes = mace_session_bytes(model, NULL);
  if (mace_open(model, NULL, allocate_session(bytes), bytes, &session)) return 5;
  const long long opened = now() - start;
  long long times[MAX_RUNS], faults[MAX_RUNS];
  for (int i = 0; i < runs; i++) {
    const long before = page_faults();
    const long long from = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    if (mace_run(session, in, out)) return 6;
    times[i] = read_clock(CLOCK_PROCESS_CPUTIME_ID) - from;
    faults[i] = page_faults() - before;
  }
  printf("{\"load_ns\": %lld, \"open_ns\": %lld", load, opened);
  print_runs("run_ns", times, runs);
  print_runs("page_faults", faults, runs);
  printf("}\n");
  mace_close(session);
  return 0;
}
#endif

int main(int argc, char **argv) {
  const long long begin = now();
  if (argc == 3) return start_again(argv);
  if (argc != 4) return 2;
  const long long load = begin - atoll(argv[3]);
#ifdef HEADER
  return infer(MODELS[0], load, atoi(argv[2]));
#else
  printf("{\"load_ns\": %lld}\n", load);
  return 0;
#endif
}
