/* A program with what the runtime's programs use: printing, numbers from text, a thread. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

float mace_probe(float scale, const float *x, float *y, int64_t n);

typedef struct work {
  float scale, result;
  float x[4], y[4];
} work;

static void *task(void *context) {
  work *w = context;
  w->result = mace_probe(w->scale, w->x, w->y, 4);
  return NULL;
}

int main(int count, char **arguments) {
  work w = {count > 1 ? strtof(arguments[1], NULL) : 0.0f, 0.0f, {0.0f, 0.0f, 1.0f, 3.0f}, {0}};
  pthread_t thread;
  if (pthread_create(&thread, NULL, task, &w) || pthread_join(thread, NULL)) return 1;
  printf("hello %g %g %g\n", (double)w.y[0], (double)w.y[3], (double)w.result);
  return 0;
}
