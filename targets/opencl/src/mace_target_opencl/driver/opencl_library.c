/* opencl_library.c - finds the OpenCL library of the system, and the first that is complete.
 *
 * The loader of the Khronos Group comes first, because it knows all drivers that are installed. Android has no
 * such loader: the driver lies in a folder of the vendor, under a name of its own where it is one file with
 * OpenGL ES.
 *
 * The library stays in memory after the last session. The Khronos Group's loader cuts the list of drivers in
 * OCL_ICD_FILENAMES at its first ':' while it reads it, so that one that is loaded again finds the first driver
 * alone: the second session of a process took PoCL's processor in place of the GPU.
 */
#include <stdio.h>

#include "opencl_part.h"

#if UINTPTR_MAX > UINT32_MAX
#define BITS "64"
#else
#define BITS ""
#endif

static const char *const libraries[] = {
    "libOpenCL.so.1",
    "libOpenCL.so",
    "/vendor/lib" BITS "/libOpenCL.so",
    "/system/vendor/lib" BITS "/libOpenCL.so",
    "/system/lib" BITS "/libOpenCL.so",
    "/vendor/lib" BITS "/egl/libGLES_mali.so",
    "/system/vendor/lib" BITS "/egl/libGLES_mali.so",
    "libGLES_mali.so",
    "libmali.so",
    "/vendor/lib" BITS "/libPVROCL.so",
    "/system/vendor/lib" BITS "/libPVROCL.so",
    "libPVROCL.so",
};

#define OPENCL_SYMBOL(name, result, arguments) MACE_SYMBOL(opencl_functions, name)

static const mace_symbol symbols[] = {OPENCL_FUNCTIONS(OPENCL_SYMBOL)};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Whether a library could be opened and is complete; `missing` is the first function that it lacks. */
static int open_one(mace_device *device, const char *name, const char **missing) {
  void *opened = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  *missing = NULL;
  if (!opened) return 0;
  *missing = mace_find_symbols(opened, symbols, COUNT(symbols), &device->cl);
  if (*missing) {
    dlclose(opened);
    return 0;
  }
  device->library = opened;
  return 1;
}

mace_status mace_opencl_open_library(mace_device *device, mace_text text) {
  const char *const named = device->settings.library, *missing = NULL, *incomplete = NULL, *lacks = NULL;
  if (*named) {
    if (open_one(device, named, &missing)) return MACE_OK;
    return mace_say(text, MACE_NO_DEVICE, "%s, which opencl.library names, %s%s; name another", named,
                    missing ? "lacks " : "cannot be opened", missing ? missing : "");
  }
  for (size_t i = 0; i < COUNT(libraries); i++) {
    if (open_one(device, libraries[i], &missing)) return MACE_OK;
    if (missing && !incomplete) {
      incomplete = libraries[i];
      lacks = missing;
    }
  }
  if (incomplete)
    return mace_say(text, MACE_NO_DEVICE, "%s lacks %s; install OpenCL 1.2 or newer", incomplete, lacks);
  return mace_say(text, MACE_NO_DEVICE,
                  "there is no OpenCL library, neither %s nor one of Android's vendors; install the "
                  "device's driver, on Android declare the library",
                  libraries[0]);
}

void mace_opencl_close_library(mace_device *device) {
  if (device->library) dlclose(device->library);
  device->library = NULL;
}
