/* qemu_counter: a plugin of QEMU that counts what a program executes, by function.
 *
 *   qemu-PROCESSOR -plugin qemu_counter.so,[out=counts.txt,][marks=marks.txt] PROGRAM ...
 *
 * classify.h, which belongs to the processor, says what is counted: KINDS numbers, the first of them what QEMU
 * translates as one instruction. counts.txt has a line for each function that was executed, its numbers and
 * its name. marks.txt has a line with the numbers of all functions until then, for each time that the program
 * read the clock: so a program that times what it does is counted. What of QEMU's interface is used here is
 * declared here (version 1 of it, qemu-plugin.h of QEMU 4.2 to 8), since distributions ship the emulator
 * without its headers.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Defines KINDS, is_clock_call (of a system call's number) and count_words: adds to counts[1] and on what an
 * instruction of `size` bytes is. */
#include "classify.h"

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
    void (*translate)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*at_exit)(qemu_plugin_id_t, void *),
    void *data);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int operation, void *counter,
    uint64_t addend);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t id,
    void (*call)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
        uint64_t, uint64_t, uint64_t));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *insn);

EXPORT int qemu_plugin_version = 1;

enum { ADD = 0, MAX_FUNCTIONS = 1 << 14 };

typedef struct function {
  char name[96];
  uint64_t counts[KINDS];
} function;

static function functions[MAX_FUNCTIONS];
static size_t function_count;
static char file_name[1024];
static FILE *marks;

static function *find_function(const char *name) {
  for (size_t i = 0; i < function_count; i++)
    if (!strncmp(functions[i].name, name, sizeof functions[i].name - 1)) return &functions[i];
  if (function_count == MAX_FUNCTIONS) return &functions[MAX_FUNCTIONS - 1];
  function *added = &functions[function_count++];
  strncpy(added->name, name, sizeof added->name - 1);
  return added;
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
  (void)id;
  uint64_t counts[KINDS] = {0};
  const size_t instructions = qemu_plugin_tb_n_insns(tb);
  for (size_t i = 0; i < instructions; i++) {
    const struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(tb, i);
    count_words(qemu_plugin_insn_data(instruction), qemu_plugin_insn_size(instruction), counts);
  }
  counts[0] = instructions;
  const char *symbol = qemu_plugin_insn_symbol(qemu_plugin_tb_get_insn(tb, 0));
  function *executed = find_function(symbol ? symbol : "?");
  for (int kind = 0; kind < KINDS; kind++)
    if (counts[kind])
      qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD, &executed->counts[kind], counts[kind]);
}

static void mark_clock(qemu_plugin_id_t id, unsigned processor, int64_t number, uint64_t a1, uint64_t a2,
    uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
  (void)id, (void)processor, (void)a1, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
  if (!is_clock_call(number)) return;
  for (int kind = 0; kind < KINDS; kind++) {
    uint64_t total = 0;
    for (size_t i = 0; i < function_count; i++) total += functions[i].counts[kind];
    fprintf(marks, "%" PRIu64 "%s", total, kind == KINDS - 1 ? "\n" : " ");
  }
}

static void write_counts(qemu_plugin_id_t id, void *data) {
  (void)id, (void)data;
  if (marks) fclose(marks);
  FILE *file = *file_name ? fopen(file_name, "w") : NULL;
  if (!file) return;
  for (size_t i = 0; i < function_count; i++) {
    for (int kind = 0; kind < KINDS; kind++) fprintf(file, "%" PRIu64 " ", functions[i].counts[kind]);
    fprintf(file, "%s\n", functions[i].name);
  }
  fclose(file);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
  (void)info;
  for (int i = 0; i < argc; i++) {
    if (!strncmp(argv[i], "out=", 4)) strncpy(file_name, argv[i] + 4, sizeof file_name - 1);
    if (!strncmp(argv[i], "marks=", 6) && !(marks = fopen(argv[i] + 6, "w"))) return 1;
  }
  if (!*file_name && !marks) return 1;
  if (marks) qemu_plugin_register_vcpu_syscall_cb(id, mark_clock);
  qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
  qemu_plugin_register_atexit_cb(id, write_counts, NULL);
  return 0;
}
