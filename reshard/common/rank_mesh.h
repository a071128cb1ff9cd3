/* A mesh of ranks with named axes; it determines which boxes of a tensor each rank holds.
 *
 * The axes, as in PyTorch's device meshes:
 *   fsdp       cuts every tensor on dimension 0
 *   tp         cuts a tensor on the dimension that a rule below names; without a rule, copies it
 *   replicate  makes whole copies (hybrid sharding)
 *
 * Ranks are numbered row-major in the order in which the axes are given: in fsdp=4,tp=2 ranks 0 and
 * 1 are neighbours in tp. If tp and fsdp cut the same dimension, tp cuts first and fsdp cuts the
 * result, as FSDP2 does over tensor-parallel modules. Each cut is like torch.chunk's: ceil(n /
 * size) rows per rank; the last ranks may have fewer rows, or none. */
#pragma once

#include <dcp/checkpoint.h>
#include <dcp/tensor.h>
#include <stdbool.h>

enum {
    RANK_MESH_AXES = 3,
    RANK_MESH_MAX_WORLD = 99999, /* a shard's file name has five digits */
    RANK_MESH_QKV = 3,           /* the most parts of a tensor, and the most boxes of it that a rank
                                  * holds */
};

typedef enum rank_mesh_axis { RANK_MESH_FSDP, RANK_MESH_TP, RANK_MESH_REPLICATE } rank_mesh_axis;

typedef struct rank_mesh {
    int world;
    int size[RANK_MESH_AXES];
    rank_mesh_axis order[RANK_MESH_AXES]; /* the slowest axis first */
    char *rules; /* the caller's rules: GLOB\0DIM\0 ..., then an empty string; NULL if there are
                  * none */
} rank_mesh;

/* Makes a mesh of `world` ranks with only the axis fsdp. */
void rank_mesh_flat(int world, rank_mesh *out);

/* Parses "fsdp=4,tp=2". Returns 0, or PROGRAM_USAGE after a message. */
int rank_mesh_parse(const char *text, rank_mesh *out);

/* Makes the mesh that --world, --mesh and --tp-rule request; each may be NULL. Without --mesh, the
 * mesh has --world ranks, all of them in fsdp; if --world is also missing, it has 0 ranks. Returns
 * 0, or PROGRAM_USAGE after a message. Free it with rank_mesh_free. */
int rank_mesh_from_options(const char *world, const char *mesh, const char *rules, rank_mesh *out);

/* Writes the mesh's axes to `text`, in the form that rank_mesh_parse accepts. */
enum { RANK_MESH_TEXT = 64 };
const char *rank_mesh_print(const rank_mesh *m, char text[RANK_MESH_TEXT]);

/* Parses rules, such as "GLOB=DIM,GLOB=none", which are then applied before the built-in rules. The
 * first rule that matches a tensor's name applies. A glob is matched by fnmatch(3) without flags.
 * Returns 0 or PROGRAM_USAGE. rank_mesh_free frees the rules. */
int rank_mesh_set_rules(rank_mesh *m, const char *text);
void rank_mesh_free(rank_mesh *m);
/* Checks, for each of the caller's rules, that the checkpoint has a matching tensor with the rule's
 * dimension. Returns 0, or PROGRAM_USAGE after a message that names a rule without such a
 * tensor. */
int rank_mesh_check_rules(const rank_mesh *m, const dcp_checkpoint *ckpt);

/* How tp cuts a tensor: on dimension dim, or not at all if dim is -1. The dimension consists of
 * `parts` equal parts, and each part is cut separately. For example, GPT-2 stores queries, keys and
 * values as one tensor of three parts. The built-in rules are Megatron's, for the names of GPT-2,
 * Llama, Qwen and ViT. The products that give queries, keys and values, and the first products of
 * an MLP, are cut by their outputs. The last products of attention and of an MLP are cut by their
 * inputs, and embeddings and lm_head by the vocabulary. A tensor of the optimizer is cut like its
 * parameter. */
typedef struct rank_mesh_cut {
    int dim, parts;
} rank_mesh_cut;
rank_mesh_cut rank_mesh_tp_cut(const rank_mesh *m, const dcp_tensor *tensor);

/* Checks that tp cuts no head in two: for tensors that the built-in rules cut along heads, the
 * number of heads in the checkpoint's model configuration must be a multiple of tp. Returns 0, or
 * PROGRAM_USAGE after a message that names a tensor whose heads tp would cut. */
int rank_mesh_check_heads(const rank_mesh *m, const dcp_checkpoint *ckpt);

/* Stores the non-empty boxes that `rank` holds, and returns their number. */
int rank_mesh_boxes(const rank_mesh *m, const dcp_tensor *tensor, rank_mesh_cut cut, int rank,
                    dcp_box out[RANK_MESH_QKV]);

/* Returns true if the rank's own file holds its boxes. If several ranks have equal boxes, only the
 * file of the lowest of these ranks holds them. */
bool rank_mesh_keeps(const rank_mesh *m, rank_mesh_cut cut, int rank);
