/* A mesh of ranks with named axes, and which box of a tensor each rank holds.
 *
 * The axes, as in PyTorch's device meshes:
 *   fsdp       cuts every tensor on dimension 0
 *   tp         cuts tensors on the dimension that the rules below give; other tensors are copied
 *   replicate  whole copies (hybrid sharding)
 *
 * Ranks are numbered row-major in the order in which the axes are given: in fsdp=4,tp=2 ranks 0 and
 * 1 are neighbours in tp. If tp and fsdp cut the same dimension, tp cuts first and fsdp cuts the
 * result, as FSDP2 does over tensor-parallel modules. Each cut is that of torch.chunk: ceil(n /
 * size) per rank, where the last ranks may have fewer or none. */
#pragma once

#include <dcp/checkpoint.h>
#include <dcp/tensor.h>

enum {
    RANK_MESH_AXES = 3,
    RANK_MESH_MAX_WORLD = 99999, /* a shard's file name has five digits */
    RANK_MESH_QKV = 3,           /* the most parts of a tensor, and boxes of a rank */
};

typedef enum rank_mesh_axis { RANK_MESH_FSDP, RANK_MESH_TP, RANK_MESH_REPLICATE } rank_mesh_axis;

typedef struct rank_mesh {
    int world;
    int size[RANK_MESH_AXES];
    rank_mesh_axis order[RANK_MESH_AXES]; /* the slowest axis first */
    char *rules; /* set by the caller: GLOB\0DIM\0 ..., then an empty string; NULL if none */
} rank_mesh;

/* A mesh of `world` ranks with the axis fsdp only. */
void rank_mesh_flat(int world, rank_mesh *out);

/* Parses "fsdp=4,tp=2". Returns 0, or PROGRAM_USAGE after a message. */
int rank_mesh_parse(const char *text, rank_mesh *out);

/* Makes the mesh that --world, --mesh and --tp-rule request; each may be NULL. Without --mesh it
 * has --world ranks in fsdp, or 0 ranks if --world is missing, too. Returns 0, or PROGRAM_USAGE
 * after a message. Free it with rank_mesh_free. */
int rank_mesh_from_options(const char *world, const char *mesh, const char *rules, rank_mesh *out);

/* The mesh's axes in the form that rank_mesh_parse accepts, in text. */
enum { RANK_MESH_TEXT = 64 };
const char *rank_mesh_print(const rank_mesh *m, char text[RANK_MESH_TEXT]);

/* Adds rules that precede the built-in ones: "GLOB=DIM,GLOB=none"; the first that matches a
 * tensor's name applies. A glob is matched by fnmatch(3) without flags. Returns 0 or PROGRAM_USAGE.
 * rank_mesh_free frees the rules. */
int rank_mesh_set_rules(rank_mesh *m, const char *text);
void rank_mesh_free(rank_mesh *m);
/* Checks that each of these rules matches a tensor of the checkpoint that has the dimension.
 * Returns 0, or PROGRAM_USAGE after a message that names the rule that does not. */
int rank_mesh_check_rules(const rank_mesh *m, const dcp_checkpoint *ckpt);

/* How tp cuts a tensor: on dimension dim, or not at all if dim is -1. The dimension consists of
 * `parts` equal parts, each of which is cut separately: GPT-2 stores queries, keys and values as
 * one tensor of three parts. The built-in rules are Megatron's, for the names of GPT-2, Llama, Qwen
 * and ViT: attention's queries, keys and values and the first products of an MLP are cut by their
 * outputs, the last products of attention and MLP by their inputs, and embeddings and lm_head by
 * the vocabulary. A tensor of the optimizer is cut like its parameter. */
typedef struct rank_mesh_cut {
    int dim, parts;
} rank_mesh_cut;
rank_mesh_cut rank_mesh_tp_cut(const rank_mesh *m, const dcp_tensor *tensor);

/* Checks that tp cuts between heads: that it divides the numbers of heads in the checkpoint's model
 * configuration, for the tensors that the built-in rules cut along heads. Returns 0, or
 * PROGRAM_USAGE after a message that names the heads that it cuts through. */
int rank_mesh_check_heads(const rank_mesh *m, const dcp_checkpoint *ckpt);

/* Stores the non-empty boxes that `rank` holds, and returns their number. */
int rank_mesh_boxes(const rank_mesh *m, const dcp_tensor *tensor, rank_mesh_cut cut, int rank,
                    dcp_box out[RANK_MESH_QKV]);

/* Returns true if the rank's file holds its boxes: of ranks with equal boxes, only the file of the
 * lowest one does. */
int rank_mesh_keeps(const rank_mesh *m, rank_mesh_cut cut, int rank);
