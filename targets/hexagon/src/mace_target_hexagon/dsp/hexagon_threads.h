/* hexagon_threads.h - threads of the DSP behind mace_config.threads; private to a DSP library. */
#ifndef MACE_HEXAGON_THREADS_H
#define MACE_HEXAGON_THREADS_H

#include "mace.h"

enum { HEXAGON_MAX_THREADS = 8 };

/* Start a pool of so many workers, the caller's thread among them; 0: as many as there are vector units. NULL
 * where one worker is all there is: fewer units, no memory, no threads, or a system without QuRT's functions.
 * Fewer workers than asked for are a pool as well; `workers` of the pool says how many. */
mace_threads *mace_hexagon_start_threads(uint32_t workers);

/* End the threads and free the pool; NULL is allowed. */
void mace_hexagon_end_threads(mace_threads *threads);

#endif
