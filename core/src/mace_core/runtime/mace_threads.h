/* mace_threads.h - a thread pool for mace_config.threads, on POSIX threads. Use it, or write your own: the interface is mace_threads.
 *
 * Libraries for an operating system contain it (link with -pthread where the C library keeps threads apart); a static library links
 * it only into applications that call mace_threads_new. Libraries for bare machines do without.
 */
#ifndef MACE_THREADS_H
#define MACE_THREADS_H

#include "mace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A pool of so many workers, the caller's thread among them, but no more than processors that this thread may
 * use; `workers` of the pool says how many. NULL if the system gives no memory or threads.
 * A worker looks for tasks for 200 microseconds before it sleeps, unless more threads of pools are awake than
 * there are processors. Sessions in several threads may share a pool: while it computes for one of them, the
 * others compute in their own threads. */
MACE_API mace_threads *mace_threads_new(int32_t workers);

/* End the threads and free the pool; NULL is allowed. */
MACE_API void mace_threads_delete(mace_threads *threads);

#ifdef __cplusplus
}
#endif
#endif
