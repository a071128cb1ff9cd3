#include "import/moments.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "programs/program.h"

static const char remedy[] = "export both anew, or import without --with-optimizer";

/* One file, or several under an index. */
static int find_file(const char *folder, char *out, size_t size) {
    static const char *const names[] = {"optimizer.safetensors",
                                        "optimizer.safetensors.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int length = snprintf(out, size, "%s/%s", folder, names[i]);
        if (length < 0 || (size_t)length >= size) continue;
        if (access(out, F_OK) == 0) return 0;
        if (errno != ENOENT && errno != ENOTDIR) return program_fail_errno("cannot look at", out);
    }
    return program_refuse("%s: has no %s, which dcp-export --with-optimizer writes; import without "
                          "--with-optimizer",
                          folder, names[0]);
}

static int is_same_shape(const dcp_tensor *a, const dcp_tensor *b) {
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

static int check_count(const char *file, const dcp_st_reader *moments, const char *param) {
    char name[DCP_MAX_PATH];
    snprintf(name, sizeof name, "step.%s", param);
    const dcp_tensor *count = dcp_st_find(moments, name);
    if (count && count->dtype == DCP_F32 && count->ndim == 0) return 0;
    return program_fail(PROGRAM_DIFFERS,
                        "%s: %s, how many updates were made of a parameter, is %s; %s", file, name,
                        count ? "no number of type F32" : "missing", remedy);
}

/* Moments are those of weights in fp32, of the same shape. */
static int check_moment(const char *file, const dcp_st_reader *model, const dcp_st_reader *moments,
                        const dcp_tensor *moment) {
    const char *dot = strchr(moment->path, '.');
    const dcp_tensor *param = dot ? dcp_st_find(model, dot + 1) : NULL;
    if (!param)
        return program_fail(PROGRAM_DIFFERS, "%s: %s is of no tensor of the model; %s", file,
                            moment->path, remedy);
    if (strncmp(moment->path, "step.", 5) == 0) return check_count(file, moments, dot + 1);
    if (param->dtype != DCP_F32)
        return program_refuse("%s: moments are those of weights of type F32, %s is %s: export it "
                              "without --dtype, or import without --with-optimizer",
                              file, param->path, dcp_dtype_name(param->dtype));
    if (!is_same_shape(moment, param))
        return program_fail(PROGRAM_DIFFERS, "%s: %s has another shape than %s; %s", file,
                            moment->path, param->path, remedy);
    return check_count(file, moments, dot + 1);
}

int import_moments_open(const char *folder, const dcp_st_reader *model, dcp_st_reader **out) {
    char file[PATH_MAX];
    dcp_error err = {0};
    dcp_st_reader *moments;
    int status = find_file(folder, file, sizeof file);
    if (status) return status;
    if (dcp_st_open(file, &moments, &err)) return program_report(&err);
    for (size_t i = 0; status == 0 && i < dcp_st_tensors(moments); i++)
        status = check_moment(file, model, moments, dcp_st_tensor(moments, i));
    if (status)
        dcp_st_close(moments);
    else
        *out = moments;
    return status;
}
