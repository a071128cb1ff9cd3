/* By chance: the first token at which the sum of probabilities passes a number from [0, 1). */
#include "sample/choose.h"

#include <math.h>

#include "models/model_run.h"
#include "random/random.h"

/* Number `at` of the seed's, from [0, 1). */
static double chance(uint64_t seed, uint64_t at) {
    const uint64_t stream = random_stream("sample");
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    uint32_t bits[4];
    random_philox(counter, key, bits);
    return (double)(((uint64_t)bits[0] << 32 | bits[1]) >> 11) * 0x1p-53;
}

int sample_choose(const float *logits, size_t classes, double temperature, uint64_t seed,
                  uint64_t at, int32_t *out) {
    const size_t best = model_likeliest(logits, classes);
    if (best == classes || !isfinite(logits[best])) return 0; /* or all are infinitely small */
    *out = (int32_t)best;
    if (temperature <= 0.0) return 1;
    double sum = 0.0, passed = 0.0;
    for (size_t i = 0; i < classes; i++)
        sum += exp(((double)logits[i] - (double)logits[best]) / temperature);
    const double until = chance(seed, at) * sum;
    for (size_t i = 0; i < classes; i++) {
        passed += exp(((double)logits[i] - (double)logits[best]) / temperature);
        if (passed <= until) continue;
        *out = (int32_t)i;
        break;
    }
    return 1;
}
