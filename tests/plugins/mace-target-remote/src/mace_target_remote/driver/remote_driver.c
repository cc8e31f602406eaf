/* The driver of remote parts: starts the program that is a part's payload, and sends it inputs and receives outputs.
 *
 * The program is for 64-bit ARM; on another processor qemu-aarch64 executes it. Both ends of the connection are sockets, because
 * writing to a pipe whose reader has died would end the process by SIGPIPE. Programs are ended in unload, whatever they do.
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
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

#define GENERATION "Linux, arm64"
#define MAGIC 0x544D4552
#define TIMEOUT_MS 60000u

extern char **environ;

struct mace_device {
  uint32_t timeout_ms;
};

struct mace_loaded {
  const mace_payload *payload;
  pid_t process; /* 0: none */
  int connection;
  uint32_t timeout_ms;
};

static mace_status say(mace_text text, mace_status status, const char *what) {
  if (text.at && text.bytes) snprintf(text.at, text.bytes, "%s", what);
  return status;
}

static size_t bytes(const mace_payload *payload) { return payload ? sizeof(mace_loaded) : sizeof(mace_device); }

static mace_status open_remote(const mace_config *config, void *memory, mace_device **opened, mace_text text) {
  mace_device *device = memory;
  (void)text;
  device->timeout_ms = config && config->timeout_ms ? config->timeout_ms : TIMEOUT_MS;
  *opened = device;
  return MACE_OK;
}

static int64_t word(const mace_payload *payload, int64_t number) {
  int64_t value;
  memcpy(&value, (const char *)payload->code + 8 * number, sizeof value);
  return value;
}

/* A file without a name that holds the program; -1 if there is no memory for it. */
static int store(const char *program, size_t size) {
  const int file = memfd_create("mace-remote", 0);
  while (file >= 0 && size) {
    const ssize_t n = write(file, program, size);
    if (n <= 0) {
      close(file);
      return -1;
    }
    program += n;
    size -= (size_t)n;
  }
  return file;
}

/* Start the program of a file with one end of a connection as its standard input and output; 0 where it started, else an errno. */
static int start(mace_loaded *part, int file, int theirs) {
  char path[64], emulator[] = "qemu-aarch64";
  char *emulated[] = {emulator, path, NULL}, *direct[] = {path, NULL};
  posix_spawn_file_actions_t actions;
  int failed;
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  if ((failed = posix_spawn_file_actions_init(&actions))) return failed;
  failed = posix_spawn_file_actions_adddup2(&actions, theirs, 0) || posix_spawn_file_actions_adddup2(&actions, theirs, 1);
#ifdef __aarch64__
  (void)emulated;
  if (!failed) failed = posix_spawn(&part->process, path, &actions, NULL, direct, environ);
#else
  (void)direct;
  if (!failed) failed = posix_spawnp(&part->process, emulator, &actions, NULL, emulated, environ);
#endif
  posix_spawn_file_actions_destroy(&actions);
  if (failed) part->process = 0;
  return failed;
}

static mace_status load(mace_device *device, const mace_payload *payload, void *memory, mace_loaded **loaded, mace_text text) {
  mace_loaded *part = memory;
  size_t header;
  int ends[2], file, failed;
  memset(part, 0, sizeof *part);
  header = 8 * (3 + (size_t)payload->inputs + (size_t)payload->outputs);
  if (strcmp(payload->built_for, GENERATION) || payload->code_bytes < header || word(payload, 0) != MAGIC)
    return say(text, MACE_STALE, "the part is no program for \"" GENERATION "\"; build the library again");
  if ((file = store((const char *)payload->code + header, payload->code_bytes - header)) < 0)
    return say(text, MACE_NO_MEMORY, "there is no memory for the remote program; free some");
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
    close(file);
    return say(text, MACE_FAILED, "no connection could be made; close some files");
  }
  failed = start(part, file, ends[1]);
  close(file);
  close(ends[1]);
  if (failed) {
    close(ends[0]);
    return say(text, MACE_NO_DEVICE, "the remote program could not be started; install qemu-aarch64 (qemu-user)");
  }
  part->connection = ends[0];
  part->payload = payload;
  part->timeout_ms = device->timeout_ms;
  *loaded = part;
  return MACE_OK;
}

/* Move bytes to or from the program; 0 where all went, else an errno: EAGAIN where time is up. */
static int transfer(int connection, int output, char *data, size_t size) {
  while (size) {
    const ssize_t n = output ? send(connection, data, size, MSG_NOSIGNAL) : recv(connection, data, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n ? errno : EPIPE;
    data += n;
    size -= (size_t)n;
  }
  return 0;
}

static char *address(const mace_binding *port) {
  return (char *)port->memory->buffer.host + port->memory->buffer.offset + port->offset;
}

static mace_status run(mace_loaded *part, const mace_binding *ports, uint32_t timeout_ms, mace_text text) {
  const int32_t inputs = part->payload->inputs, all = inputs + part->payload->outputs;
  const uint32_t limit = timeout_ms ? timeout_ms : part->timeout_ms;
  const struct timeval time = {limit / 1000, limit % 1000 * 1000};
  int64_t status = 0;
  int32_t i;
  int failed = 0;
  setsockopt(part->connection, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  setsockopt(part->connection, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  for (i = 0; !failed && i < inputs; i++)
    failed = transfer(part->connection, 1, address(ports + i), (size_t)word(part->payload, 3 + i));
  if (!failed) failed = transfer(part->connection, 0, (char *)&status, sizeof status);
  for (i = inputs; !failed && !status && i < all; i++)
    failed = transfer(part->connection, 0, address(ports + i), (size_t)word(part->payload, 3 + i));
  /* After a message cut short nothing that comes later can be trusted, so the program is lost in each case. */
  if (failed == EAGAIN || failed == EWOULDBLOCK) return say(text, MACE_LOST, "the remote program did not answer in time; open again");
  if (failed) return say(text, MACE_LOST, "the remote program died; open the session again");
  return status ? say(text, MACE_FAILED, "the remote program could not compute; report a bug") : MACE_OK;
}

static void unload(mace_loaded *part) {
  close(part->connection);
  if (!part->process) return;
  kill(part->process, SIGKILL);
  while (waitpid(part->process, NULL, 0) < 0 && errno == EINTR) continue;
  part->process = 0;
}

static void close_remote(mace_device *device) { (void)device; }

static const char *describe(mace_device *device) {
  (void)device;
  return GENERATION;
}

const mace_driver mace_remote_driver = {
    .struct_bytes = sizeof(mace_driver),
    .major = MACE_DRIVER_MAJOR,
    .flags = MACE_ALLOCATES,
    .name = "remote",
    .version = "0.1.0",
    .bytes = bytes,
    .open = open_remote,
    .load = load,
    .run = run,
    .unload = unload,
    .close = close_remote,
    .describe = describe,
};
