/* small_llama.h - a llama of two layers, a fifth of the linears of tests/golden/arch/llama, for
 * tests that run whole commands many times.
 */
#ifndef SW_TESTS_SUPPORT_TOYS_SMALL_LLAMA_H
#define SW_TESTS_SUPPORT_TOYS_SMALL_LLAMA_H

/* Makes the directory `dir` with a model in it, made of "`dir`.recipe": inputs of 64 and 96, for
 * groups of 32; tokens are below 320, as those of other toys. Fails the running cmocka test on any
 * error. */
void small_llama_make(const char *dir);

#endif
