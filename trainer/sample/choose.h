/* The next token, from the logits of all. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Temperature 0: the likeliest, of equal ones the first. Else by chance, with probabilities
 * softmax(logits / temperature); number `at` of the seed's decides, the same on any machine.
 * Returns 0 where a logit is no number. */
int sample_choose(const float *logits, size_t classes, double temperature, uint64_t seed,
                  uint64_t at, int32_t *out);
