/* A mesh of ranks with named axes, and which box of a tensor each rank holds.
 *
 * Axes, as in PyTorch's device meshes:
 *   fsdp       cuts every tensor on dimension 0
 *   tp         cuts the tensors of the rules below on their dimension; the others have copies
 *   replicate  whole copies (hybrid sharding)
 * Ranks are numbered row-major in the order in which the axes are given: in fsdp=4,tp=2 the ranks 0
 * and 1 are neighbours in tp. Where tp and fsdp cut the same dimension, tp cuts first, and fsdp
 * cuts what it left, as FSDP2 does over tensor-parallel modules. Each cut is torch.chunk's: ceil(n
 * / size) a rank, the last ones may have fewer or none. */
#pragma once

#include <dcp/checkpoint.h>
#include <dcp/tensor.h>

enum {
    RANK_MESH_AXES = 3,
    RANK_MESH_MAX_WORLD = 99999, /* five digits in a shard's file name */
    RANK_MESH_QKV = 3,           /* parts of a tensor at most, and boxes of a rank */
};

typedef enum rank_mesh_axis { RANK_MESH_FSDP, RANK_MESH_TP, RANK_MESH_REPLICATE } rank_mesh_axis;

typedef struct rank_mesh {
    int world;
    int size[RANK_MESH_AXES];
    rank_mesh_axis order[RANK_MESH_AXES]; /* slowest first */
    char *rules; /* of the caller's: GLOB\0DIM\0 ..., then an empty one; NULL: none */
} rank_mesh;

/* `world` ranks in fsdp alone. */
void rank_mesh_flat(int world, rank_mesh *out);

/* "fsdp=4,tp=2". 0, or PROGRAM_USAGE: the message was printed. */
int rank_mesh_parse(const char *text, rank_mesh *out);

/* What --world, --mesh and --tp-rule ask for; each may be NULL. Without --mesh it is --world ranks
 * in fsdp, 0 without either. 0, or PROGRAM_USAGE after a message; rank_mesh_free. */
int rank_mesh_from_options(const char *world, const char *mesh, const char *rules, rank_mesh *out);

/* The mesh's axes as rank_mesh_parse takes them, in text. */
enum { RANK_MESH_TEXT = 64 };
const char *rank_mesh_print(const rank_mesh *m, char text[RANK_MESH_TEXT]);

/* Rules that go before the built-in ones: "GLOB=DIM,GLOB=none", the first that matches a tensor's
 * name counts. A glob is fnmatch(3)'s without flags. 0 or PROGRAM_USAGE; rank_mesh_free frees them.
 */
int rank_mesh_set_rules(rank_mesh *m, const char *text);
void rank_mesh_free(rank_mesh *m);
/* Whether each of these rules matches a tensor of the checkpoint that has the dimension. 0 or
 * PROGRAM_USAGE, having said which does not. */
int rank_mesh_check_rules(const rank_mesh *m, const dcp_checkpoint *ckpt);

/* How tp cuts a tensor: on dimension dim, -1: not at all; by itself, or `parts` equal parts one
 * after the other there, each by itself: GPT-2's queries, keys and values in one. Built in are the
 * rules of Megatron for the names of GPT-2, Llama, Qwen and ViT: attention's queries, keys and
 * values and the first products of an MLP by their outputs, attention's and the MLP's last product
 * by its inputs, embeddings and lm_head by the vocabulary. A tensor of the optimizer is cut as its
 * parameter. */
typedef struct rank_mesh_cut {
    int dim, parts;
} rank_mesh_cut;
rank_mesh_cut rank_mesh_tp_cut(const rank_mesh *m, const dcp_tensor *tensor);

/* Whether tp cuts between heads: it divides the numbers of heads that the checkpoint's model
 * configuration has, of the tensors that the built-in rules cut along heads. 0 or PROGRAM_USAGE,
 * having said which it cuts through. */
int rank_mesh_check_heads(const rank_mesh *m, const dcp_checkpoint *ckpt);

/* The boxes that `rank` holds, none of them empty: how many. */
int rank_mesh_boxes(const rank_mesh *m, const dcp_tensor *tensor, rank_mesh_cut cut, int rank,
                    dcp_box out[RANK_MESH_QKV]);

/* Whether the rank's file holds its boxes: of ranks with equal boxes only the lowest one's file
 * does. */
int rank_mesh_keeps(const rank_mesh *m, rank_mesh_cut cut, int rank);
