/* dcp-export: exports the model of a checkpoint as a Hugging Face folder or as one plain HDF5
 * file. */
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/launch.h"
#include "export/contents.h"
#include "export/stream.h"
#include "export/target.h"
#include "programs/arguments.h"
#include "programs/program.h"

typedef struct export_request {
    const char *ckpt, *format, *dtype_name, *max_shard_size, *rename;
    const char *voice, *voice_from; /* NULL if not given */
    char out[PATH_MAX];
    bool force, dry_run;
    export_settings what;
} export_request;

static int parse_dtype(export_request *s) {
    static const struct {
        const char *name;
        dcp_dtype dtype;
    } types[] = {{"f32", DCP_F32}, {"bf16", DCP_BF16}, {"f16", DCP_F16}};
    if (!s->dtype_name) return 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(s->dtype_name, types[i].name) == 0) {
            s->what.dtype = types[i].dtype;
            s->what.cast = true;
            return 0;
        }
    return program_refuse("--dtype: '%s' is none of f32, bf16, f16", s->dtype_name);
}

static int check_settings(export_request *s) {
    s->what.hdf5 = strcmp(s->format, "hdf5") == 0;
    if (!s->what.hdf5 && strcmp(s->format, "safetensors"))
        return program_refuse("--format: '%s' is none of safetensors, hdf5", s->format);
    if (s->what.hdf5 && s->max_shard_size)
        return program_refuse("--max-shard-size is for safetensors; --format hdf5 is one file");
    if (!s->voice != !s->voice_from)
        return program_refuse("give --voice and --voice-from together: the name of a voice, and "
                              "records of one speaker");
    const char *size = s->max_shard_size ? s->max_shard_size : "5GB";
    if (program_size_parse("--max-shard-size", size, &s->what.max_file_bytes) || parse_dtype(s))
        return PROGRAM_USAGE;
    return tensor_names_parse(s->rename, &s->what.names);
}

static const char about[] =
    "Common use:\n"
    "  dcp-export ckpt my-model                  the newest step as a Hugging Face folder\n"
    "  dcp-export ckpt my-model --dtype bf16     the same in bf16, for inference\n"
    "\n"
    "Writes the model of a checkpoint (a step's folder, or a checkpoint directory, meaning\n"
    "its newest complete step) as a folder that Hugging Face's transformers loads; with\n"
    "--format hdf5 as one file: the tensors are at its root, under their names, and its\n"
    "attribute 'config' is the model's configuration as JSON. The option --with-optimizer\n"
    "adds optimizer.safetensors, with names such as exp_avg.lm_head.weight, or in HDF5 the\n"
    "group /optimizer. Parts that PyTorch's wrappers add to names (_orig_mod., module.) are\n"
    "removed. If dcp-train knows the model, the export is refused unless its tensors are those\n"
    "that config.json requires.";

static int parse_export(export_request *s, int argc, char **argv) {
    const program_option options[] = {
        PROGRAM_VALUE("format", "safetensors|hdf5",
                      "a Hugging Face folder (the default) or one HDF5 file", &s->format),
        PROGRAM_VALUE("dtype", "f32|bf16|f16",
                      "round the model's floats to this type; default: as stored", &s->dtype_name),
        PROGRAM_VALUE("max-shard-size", "SIZE",
                      "the most data in a safetensors file, unless one tensor is larger (5GB)",
                      &s->max_shard_size),
        PROGRAM_FLAG("with-optimizer", "also write the optimizer's state, as stored: see above",
                     &s->what.with_optimizer),
        PROGRAM_VALUE("rename", "FROM=TO[,...]", "names that begin with FROM begin with TO instead",
                      &s->rename),
        PROGRAM_FLAG("allow-mismatch",
                     "export tensors that differ from those that config.json requires",
                     &s->what.allow_mismatch),
        PROGRAM_VALUE("voice", "NAME", "the name of the voice on which a talker was tuned",
                      &s->voice),
        PROGRAM_VALUE("voice-from", "FILE",
                      "records of that voice, which contain its speaker's vector", &s->voice_from),
        PROGRAM_FLAG("force", "replace OUT if it is an earlier export", &s->force),
        {0}};
    const program_command program = {.name = "dcp-export",
                                     .usage = "CKPT OUT [options]",
                                     .about = about,
                                     .options = options,
                                     .dry_run = &s->dry_run,
                                     .stops = true};
    char **args;
    int n, status = program_arguments_parse(&program, argc, argv, 2, 2, &args, &n);
    if (status >= 0) return status;
    status = check_settings(s);
    if (status) return status;
    s->ckpt = args[0];
    size_t length = strlen(args[1]);
    while (length > 1 && args[1][length - 1] == '/') length--;
    if (length == 0 || length > PATH_MAX - 100)
        return program_refuse("OUT: not a path that can be written");
    memcpy(s->out, args[1], length);
    return -1;
}

static void print_unknown(const export_contents *contents) {
    if (contents->unknown[0])
        printf("The tensors are not compared with config.json, which dcp-train does not know: %s\n",
               contents->unknown);
}

static void print_files(const export_request *s, const export_contents *contents) {
    char text[32];
    for (size_t i = 0; i < contents->n_files; i++) {
        const export_file *file = &contents->files[i];
        uint64_t bytes = 0;
        for (size_t k = file->first; k < file->first + file->n; k++)
            bytes += dcp_tensor_bytes(&contents->items[k].tensor);
        printf("%s%s%s: %zu tensors, %s\n", s->out, s->what.hdf5 ? "" : "/",
               s->what.hdf5 ? "" : file->name, file->n, program_bytes_text(bytes, text));
    }
    print_unknown(contents);
}

typedef struct bar {
    progress_bar progress;
    uint64_t done, total;
} bar;

static void add_progress(void *ctx, uint64_t bytes) {
    bar *b = ctx;
    b->done += bytes;
    progress_bar_update(&b->progress, b->done, b->total);
}

/* Rank 0 creates the files; then all ranks write into them. Collective. */
static int write_files(const launch *job, dcp_checkpoint *ckpt, const export_request *s,
                       export_contents *contents, const char *tmp) {
    int status = 0;
    bar b = {.total = contents->bytes / (uint64_t)job->size};
    const export_meter meter = {add_progress, &b};
    if (job->rank == 0)
        status = s->what.hdf5 ? export_hdf5_file_create(ckpt, contents, tmp)
                              : export_hf_folder_create(ckpt, contents, tmp);
    status = launch_worst(job, status);
    if (status) return status;
    for (size_t i = 0; s->what.hdf5 && i < contents->n; i++)
        launch_broadcast(job, &contents->items[i].offset, sizeof contents->items[i].offset);
    progress_bar_start(&b.progress, "exporting");
    status = export_stream_share(job, ckpt, contents, tmp, &meter);
    progress_bar_end(&b.progress);
    status = launch_worst(job, status);
    if (status == 0 && job->rank == 0 && contents->voice)
        status = export_voice_write(contents->voice, contents, tmp);
    status = launch_worst(job, status);
    return status ? status : export_stream_note_overflows(job, contents);
}

/* Writes the export, and publishes it. tmp: this export's temporary folder, the same on all ranks.
 * Collective. */
static int write_out(const launch *job, dcp_checkpoint *ckpt, const export_request *s,
                     export_contents *contents, const char *tmp) {
    int status = write_files(job, ckpt, s, contents, tmp);
    if (job->rank || status) return status;
    return export_target_publish(tmp, s->what.hdf5 ? contents->files[0].name : NULL, s->out,
                                 s->force);
}

static int export_checkpoint(const launch *job, dcp_checkpoint *ckpt, const export_request *s,
                             export_contents *contents) {
    char tmp[PATH_MAX] = "";
    char text[32];
    int status = job->rank == 0 ? export_target_make_tmp(s->out, tmp) : 0;
    launch_broadcast(job, tmp, sizeof tmp);
    status = launch_worst(job, status);
    if (status == 0) status = launch_worst(job, write_out(job, ckpt, s, contents, tmp));
    if (job->rank == 0 && tmp[0]) export_target_remove(tmp);
    if (job->rank || status) return status;
    printf("%s: step %" PRIu64 ", %zu tensors, %s\n", s->out, dcp_checkpoint_step(ckpt),
           contents->n, program_bytes_text(contents->bytes, text));
    print_unknown(contents);
    return 0;
}

/* Makes the contents on rank 0, which reports failures. */
static int make_first(const dcp_checkpoint *ckpt, const export_settings *what, const char *left_out,
                      export_contents *contents) {
    int status = tensor_names_report(dcp_checkpoint_path(ckpt), &what->names);
    if (status == 0) status = export_contents_make(ckpt, what, left_out, contents);
    return status ? status : export_contents_check(ckpt, what, contents);
}

static int make_plan(const launch *job, dcp_checkpoint *ckpt, export_settings *what,
                     export_contents *contents) {
    const char *left_out = NULL;
    /* Without a configuration, the parts that PyTorch's wrappers add to names are kept. */
    json_t *config = export_contents_config(ckpt);
    int status = launch_worst(job, export_contents_find_names(ckpt, config != NULL, &what->names));
    json_decref(config);
    if (status == 0 && !what->hdf5)
        status = export_contents_find_tied(job, ckpt, &what->names, &left_out);
    if (status) return status;
    status = launch_worst(job, job->rank == 0 ? make_first(ckpt, what, left_out, contents) : 0);
    if (status || job->rank == 0) return status;
    return export_contents_make(ckpt, what, left_out, contents);
}

static int run_export(const launch *job, export_request *s) {
    dcp_error err = {0};
    dcp_checkpoint *ckpt;
    export_contents contents = {0};
    export_voice voice = {0};
    if (job->rank == 0 && !s->dry_run) export_target_recover(s->out);
    int status =
        launch_worst(job, job->rank == 0 ? export_target_check(s->out, s->what.hdf5, s->force) : 0);
    if (status) return status;
    if (dcp_checkpoint_open(job->comm, s->ckpt, &ckpt, &err)) return program_report(&err);
    status = launch_worst(job, job->rank == 0 ? export_target_check_with(ckpt, s->out) : 0);
    if (!status) status = launch_worst(job, make_plan(job, ckpt, &s->what, &contents));
    if (!status && s->voice) {
        status = launch_worst(
            job,
            job->rank ? 0 : export_voice_open(ckpt, &contents, s->voice, s->voice_from, &voice));
        contents.voice = &voice; /* filled in only on rank 0, which alone writes the voice */
    }
    if (status == 0 && !s->dry_run)
        status = export_checkpoint(job, ckpt, s, &contents);
    else if (status == 0 && job->rank == 0)
        print_files(s, &contents);
    export_voice_close(&voice);
    export_contents_free(&contents);
    dcp_checkpoint_close(ckpt);
    return status;
}

int main(int argc, char **argv) {
    export_request s = {.format = "safetensors"};
    launch job;
    int status = parse_export(&s, argc, argv);
    if (status >= 0) {
        tensor_names_free(&s.what.names);
        return status;
    }
    launch_catch_signals();
    status = launch_start(&job);
    if (status == 0) status = run_export(&job, &s);
    tensor_names_free(&s.what.names);
    if (status == PROGRAM_DIFFERS && !job.rank) step_path_note_older(s.ckpt);
    launch_end(&job);
    return launch_exit_status(status);
}
