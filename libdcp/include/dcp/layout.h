/* How a step is divided into files. */
#ifndef DCP_LAYOUT_H
#define DCP_LAYOUT_H

typedef enum dcp_layout {
    DCP_LAYOUT_GLOBAL, /* one file for all ranks: state.h5 */
    /* One file per rank: shard-00002-of-00008.h5. Tensor paths with a component that ends in
     * @digits are refused (DCP_ERR_UNSUPPORTED), since further boxes of a tensor have such names in
     * these files. */
    DCP_LAYOUT_SHARDED,
} dcp_layout;

#endif
