/* allocate.h - which option each item takes so that the loss is least and a size is kept.
 *
 * The multiple-choice knapsack problem: every item takes exactly one of its options, each with a
 * size and a loss; the sizes may add up to `budget` at most. Solved exactly by branch and bound
 * with the bound of the linear relaxation (Dyer 1984, Zemel 1984: per item only the lower convex
 * hull of its options matters, and the relaxation takes hull steps in order of loss saved per
 * byte), up to an amount of work; beyond it the best found so far stands, which is never worse
 * than the greedy solution of the relaxation.
 */
#ifndef SW_QUANT_SEARCH_ALLOCATE_H
#define SW_QUANT_SEARCH_ALLOCATE_H

#include "formats/base/mem.h"

typedef struct sw_choice {
    uint64_t size; /* at most 2^52 */
    double loss;   /* finite, at least 0; INFINITY: not allowed */
} sw_choice;

/* choices [n_items, n_options]; taken [n_items] gets the option of each. Deterministic: ties go to
 * the lower option of the lower item. SW_E_USAGE when even the smallest options exceed the budget,
 * SW_E_BUG for an item without an option. */
sw_code sw_allocate(int32_t *taken, const sw_choice *choices, int64_t n_items, int64_t n_options,
                    uint64_t budget, sw_err *err) SW_MUST_USE;

/* The least size that any choice reaches. */
uint64_t sw_allocate_least(const sw_choice *choices, int64_t n_items, int64_t n_options);

#endif
