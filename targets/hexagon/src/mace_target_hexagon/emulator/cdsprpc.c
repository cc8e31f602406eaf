/* cdsprpc.c - a stand-in for libcdsprpc.so: the functions of FastRPC that the driver calls, with a DSP that
 * dsp_loader plays in a process of its own under qemu-hexagon. It keeps the rules that the vendor documents,
 * and ends the program where the driver breaks one.
 *
 * Variables of the environment:
 *   ADSP_LIBRARY_PATH, DSP_LIBRARY_PATH  folders of DSP libraries, with ; between them; as the vendor's
 *   MACE_DSP_COMMAND                     what plays the DSP, words with blanks between them
 *   MACE_DSP_LOG                         a file to which every call is appended
 *   MACE_DSP_FAULT                       FUNCTION:CALL=CODE, more with commas between them: that call of
 *                                        a function answers the code; of remote_handle64_invoke, the code
 *                                        `kill` kills the DSP's process half way, `hang` stops it, `short`
 *                                        and `garbage` let it answer too little, or bytes without sense
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulator_log.h"
#include "emulator_protocol.h"
#include "hexagon_fastrpc.h"

#define EXPORT __attribute__((visibility("default")))
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { MAX_HANDLES = 64, MAX_MEMORIES = 256, MAX_WORDS = 16, MAX_PATH = 4096 };

typedef struct handle {
  uint64_t module, remote;
  int is_open;
} handle;

typedef struct memory {
  void *at; /* NULL: free */
  size_t bytes;
  int descriptor, is_mapped;
} memory;

static handle handles[MAX_HANDLES];
static memory memories[MAX_MEMORIES];
static pid_t process; /* 0: none */
static int connection = -1, is_dead, open_handles;

/* ---- faults ---- */

/* The caller broke a rule of the vendor's. */
static void abandon(const char *rule) {
  fprintf(stderr, "cdsprpc: %s\n", rule);
  abort();
}

enum { NO_FAULT = 0, KILL = -1001, HANG = -1002, SHORT = -1003, GARBAGE = -1004 };

static int read_code(const char *text) {
  static const struct {
    const char *word;
    int code;
  } words[] = {{"kill", KILL}, {"hang", HANG}, {"short", SHORT}, {"garbage", GARBAGE}};
  for (size_t i = 0; i < COUNT(words); i++)
    if (!strncmp(text, words[i].word, strlen(words[i].word))) return words[i].code;
  return (int)strtoul(text, NULL, 0);
}

/* Count the calls of a function in the environment, because this library is closed between two sessions. */
static long count_call(const char *function) {
  char name[64], value[16];
  const char *before;
  long calls;
  snprintf(name, sizeof name, "MACE_DSP_CALLS_%s", function);
  before = getenv(name);
  calls = (before ? strtol(before, NULL, 10) : 0) + 1;
  snprintf(value, sizeof value, "%ld", calls);
  setenv(name, value, 1);
  return calls;
}

/* The fault that the environment plants in this call of a function. */
static int find_fault(const char *function) {
  const char *at = getenv("MACE_DSP_FAULT");
  const size_t length = strlen(function);
  long calls;
  if (!at || !*at) return NO_FAULT;
  calls = count_call(function);
  while (at && *at) {
    char *end;
    if (!strncmp(at, function, length) && at[length] == ':' &&
        strtol(at + length + 1, &end, 10) == calls && *end == '=')
      return read_code(end + 1);
    at = strchr(at, ',');
    if (at) at++;
  }
  return NO_FAULT;
}

#define FAULT(function) const int fault = find_fault(#function)

/* ---- the process ---- */

static int transfer(int is_output, void *data, size_t bytes) {
  char *at = data;
  while (bytes) {
    const ssize_t n = is_output ? send(connection, at, bytes, MSG_NOSIGNAL) : recv(connection, at, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    at += n;
    bytes -= (size_t)n;
  }
  return 1;
}

static void end_process(void) {
  if (connection >= 0) close(connection);
  connection = -1;
  if (!process) return;
  kill(process, SIGKILL);
  while (waitpid(process, NULL, 0) < 0 && errno == EINTR) continue;
  process = 0;
}

/* The process has died, or says what makes no sense: from now on it is dead for all handles. */
static int lose(void) {
  is_dead = 1;
  end_process();
  return HEXAGON_ECONNRESET;
}

/* Answer a planted code; one that says that the process is gone is true. */
static int answer(int code) {
  if (code == HEXAGON_ECONNRESET || code == HEXAGON_ENOSUCH ||
      (uint32_t)code == HEXAGON_DSP_ERRORS + HEXAGON_EBADSTATE)
    lose();
  return code;
}

/* Start what MACE_DSP_COMMAND names, with one end of a connection as its input and output; an error or 0. */
static int start_process(void) {
  extern char **environ;
  const char *command = getenv("MACE_DSP_COMMAND");
  char *words[MAX_WORDS + 1] = {NULL}, *copy = strdup(command ? command : ""), *rest = copy;
  posix_spawn_file_actions_t actions;
  int ends[2], count = 0, failed;
  while (count < MAX_WORDS && (words[count] = strtok_r(rest, " ", &rest))) count++;
  if (!count || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
    free(copy);
    return HEXAGON_ECONNREFUSED;
  }
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  failed = posix_spawnp(&process, words[0], &actions, NULL, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  free(copy);
  connection = ends[0];
  if (!failed) return 0;
  process = 0;
  end_process();
  return HEXAGON_ECONNREFUSED;
}

/* ---- handles ---- */

/* Find the file of "file:///FILE?..." in the folders of the vendor's variables. */
static int find_library(const char *uri, char *path) {
  const char *folders = getenv("DSP_LIBRARY_PATH"), *name = uri + strlen("file:///");
  const size_t length = strcspn(name, "?");
  if (!folders) folders = getenv("ADSP_LIBRARY_PATH");
  while (folders && *folders) {
    const size_t bytes = strcspn(folders, ";");
    snprintf(path, MAX_PATH, "%.*s/%.*s", (int)bytes, folders, (int)length, name);
    if (!access(path, R_OK)) return 1;
    folders += bytes + (folders[bytes] == ';');
  }
  return 0;
}

static int ask(const emulator_request *request, uint32_t *lengths, remote_arg *arguments, uint32_t inputs,
               uint32_t outputs, emulator_reply *reply) {
  int is_good = transfer(1, (void *)(uintptr_t)request, sizeof *request) &&
                transfer(1, lengths, (inputs + outputs) * sizeof *lengths);
  for (uint32_t i = 0; is_good && i < inputs; i++) is_good = transfer(1, arguments[i].buf.pv, lengths[i]);
  is_good = is_good && transfer(0, reply, sizeof *reply);
  for (uint32_t i = inputs; is_good && !reply->code && i < inputs + outputs; i++)
    is_good = transfer(0, arguments[i].buf.pv, lengths[i]);
  return is_good ? 0 : lose();
}

EXPORT int remote_handle64_open(const char *uri, remote_handle64 *opened) {
  FAULT(remote_handle64_open);
  char path[MAX_PATH], *text = strdup(uri);
  emulator_request request = {EMULATOR_OPEN, 0, 0, 0};
  emulator_reply reply;
  uint32_t lengths[2];
  remote_arg arguments[2];
  int code = fault, number = 0;
  log_line("remote_handle64_open %s", uri);
  if (strncmp(uri, "file:///", 8) || !strstr(uri, "&_dom=cdsp")) abandon("the URI names no module or no DSP");
  if (!code && is_dead) code = HEXAGON_ECONNREFUSED; /* until all handles of the dead process are closed */
  if (!code && !find_library(uri, path)) code = (int)(HEXAGON_DSP_ERRORS + HEXAGON_EUNABLETOLOAD);
  if (!code && !process) code = start_process();
  if (!code) {
    arguments[0].buf.pv = path;
    arguments[1].buf.pv = text;
    lengths[0] = (uint32_t)strlen(path) + 1;
    lengths[1] = (uint32_t)strlen(uri) + 1;
    code = ask(&request, lengths, arguments, 2, 0, &reply);
    /* No handle is open yet that would have to be closed first. */
    if (code && !open_handles) is_dead = 0;
  }
  free(text);
  if (code || reply.code) return code ? code : reply.code;
  while (handles[number].is_open)
    if (++number == MAX_HANDLES) abandon("too many handles are open");
  handles[number] = (handle){reply.module, reply.handle, 1};
  *opened = (remote_handle64)number + 1;
  open_handles++;
  return 0;
}

static handle *find_handle(remote_handle64 number) {
  if (!number || number > MAX_HANDLES || !handles[number - 1].is_open) abandon("a handle is not open");
  return &handles[number - 1];
}

/* Send a call, and do to the process what the fault says. */
static int break_call(const emulator_request *request, uint32_t *lengths, remote_arg *arguments, int fault) {
  const uint32_t inputs = HEXAGON_INPUTS(request->scalars), outputs = HEXAGON_OUTPUTS(request->scalars);
  emulator_reply reply;
  transfer(1, (void *)(uintptr_t)request, sizeof *request);
  transfer(1, lengths, (inputs + outputs) * sizeof *lengths);
  for (uint32_t i = 0; i < inputs; i++) transfer(1, arguments[i].buf.pv, lengths[i]);
  if (fault == KILL) kill(process, SIGKILL);
  if (fault == HANG) kill(process, SIGSTOP);
  if (!transfer(0, &reply, sizeof reply)) return lose();
  for (uint32_t i = inputs; i < inputs + outputs; i++)
    memset(arguments[i].buf.pv, 0xa5, fault == SHORT ? lengths[i] / 2 : lengths[i]);
  lose();
  return fault == SHORT ? HEXAGON_ECONNRESET : 0;
}

EXPORT int remote_handle64_invoke(remote_handle64 number, uint32_t scalars, remote_arg *arguments) {
  FAULT(remote_handle64_invoke);
  const uint32_t inputs = HEXAGON_INPUTS(scalars), outputs = HEXAGON_OUTPUTS(scalars);
  const handle *h = find_handle(number);
  uint32_t lengths[EMULATOR_MAX_BUFFERS];
  emulator_request request = {EMULATOR_INVOKE, scalars, h->module, h->remote};
  emulator_reply reply;
  int code;
  log_line("remote_handle64_invoke %08x", scalars);
  for (uint32_t i = 0; i < inputs + outputs; i++) {
    lengths[i] = (uint32_t)arguments[i].buf.nLen;
    log_line(" %s %u", i < inputs ? "in" : "out", lengths[i]);
  }
  if (fault > NO_FAULT || fault < GARBAGE) return answer(fault);
  if (is_dead || !process) return HEXAGON_ECONNRESET;
  if (fault) return break_call(&request, lengths, arguments, fault);
  code = ask(&request, lengths, arguments, inputs, outputs, &reply);
  return code ? code : reply.code;
}

EXPORT int remote_handle64_close(remote_handle64 number) {
  FAULT(remote_handle64_close);
  handle *h = find_handle(number);
  emulator_request request = {EMULATOR_CLOSE, HEXAGON_SCALARS(1, 0, 0, 1, 0), h->module, h->remote};
  emulator_reply reply = {0, 0, 0, 0};
  int code = 0;
  log_line("remote_handle64_close");
  if (!is_dead && process) code = ask(&request, NULL, NULL, 0, 0, &reply);
  h->is_open = 0;
  if (!--open_handles) {
    end_process();
    is_dead = 0;
  }
  if (fault) return fault;
  return code ? code : reply.code;
}

EXPORT int remote_handle64_control(remote_handle64 number, uint32_t request, void *data, uint32_t bytes) {
  FAULT(remote_handle64_control);
  const hexagon_latency *latency = data;
  find_handle(number);
  if (request != HEXAGON_CONTROL_LATENCY || bytes != sizeof *latency) abandon("no request for a latency");
  log_line("remote_handle64_control latency %u %u", latency->enable, latency->latency_us);
  return fault;
}

EXPORT int remote_session_control(uint32_t request, void *data, uint32_t bytes) {
  FAULT(remote_session_control);
  log_line("remote_session_control %u", request);
  if (request == HEXAGON_UNSIGNED_MODULE && bytes == sizeof(hexagon_unsigned_module)) {
    const hexagon_unsigned_module *unsigned_module = data;
    return unsigned_module->domain == HEXAGON_CDSP ? fault : HEXAGON_EBADPARM;
  }
  if (request == HEXAGON_THREAD_PARAMS && bytes == sizeof(hexagon_thread_params)) {
    const hexagon_thread_params *params = data;
    log_line(" stack %d priority %d", params->stack_bytes, params->priority);
    return params->domain == HEXAGON_CDSP ? fault : HEXAGON_EBADPARM;
  }
  if (request != HEXAGON_PROCESS_KILL || bytes != sizeof(hexagon_process_kill))
    abandon("an unknown request to the session");
  if (process) kill(process, SIGKILL);
  return fault;
}

/* ---- shared memory ---- */

static memory *find_memory(const void *at) {
  for (size_t i = 0; i < MAX_MEMORIES; i++)
    if (memories[i].at == at && at) return &memories[i];
  return NULL;
}

EXPORT void *rpcmem_alloc(int heap, uint32_t flags, int bytes) {
  FAULT(rpcmem_alloc);
  memory *m = memories;
  log_line("rpcmem_alloc %d", bytes);
  if (heap != HEXAGON_HEAP_SYSTEM || flags != HEXAGON_HEAP_FLAGS || bytes <= 0) abandon("an unusual heap");
  if (fault) return NULL;
  while (m->at)
    if (++m == memories + MAX_MEMORIES) return NULL;
  m->descriptor = memfd_create("rpcmem", MFD_CLOEXEC);
  if (m->descriptor < 0 || ftruncate(m->descriptor, bytes)) return NULL;
  m->bytes = (size_t)bytes;
  m->is_mapped = 0;
  m->at = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->descriptor, 0);
  if (m->at == MAP_FAILED) m->at = NULL;
  return m->at;
}

EXPORT void rpcmem_free(void *at) {
  memory *m = find_memory(at);
  log_line("rpcmem_free");
  if (!m) abandon("memory is freed that rpcmem_alloc did not give");
  if (m->is_mapped && process && !is_dead) abandon("memory is freed that the DSP has mapped");
  munmap(m->at, m->bytes);
  close(m->descriptor);
  m->at = NULL;
}

EXPORT int rpcmem_to_fd(void *at) {
  FAULT(rpcmem_to_fd);
  const memory *m = find_memory(at);
  if (!m) abandon("no memory of rpcmem_alloc");
  log_line("rpcmem_to_fd");
  return fault ? fault : m->descriptor;
}

EXPORT int fastrpc_mmap(int domain, int descriptor, void *at, int offset, size_t bytes, int flags) {
  FAULT(fastrpc_mmap);
  memory *m = find_memory(at);
  log_line("fastrpc_mmap %zu", bytes);
  if (domain != HEXAGON_CDSP || !m || m->descriptor != descriptor || offset || m->bytes != bytes || flags)
    abandon("fastrpc_mmap gets what rpcmem_alloc did not give");
  if (m->is_mapped) abandon("memory is mapped twice");
  if (fault) return answer(fault);
  if (!process || is_dead) return HEXAGON_ECONNRESET;
  m->is_mapped = 1;
  return 0;
}

EXPORT int fastrpc_munmap(int domain, int descriptor, void *at, size_t bytes) {
  FAULT(fastrpc_munmap);
  memory *m = find_memory(at);
  log_line("fastrpc_munmap %zu", bytes);
  if (domain != HEXAGON_CDSP || !m || m->descriptor != descriptor || m->bytes != bytes || !m->is_mapped)
    abandon("fastrpc_munmap gets what is not mapped");
  m->is_mapped = 0;
  return fault;
}
