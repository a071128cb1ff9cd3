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

/* The dimension that tp cuts the tensor on; -1: none. Built in are the rules of Megatron for the
 * names of GPT-2, Llama, Qwen and ViT: attention's queries, keys and values and the first products
 * of an MLP by their outputs, attention's and the MLP's last product by its inputs, embeddings and
 * lm_head by the vocabulary. A tensor of the optimizer is cut as its parameter. */
int rank_mesh_tp_dim(const rank_mesh *m, const dcp_tensor *tensor);

/* The box that `rank` holds; empty where it holds nothing. */
dcp_box rank_mesh_box(const rank_mesh *m, const dcp_tensor *tensor, int rank);
/* The same where rank_mesh_tp_dim is known: finding it takes longer than the rest. */
dcp_box rank_mesh_box_at(const rank_mesh *m, const dcp_tensor *tensor, int tp_dim, int rank);

/* Whether the rank's file holds its box: of ranks with equal boxes only the lowest one's file
 * does. */
int rank_mesh_keeps(const rank_mesh *m, int tp_dim, int rank);
