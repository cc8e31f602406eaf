/* dsp_loader: stands in for the system of a Hexagon DSP. A static program for Hexagon Linux that loads a DSP
 * library, the very file that a device would get, and executes the remote calls that come over its standard
 * input, a socket; under qemu-hexagon it runs on any machine.
 *
 * The library is placed as the ELF specification says, with the relocations of Hexagon's supplement, and its
 * undefined symbols are those of the table below: memory, strings and mathematics, as a DSP's system has, and
 * what dsp_system.c plays.
 * It is a tool for tests: the library is trusted, and what cannot be loaded ends the program.
 */
#include <elf.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dsp_system.h"
#include "emulator_log.h"
#include "emulator_protocol.h"
#include "hexagon_fastrpc.h"

enum { R_WORD = 6, R_GLOB_DAT = 33, R_JMP_SLOT = 34, R_RELATIVE = 35 };
enum { MAX_MODULES = 16, EUNABLETOLOAD = (int)(0x80000400u + 6) };

typedef int entry(remote_handle64, uint32_t, remote_arg *);

typedef struct loaded_module {
  char *base; /* NULL: none */
  size_t bytes;
  entry *call;
} loaded_module;

static loaded_module modules[MAX_MODULES];

/* ---- the system of the DSP ---- */

#define PAIRS(NAME) \
  NAME(acos) NAME(acosh) NAME(asin) NAME(asinh) NAME(atan) NAME(atanh) NAME(cbrt) NAME(ceil) NAME(cos) \
  NAME(cosh) NAME(erf) NAME(erfc) NAME(exp) NAME(exp2) NAME(expm1) NAME(fabs) NAME(floor) NAME(lgamma) \
  NAME(log) NAME(log10) NAME(log1p) NAME(log2) NAME(nearbyint) NAME(rint) NAME(round) NAME(sin) NAME(sinh) \
  NAME(sqrt) NAME(tan) NAME(tanh) NAME(tgamma) NAME(trunc) NAME(lrint) NAME(lround) NAME(llrint) \
  NAME(llround) NAME(atan2) NAME(copysign) NAME(fma) NAME(fmax) NAME(fmin) NAME(fmod) NAME(frexp) NAME(ldexp) \
  NAME(pow) NAME(remainder) NAME(scalbn)
#define SINGLES(NAME) \
  NAME(abs) NAME(abort) NAME(calloc) NAME(free) NAME(getenv) NAME(malloc) \
  NAME(memcmp) NAME(memcpy) NAME(memmove) NAME(memset) NAME(qsort) NAME(realloc) NAME(strcmp) \
  NAME(strlen) NAME(strncmp)

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

typedef struct symbol {
  const char *name;
  void *address;
} symbol;

#define PAIR(name) {#name, (void *)(name)}, {#name "f", (void *)(name##f)},
#define ONE(name) {#name, (void *)(name)},
static const symbol symbols[] = {PAIRS(PAIR) SINGLES(ONE) DSP_SYSTEM(ONE)};
static const symbol manager_symbols[] = {DSP_MANAGER(ONE)};

static uint32_t find_among(const symbol *all, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++)
    if (!strcmp(all[i].name, name)) return (uint32_t)(uintptr_t)all[i].address;
  return 0;
}

static uint32_t find_symbol(const char *name) {
  const char *manager = getenv("MACE_DSP_MANAGER");
  const uint32_t address = find_among(symbols, COUNT(symbols), name);
  if (address || !manager || strcmp(manager, "1")) return address;
  return find_among(manager_symbols, COUNT(manager_symbols), name);
}

/* ---- loading ---- */

static uint32_t read_tag(const Elf32_Dyn *dynamic, int32_t tag) {
  for (; dynamic->d_tag != DT_NULL; dynamic++)
    if (dynamic->d_tag == tag) return dynamic->d_un.d_val;
  return 0;
}

/* The address of a symbol; 0 where it is undefined and weak, or unknown, which is noted. */
static uint32_t resolve(const char *base, const Elf32_Sym *symbol, const char *name) {
  uint32_t address;
  if (symbol->st_shndx != SHN_UNDEF) return (uint32_t)(uintptr_t)base + symbol->st_value;
  address = find_symbol(name);
  if (!address && ELF32_ST_BIND(symbol->st_info) != STB_WEAK) {
    log_line("undefined %s", name);
    fprintf(stderr, "dsp_loader: no symbol %s; add it to the table in dsp_loader.c\n", name);
  }
  return address;
}

static int relocate(char *base, const Elf32_Dyn *dynamic, int32_t table, int32_t table_bytes) {
  const Elf32_Rela *rela = (const Elf32_Rela *)(base + read_tag(dynamic, table));
  const Elf32_Sym *const all = (const Elf32_Sym *)(base + read_tag(dynamic, DT_SYMTAB));
  const char *const names = base + read_tag(dynamic, DT_STRTAB);
  uint32_t left = read_tag(dynamic, table_bytes) / sizeof *rela;
  for (; left; left--, rela++) {
    const Elf32_Sym *symbol = &all[ELF32_R_SYM(rela->r_info)];
    uint32_t value = (uint32_t)rela->r_addend, address;
    switch (ELF32_R_TYPE(rela->r_info)) {
      case R_RELATIVE: value += (uint32_t)(uintptr_t)base; break;
      case R_WORD:
      case R_GLOB_DAT:
      case R_JMP_SLOT:
        address = resolve(base, symbol, names + symbol->st_name);
        if (!address && ELF32_ST_BIND(symbol->st_info) != STB_WEAK) return 0;
        value += address;
        break;
      default: fprintf(stderr, "dsp_loader: relocation %d\n", (int)ELF32_R_TYPE(rela->r_info)); return 0;
    }
    memcpy(base + rela->r_offset, &value, sizeof value);
  }
  return 1;
}

/* Read a file into memory, segment by segment where it wants to lie. */
static char *place(int file, const Elf32_Phdr *segments, int count, size_t *bytes) {
  char *base;
  *bytes = 0;
  for (int i = 0; i < count; i++) {
    const size_t end = segments[i].p_vaddr + segments[i].p_memsz;
    if (segments[i].p_type == PT_LOAD && end > *bytes) *bytes = end;
  }
  base = mmap(NULL, *bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return NULL;
  for (int i = 0; i < count; i++) {
    const Elf32_Phdr *s = &segments[i];
    const ssize_t wanted = (ssize_t)s->p_filesz;
    if (s->p_type == PT_LOAD && pread(file, base + s->p_vaddr, s->p_filesz, s->p_offset) != wanted) {
      munmap(base, *bytes);
      return NULL;
    }
  }
  return base;
}

static entry *find_entry(const char *base, const Elf32_Dyn *dynamic, const char *name) {
  const Elf32_Sym *const all = (const Elf32_Sym *)(base + read_tag(dynamic, DT_SYMTAB));
  const char *const names = base + read_tag(dynamic, DT_STRTAB);
  const uint32_t count = ((const uint32_t *)(base + read_tag(dynamic, DT_HASH)))[1];
  for (uint32_t i = 0; i < count; i++)
    if (all[i].st_shndx != SHN_UNDEF && !strcmp(names + all[i].st_name, name))
      return (entry *)(base + all[i].st_value);
  return NULL;
}

static int load_file(const char *path, const char *name, loaded_module *module) {
  Elf32_Ehdr header;
  Elf32_Phdr segments[32];
  const Elf32_Dyn *dynamic = NULL;
  const int file = open(path, O_RDONLY);
  int is_good = file >= 0 && read(file, &header, sizeof header) == sizeof header;
  is_good = is_good && !memcmp(header.e_ident, ELFMAG, SELFMAG) && header.e_phnum <= 32;
  is_good = is_good && pread(file, segments, header.e_phnum * sizeof *segments, header.e_phoff) > 0;
  module->base = is_good ? place(file, segments, header.e_phnum, &module->bytes) : NULL;
  if (file >= 0) close(file);
  if (!module->base) return EUNABLETOLOAD;
  for (int i = 0; i < header.e_phnum; i++)
    if (segments[i].p_type == PT_DYNAMIC) dynamic = (const Elf32_Dyn *)(module->base + segments[i].p_vaddr);
  is_good = dynamic && relocate(module->base, dynamic, DT_RELA, DT_RELASZ) &&
            relocate(module->base, dynamic, DT_JMPREL, DT_PLTRELSZ);
  module->call = is_good ? find_entry(module->base, dynamic, name) : NULL;
  if (module->call) return 0;
  munmap(module->base, module->bytes);
  module->base = NULL;
  return EUNABLETOLOAD;
}

/* ---- calls ---- */

static void transfer(int is_output, void *data, size_t bytes) {
  char *at = data;
  while (bytes) {
    const ssize_t n = is_output ? write(1, at, bytes) : read(0, at, bytes);
    if (n <= 0) exit(0); /* the other side has gone */
    at += n;
    bytes -= (size_t)n;
  }
}

/* The method that opens a module has its URI; what it gives is the handle of the calls that follow. */
static int call_open(entry *call, char *uri, uint64_t *handle) {
  uint32_t length = (uint32_t)strlen(uri) + 1;
  remote_arg arguments[3] = {{.buf = {&length, sizeof length}}, {.buf = {uri, length}}, {.h64 = 0}};
  const int code = call(0, HEXAGON_SCALARS(0, 2, 0, 0, 1), arguments);
  *handle = arguments[2].h64;
  return code;
}

/* "file:///FILE?SYMBOL&..." : the symbol, in place. Searched by a loop of our own: the strchr of zig's C
 * library, which zig vectorizes for HVX, does not find a character behind the 32nd. */
static char *cut_symbol(char *uri) {
  char *symbol, *end;
  while (*uri && *uri != '?') uri++;
  if (!*uri) return NULL;
  symbol = end = uri + 1;
  while (*end && *end != '&') end++;
  *end = 0;
  return symbol;
}

static emulator_reply open_library(char *path, char *uri) {
  emulator_reply reply = {EUNABLETOLOAD, 0, 0, 0};
  char *whole = strdup(uri), *symbol = cut_symbol(uri);
  for (uint64_t i = 0; symbol && i < MAX_MODULES && reply.code; i++) {
    if (modules[i].base) continue;
    reply.code = load_file(path, symbol, &modules[i]);
    if (!reply.code) reply.code = call_open(modules[i].call, whole, &reply.handle);
    reply.module = i;
    break;
  }
  free(whole);
  return reply;
}

/* Execute a call whose arguments have been read; `reply` gets its answer. */
static void invoke(const emulator_request *request, remote_arg *arguments, emulator_reply *reply) {
  loaded_module *module = request->module < MAX_MODULES ? &modules[request->module] : NULL;
  if (!module || !module->base) return;
  reply->code = module->call(request->handle, request->scalars, arguments);
  if (request->operation != EMULATOR_CLOSE) return;
  munmap(module->base, module->bytes);
  module->base = NULL;
}

static void serve(const emulator_request *request) {
  static uint32_t lengths[EMULATOR_MAX_BUFFERS];
  static remote_arg arguments[EMULATOR_MAX_BUFFERS];
  emulator_reply reply = {HEXAGON_ENOSUCH, 0, 0, 0};
  const int is_open = request->operation == EMULATOR_OPEN;
  const uint32_t inputs = is_open ? 2 : HEXAGON_INPUTS(request->scalars);
  const uint32_t all = inputs + (is_open ? 0 : HEXAGON_OUTPUTS(request->scalars));
  transfer(0, lengths, all * sizeof *lengths);
  for (uint32_t i = 0; i < all; i++) {
    /* Aligned as FastRPC aligns buffers. */
    arguments[i].buf.pv = aligned_alloc(128, ((size_t)lengths[i] + 255) / 128 * 128);
    arguments[i].buf.nLen = lengths[i];
    if (!arguments[i].buf.pv) exit(3);
    if (i < inputs) transfer(0, arguments[i].buf.pv, lengths[i]);
  }
  if (is_open)
    reply = open_library(arguments[0].buf.pv, arguments[1].buf.pv);
  else if (request->operation == EMULATOR_CLOSE)
    invoke(request, &(remote_arg){.h64 = request->handle}, &reply);
  else
    invoke(request, arguments, &reply);
  transfer(1, &reply, sizeof reply);
  for (uint32_t i = 0; i < all; i++) {
    if (i >= inputs && !reply.code) transfer(1, arguments[i].buf.pv, lengths[i]);
    free(arguments[i].buf.pv);
  }
}

int main(void) {
  emulator_request request;
  /* A process on a DSP does not see the application's environment, whose level is one of the processor's. */
  unsetenv("MACE_CPU_LEVEL");
  for (;;) {
    transfer(0, &request, sizeof request);
    serve(&request);
  }
}
