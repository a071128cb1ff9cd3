/* A resume compares kernels and processor with its own, so they go with the numbers they computed.
 */
#include "reshard/reshard_about.h"

#include <jansson.h>
#include <stdlib.h>

#include <dcp/checkpoint.h>

char *reshard_about(const char *step, const char *mesh) {
    static const char *const kept[] = {"kernels", "processor"};
    char *text = NULL;
    json_t *old = dcp_about_read(step, &text, NULL) ? NULL : json_loads(text, 0, NULL);
    json_t *about = json_object();
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (json_object_get(old, kept[i]))
            json_object_set(about, kept[i], json_object_get(old, kept[i]));
    if (mesh) json_object_set_new(about, "mesh", json_string(mesh));
    free(text);
    text = json_dumps(about, JSON_COMPACT);
    json_decref(about);
    json_decref(old);
    return text;
}
