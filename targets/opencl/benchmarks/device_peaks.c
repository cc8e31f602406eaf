/* device_peaks: measures what the OpenCL device reaches, and CLBlast's products on it.
 *
 *   device_peaks CLBLAST ROUNDS [M N K]...
 *
 * The device is that of the driver: the first GPU of all platforms, or the first processor where there is none.
 * CLBLAST: path of libclblast.so.1, "-" for none. M N K: a product of [M, K] and [K, N], row by row, f32. Prints
 *
 *   device NAME
 *   multiply GFLOPS WIDTH     the most of a kernel of multiply-adds, and the width of its vectors
 *   copy GB_S                 bytes read and written by the fastest kernel that copies
 *   launch NS                 a kernel of one small group, alone in its queue
 *   sgemm M N K NS            a product of CLBlast
 *   absent REASON             in the place of all products
 *
 * Every figure is the best of ROUNDS, by the device's clock. CLBlast computes a product by several kernels, and its
 * event is of the last one; so PRODUCTS of them lie between two small kernels of a queue that executes in order: not
 * every driver has times of markers. The product before the first of those keeps the device busy while the others
 * are enqueued. What a device needs from one kernel to the next counts, which matters below some 20 microseconds.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl_api.h"

#define LOOK_UP(name, result, arguments)                   \
  *(void **)(void *)&cl.name = dlsym(library, #name);      \
  if (!cl.name) fail("libOpenCL.so.1 lacks " #name, 0);

enum { CHAINS = 8, ITEMS = 1 << 20, STEPS = 1024, PRODUCTS = 4, ROW_MAJOR = 101, AS_STORED = 111 };
enum { GROUP = 64, WARM_MS = 200 };

/* Of cblas_sgemm's order, with offsets in elements: clblast_c.h of CLBlast 1.5 (Cedric Nugteren). */
typedef int (*sgemm_function)(int layout, int a_form, int b_form, size_t m, size_t n, size_t k, float alpha, cl_mem a,
                              size_t a_offset, size_t a_row, cl_mem b, size_t b_offset, size_t b_row, float beta,
                              cl_mem c, size_t c_offset, size_t c_row, cl_queue *queue, cl_event *event);

typedef struct bench {
  opencl_functions cl;
  cl_device device;
  cl_context context;
  cl_queue queue;
  int rounds;
} bench;

/* Eight chains of multiply-adds hide the latency of each. The values go towards 1, so that none is denormal. */
static const char source[] =
    "__kernel void multiply(__global float *out, float a, float b) {\n"
    "  VALUE x0 = (VALUE)(get_global_id(0)), x1 = x0 + 1, x2 = x0 + 2, x3 = x0 + 3;\n"
    "  VALUE x4 = x0 + 4, x5 = x0 + 5, x6 = x0 + 6, x7 = x0 + 7;\n"
    "  const VALUE f = (VALUE)(a), g = (VALUE)(b);\n"
    "  for (int i = 0; i < STEPS; i++) {\n"
    "    x0 = mad(x0, f, g); x1 = mad(x1, f, g); x2 = mad(x2, f, g); x3 = mad(x3, f, g);\n"
    "    x4 = mad(x4, f, g); x5 = mad(x5, f, g); x6 = mad(x6, f, g); x7 = mad(x7, f, g);\n"
    "  }\n"
    "  x0 += x1 + x2 + x3 + x4 + x5 + x6 + x7;\n"
    "  out[get_global_id(0)] = SUM;\n"
    "}\n"
    "__kernel void copy(__global const float4 *from, __global float4 *to) {\n"
    "  const size_t first = get_group_id(0) * get_local_size(0) * QUADS + get_local_id(0);\n"
    "  for (int i = 0; i < QUADS; i++) to[first + i * get_local_size(0)] = from[first + i * get_local_size(0)];\n"
    "}\n"
    "__kernel void fill(__global float *to) {\n"
    "  to[get_global_id(0)] = (float)(get_global_id(0) % 8191) / 4096 - 1;\n"
    "}\n";

static void fail(const char *what, int32_t code) {
  fprintf(stderr, "device_peaks: %s answers %d\n", what, (int)code);
  exit(1);
}

static void check(const char *what, int32_t code) {
  if (code) fail(what, code);
}

static opencl_functions load_functions(void) {
  void *const library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_GLOBAL);
  opencl_functions cl;
  if (!library) fail("dlopen of libOpenCL.so.1", 0);
  OPENCL_FUNCTIONS(LOOK_UP)
  return cl;
}

static cl_device find_device(const opencl_functions *cl) {
  static const uint64_t types[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_CPU};
  cl_platform platforms[16];
  cl_device device = NULL;
  uint32_t count = 0;
  check("clGetPlatformIDs", cl->clGetPlatformIDs(16, platforms, &count));
  for (int type = 0; type < 2; type++)
    for (uint32_t i = 0; i < count && i < 16; i++)
      if (!cl->clGetDeviceIDs(platforms[i], types[type], 1, &device, NULL)) return device;
  fail("clGetDeviceIDs", 0);
  return NULL;
}

static bench open_device(int rounds) {
  bench b = {.cl = load_functions(), .rounds = rounds};
  char name[256] = "";
  int32_t code = 0;
  b.device = find_device(&b.cl);
  check("clGetDeviceInfo", b.cl.clGetDeviceInfo(b.device, CL_DEVICE_NAME, sizeof name - 1, name, NULL));
  printf("device %s\n", name);
  b.context = b.cl.clCreateContext(NULL, 1, &b.device, NULL, NULL, &code);
  check("clCreateContext", code);
  b.queue = b.cl.clCreateCommandQueue(b.context, b.device, CL_QUEUE_PROFILING_ENABLE, &code);
  check("clCreateCommandQueue", code);
  return b;
}

static cl_mem allocate(const bench *b, size_t bytes) {
  int32_t code = 0;
  const cl_mem memory = b->cl.clCreateBuffer(b->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
  check("clCreateBuffer", code);
  return memory;
}

/* A sum of all lanes of a vector: a compiler may leave out a lane that nobody reads. */
static void write_sum(char *text, size_t bytes, int width) {
  size_t end = (size_t)snprintf(text, bytes, width > 1 ? "x0.s0" : "x0");
  for (int lane = 1; lane < width; lane++) end += (size_t)snprintf(text + end, bytes - end, "+x0.s%x", (unsigned)lane);
}

/* width: of the vectors of `multiply`; the quads that a work-item of `copy` moves. */
static cl_kernel compile(const bench *b, const char *name, int width) {
  const char *const text = source;
  char options[300], sum[200], type[16] = "float";
  int32_t code = 0;
  if (width > 1) snprintf(type, sizeof type, "float%d", width);
  write_sum(sum, sizeof sum, width);
  snprintf(options, sizeof options, "-DVALUE=%s -DSUM=%s -DSTEPS=%d -DQUADS=%d", type, sum, STEPS, width);
  const cl_program program = b->cl.clCreateProgramWithSource(b->context, 1, (const char **)&text, NULL, &code);
  check("clCreateProgramWithSource", code);
  check("clBuildProgram", b->cl.clBuildProgram(program, 1, &b->device, options, NULL, NULL));
  const cl_kernel kernel = b->cl.clCreateKernel(program, name, &code);
  check("clCreateKernel", code);
  b->cl.clReleaseProgram(program);
  return kernel;
}

static uint64_t read_clock(const bench *b, cl_event event, uint32_t instant) {
  uint64_t at = 0;
  check("clGetEventProfilingInfo", b->cl.clGetEventProfilingInfo(event, instant, sizeof at, &at, NULL));
  return at;
}

/* The shortest time of a kernel that has its arguments, after a run that does not count. */
static double time_kernel(const bench *b, cl_kernel kernel, size_t items, size_t group) {
  double best = 1e30;
  for (int i = 0; i <= b->rounds; i++) {
    cl_event event = NULL;
    check("clEnqueueNDRangeKernel",
          b->cl.clEnqueueNDRangeKernel(b->queue, kernel, 1, NULL, &items, &group, 0, NULL, &event));
    check("clFinish", b->cl.clFinish(b->queue));
    const uint64_t ns = read_clock(b, event, CL_PROFILING_COMMAND_END) - read_clock(b, event, CL_PROFILING_COMMAND_START);
    if (i && ns && (double)ns < best) best = (double)ns;
    b->cl.clReleaseEvent(event);
  }
  return best;
}

static void set_memory(const bench *b, cl_kernel kernel, uint32_t position, cl_mem memory) {
  check("clSetKernelArg", b->cl.clSetKernelArg(kernel, position, sizeof memory, &memory));
}

/* Compute until the device has left the clock of its idle state. */
static void warm_up(const bench *b, cl_kernel kernel, size_t items) {
  for (double ns = 0; ns < 1e6 * WARM_MS;) ns += time_kernel(b, kernel, items, GROUP) * b->rounds;
}

static void measure_multiply(const bench *b) {
  static const int widths[] = {1, 4, 8, 16};
  const float factor = 0.999f, term = 0.001f;
  const cl_mem out = allocate(b, ITEMS * sizeof(float));
  double most = 0;
  int best = 0;
  for (int i = 0; i < 4; i++) {
    const cl_kernel kernel = compile(b, "multiply", widths[i]);
    /* As many products of each width: wider ones by fewer work-items. */
    const size_t items = (size_t)ITEMS / (size_t)widths[i];
    set_memory(b, kernel, 0, out);
    check("clSetKernelArg", b->cl.clSetKernelArg(kernel, 1, sizeof factor, &factor));
    check("clSetKernelArg", b->cl.clSetKernelArg(kernel, 2, sizeof term, &term));
    if (!i) warm_up(b, kernel, items);
    const double rate = 2.0 * CHAINS * STEPS * ITEMS / time_kernel(b, kernel, items, GROUP);
    if (rate > most) most = rate, best = widths[i];
    b->cl.clReleaseKernel(kernel);
  }
  b->cl.clReleaseMemObject(out);
  printf("multiply %.1f %d\n", most, best);
}

/* A buffer of numbers between -1 and 1: devices that compute zeros draw less power and run faster. */
static cl_mem allocate_numbers(const bench *b, size_t count) {
  const size_t rounded = (count + 63) / 64 * 64;
  const cl_mem memory = allocate(b, rounded * sizeof(float));
  const cl_kernel kernel = compile(b, "fill", 1);
  set_memory(b, kernel, 0, memory);
  check("clEnqueueNDRangeKernel",
        b->cl.clEnqueueNDRangeKernel(b->queue, kernel, 1, NULL, &rounded, NULL, 0, NULL, NULL));
  check("clFinish", b->cl.clFinish(b->queue));
  b->cl.clReleaseKernel(kernel);
  return memory;
}

static void measure_copy(const bench *b) {
  /* Larger than caches, and no larger than a buffer may be. */
  uint64_t largest = 0, bytes = 256 << 20;
  b->cl.clGetDeviceInfo(b->device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof largest, &largest, NULL);
  while (largest && bytes > largest) bytes /= 2;
  const cl_mem from = allocate_numbers(b, bytes / sizeof(float)), to = allocate(b, bytes);
  double best = 1e30;
  /* A device begins so many groups in a nanosecond: where each moves little, that and not the memory is measured. */
  for (int quads = 1; quads <= 4; quads *= 2)
    for (size_t group = GROUP; group <= 256; group *= 2) {
      const cl_kernel kernel = compile(b, "copy", quads);
      set_memory(b, kernel, 0, from);
      set_memory(b, kernel, 1, to);
      const double ns = time_kernel(b, kernel, bytes / 16 / (size_t)quads, group);
      if (ns < best) best = ns;
      b->cl.clReleaseKernel(kernel);
    }
  printf("copy %.1f\n", 2.0 * (double)bytes / best);
  b->cl.clReleaseMemObject(from);
  b->cl.clReleaseMemObject(to);
}

/* What the event of every kernel has beside its work, where it does not follow another one. */
static void measure_launch(const bench *b) {
  const cl_mem few = allocate(b, GROUP * sizeof(float));
  const cl_kernel kernel = compile(b, "fill", 1);
  set_memory(b, kernel, 0, few);
  printf("launch %.0f\n", time_kernel(b, kernel, GROUP, GROUP));
  b->cl.clReleaseKernel(kernel);
  b->cl.clReleaseMemObject(few);
}

/* Enqueue a small kernel, whose event has a time. */
static void mark(const bench *b, cl_kernel kernel, cl_event *event) {
  const size_t items = GROUP;
  check("clEnqueueNDRangeKernel",
        b->cl.clEnqueueNDRangeKernel(b->queue, kernel, 1, NULL, &items, NULL, 0, NULL, event));
}

static void measure_sgemm(const bench *b, sgemm_function sgemm, size_t m, size_t n, size_t k) {
  const cl_mem x = allocate_numbers(b, m * k), y = allocate_numbers(b, k * n), z = allocate_numbers(b, m * n);
  const cl_mem few = allocate(b, GROUP * sizeof(float));
  const cl_kernel small = compile(b, "fill", 1);
  cl_queue queue = b->queue;
  double best = 1e30;
  set_memory(b, small, 0, few);
  for (int round = 0; round <= b->rounds; round++) {
    cl_event start = NULL, end = NULL;
    for (int i = 0; i <= PRODUCTS; i++) {
      const int code = sgemm(ROW_MAJOR, AS_STORED, AS_STORED, m, n, k, 1, x, 0, k, y, 0, n, 0, z, 0, n, &queue, NULL);
      check("CLBlastSgemm", code);
      if (!i) mark(b, small, &start);
    }
    mark(b, small, &end);
    check("clFinish", b->cl.clFinish(b->queue));
    const double ns = (double)(read_clock(b, end, CL_PROFILING_COMMAND_START) -
                               read_clock(b, start, CL_PROFILING_COMMAND_END)) / PRODUCTS;
    if (round && ns > 0 && ns < best) best = ns;
    b->cl.clReleaseEvent(start);
    b->cl.clReleaseEvent(end);
  }
  printf("sgemm %zu %zu %zu %.0f\n", m, n, k, best);
  fflush(stdout);
  b->cl.clReleaseMemObject(x);
  b->cl.clReleaseMemObject(y);
  b->cl.clReleaseMemObject(z);
  b->cl.clReleaseMemObject(few);
  b->cl.clReleaseKernel(small);
}

static sgemm_function load_sgemm(const char *path) {
  sgemm_function sgemm = NULL;
  void *const library = strcmp(path, "-") ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library) *(void **)(void *)&sgemm = dlsym(library, "CLBlastSgemm");
  if (!sgemm) printf("absent %s\n", strcmp(path, "-") ? dlerror() : "no CLBlast was asked for");
  return sgemm;
}

int main(int count, char **words) {
  if (count < 3 || count % 3 || atoi(words[2]) < 1) return fprintf(stderr, "device_peaks CLBLAST ROUNDS [M N K]...\n"), 2;
  const bench b = open_device(atoi(words[2]));
  measure_multiply(&b);
  measure_copy(&b);
  measure_launch(&b);
  const sgemm_function sgemm = load_sgemm(words[1]);
  for (int i = 3; sgemm && i < count; i += 3)
    measure_sgemm(&b, sgemm, (size_t)atoll(words[i]), (size_t)atoll(words[i + 1]), (size_t)atoll(words[i + 2]));
  return 0;
}
