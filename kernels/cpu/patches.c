/* Images as rows of patches. */
#include <string.h>

#include "cpu/cpu.h"

/* One patch of one image: [channels,patch_height,patch_width]. */
static void copy_patch(float *out, const float *corner, const kernels_patches *s) {
    for (size_t channel = 0; channel < s->channels; channel++)
        for (size_t y = 0; y < s->patch_height; y++, out += s->patch_width)
            memcpy(out, corner + (channel * s->height + y) * s->width,
                   s->patch_width * sizeof *out);
}

void cpu_patches(kernels *k, float *out, const float *images, const kernels_patches *shape) {
    (void)k;
    const kernels_patches s = *shape;
    size_t image = s.channels * s.height * s.width,
           patch = s.channels * s.patch_height * s.patch_width;
    for (size_t n = 0; n < s.batch; n++)
        for (size_t y = 0; y + s.patch_height <= s.height; y += s.patch_height)
            for (size_t x = 0; x + s.patch_width <= s.width; x += s.patch_width, out += patch)
                copy_patch(out, images + n * image + y * s.width + x, &s);
}
