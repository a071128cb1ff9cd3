/* Files of one step on nodes that see only their own: one folder per node is filled with shards of
 * odd lengths, encoded, stored in memory, partly lost, and compared. */
#ifndef TESTS_MPI_PRIVATE_FILES_H
#define TESTS_MPI_PRIVATE_FILES_H

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

#include "redundancy/encode.h"
#include "redundancy/reconstruct.h"
#include "support/scratch.h"

#define PRIVATE_STEP 7

static uint64_t private_salt; /* another salt gives other content */

typedef struct carried_file {
    char path[PATH_MAX];
    unsigned char *data;
    size_t bytes;
} carried_file;

typedef struct private_files {
    const scratch *s;
    int world, ranks_a_node, nodes;
    redundancy_groups *groups; /* on the ranks that saved */
    carried_file *kept;        /* on rank 0 */
    int n_kept;
} private_files;

static inline void private_folder(const private_files *p, int node, char *path) {
    snprintf(path, PATH_MAX, "%s/node-%d/step-%08d", p->s->root, node, PRIVATE_STEP);
}

static inline void private_path(const private_files *p, int number, const char *kind, char *path) {
    char folder[PATH_MAX];
    private_folder(p, number / p->ranks_a_node, folder);
    CHECK(snprintf(path, PATH_MAX, "%s/%s-%05d-of-%05d.%s", folder, kind, number, p->world,
                   strcmp(kind, "shard") ? "bin" : "h5") < PATH_MAX);
}

static inline void private_write(const char *path, const void *data, size_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && close(fd) == 0);
}

static inline unsigned char *private_read(const char *path, size_t *bytes) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) return NULL;
    *bytes = (size_t)lseek(fd, 0, SEEK_END);
    unsigned char *data = malloc(*bytes + 1);
    CHECK(data && pread(fd, data, *bytes, 0) == (ssize_t)*bytes);
    close(fd);
    return data;
}

/* Writes bytes that differ between ranks and between positions. */
static inline void private_write_shard(const private_files *p, int number, size_t bytes) {
    char path[PATH_MAX];
    unsigned char *data = malloc(bytes + 1);
    CHECK(data);
    uint64_t z = private_salt * 1000 + (uint64_t)number + 1;
    for (size_t i = 0; i < bytes; i++) {
        z = z * 6364136223846793005ULL + 1442695040888963407ULL;
        data[i] = (unsigned char)(z >> 56);
    }
    private_path(p, number, "shard", path);
    private_write(path, data, bytes);
    free(data);
}

static inline void private_make_folder(const private_files *p, int node) {
    char path[PATH_MAX];
    private_folder(p, node, path);
    *strrchr(path, '/') = '\0';
    mkdir(path, 0777);
    private_folder(p, node, path);
    CHECK(mkdir(path, 0777) == 0);
}

/* Rank 0 reads all files of all nodes into memory, except about.json, which always differs. The
 * other ranks wait for it, because they may change their files next. */
static inline void private_keep(private_files *p) {
    p->kept = NULL;
    p->n_kept = 0;
    for (int node = 0; node < p->nodes && p->s->rank == 0; node++) {
        char folder[PATH_MAX];
        private_folder(p, node, folder);
        DIR *dir = opendir(folder);
        CHECK(dir);
        for (struct dirent *e; (e = readdir(dir));) {
            if (e->d_name[0] == '.' || !strcmp(e->d_name, "about.json")) continue;
            p->kept = realloc(p->kept, (size_t)(p->n_kept + 1) * sizeof *p->kept);
            CHECK(p->kept);
            carried_file *f = &p->kept[p->n_kept++];
            CHECK(snprintf(f->path, sizeof f->path, "%s/%s", folder, e->d_name) < PATH_MAX);
            f->data = private_read(f->path, &f->bytes);
            CHECK(f->data);
        }
        closedir(dir);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Saves with the first `world` ranks, on world / ranks_a_node nodes. bytes: the lengths. */
static inline void private_save(private_files *p, const scratch *s, dcp_comm *comm, int world,
                                int ranks_a_node, const char *redundancy, const size_t *bytes) {
    redundancy_spec spec;
    char folder[PATH_MAX];
    *p = (private_files){.s = s, .world = world, .ranks_a_node = ranks_a_node};
    p->nodes = (world + ranks_a_node - 1) / ranks_a_node;
    for (int node = 0; node < p->nodes && s->rank == 0; node++) private_make_folder(p, node);
    MPI_Barrier(MPI_COMM_WORLD);
    if (comm) {
        int node = s->rank / ranks_a_node;
        private_write_shard(p, s->rank, bytes[s->rank]);
        private_folder(p, node, folder);
        SUCCEEDS(redundancy_parse(redundancy, &spec, err));
        SUCCEEDS(redundancy_groups_collect(comm, &spec, (uint64_t)node, &p->groups, err));
        SUCCEEDS(redundancy_encode(comm, p->groups, folder, PRIVATE_STEP, NULL, err));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    private_keep(p);
}

/* Removes the files of the nodes whose bit is set. All ranks call it. */
static inline void private_lose(const private_files *p, unsigned nodes) {
    char path[PATH_MAX];
    MPI_Barrier(MPI_COMM_WORLD);
    for (int node = 0; node < p->nodes && p->s->rank == 0; node++) {
        private_folder(p, node, path);
        if (nodes >> node & 1) CHECK(store_directory_remove(AT_FDCWD, path) == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Checks on rank 0 that every stored file is back in its place, or with `anywhere` on any node. */
static inline void private_compare(const private_files *p, int anywhere) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < p->n_kept; i++) {
        const carried_file *f = &p->kept[i];
        int found = 0;
        for (int node = 0; node < p->nodes + p->s->size && !found; node++) {
            char path[PATH_MAX];
            size_t bytes = 0;
            private_folder(p, node, path);
            if (!anywhere && strncmp(path, f->path, strlen(path))) continue;
            strcat(path, strrchr(f->path, '/'));
            unsigned char *data = private_read(path, &bytes);
            found = data && bytes == f->bytes && !memcmp(data, f->data, bytes);
            free(data);
        }
        if (!found) check_failed(__FILE__, __LINE__, f->path);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Restores all stored files, and nothing else. */
static inline void private_restore(const private_files *p) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (int node = 0; node < p->nodes && p->s->rank == 0; node++) {
        char path[PATH_MAX];
        private_folder(p, node, path);
        CHECK(store_directory_remove(AT_FDCWD, path) == 0);
        private_make_folder(p, node);
    }
    for (int i = 0; i < p->n_kept; i++)
        private_write(p->kept[i].path, p->kept[i].data, p->kept[i].bytes);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Removes the step everywhere. */
static inline void private_end(private_files *p) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (int node = 0; node < p->nodes + p->s->size && p->s->rank == 0; node++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/node-%d", p->s->root, node);
        CHECK(store_directory_remove(AT_FDCWD, path) == 0 || access(path, F_OK));
    }
    for (int i = 0; i < p->n_kept; i++) free(p->kept[i].data);
    free(p->kept);
    redundancy_groups_free(p->groups);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The survey by the ranks on the nodes that saved. */
static inline redundancy_survey *private_survey(const private_files *p, int every_byte) {
    char folder[PATH_MAX];
    const char *folders[] = {folder};
    redundancy_survey *survey = NULL;
    int node = p->s->rank / p->ranks_a_node;
    private_folder(p, node, folder);
    SUCCEEDS(
        redundancy_survey_open(p->s->comm, folders, 1, (uint64_t)node, every_byte, &survey, err));
    CHECK(survey->step == PRIVATE_STEP);
    CHECK(survey->world == p->world);
    return survey;
}

/* Rebuilds on those ranks what was lost. */
static inline void private_rebuild(const private_files *p, redundancy_survey *survey) {
    char folder[PATH_MAX];
    private_folder(p, p->s->rank / p->ranks_a_node, folder);
    SUCCEEDS(redundancy_reconstruct(p->s->comm, survey, folder, err));
}

#endif
