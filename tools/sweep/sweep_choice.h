/* sweep_choice.h - which of several checkpoints to take: divergence against size. */
#ifndef SW_TOOLS_SWEEP_SWEEP_CHOICE_H
#define SW_TOOLS_SWEEP_SWEEP_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

/* One checkpoint that was made, and measured or not. */
typedef struct sw_sweep_point {
    uint64_t bytes;  /* of all its files */
    double kl;       /* mean divergence from the original, nats per token; at least 0 */
    bool is_sound;   /* measured, and verify found nothing wrong: it may be chosen */
    bool is_on_front; /* set by sw_sweep_find_front */
} sw_sweep_point;

/* What was asked for. */
typedef struct sw_sweep_limits {
    double max_kl;      /* below 0: any */
    uint64_t max_bytes; /* 0: any */
} sw_sweep_limits;

/* Mark the sound points that no other sound one equals or beats in both size and divergence; of
 * equal ones the first is marked. */
void sw_sweep_find_front(sw_sweep_point *points, int n);

/* The sound point to take, or -1 when none keeps the limits: with max_kl the smallest, else the one
 * with the least divergence. Ties go to the other measure, then to the lower index. */
int sw_sweep_choose(const sw_sweep_point *points, int n, const sw_sweep_limits *limits);

/* The sound point that comes nearest to limits that none keeps: the least divergence where size
 * permits, else the smallest of all. -1: no sound point. */
int sw_sweep_nearest(const sw_sweep_point *points, int n, const sw_sweep_limits *limits);

#endif
