/* How a step lies in files. */
#ifndef DCP_LAYOUT_H
#define DCP_LAYOUT_H

typedef enum dcp_layout {
    DCP_LAYOUT_GLOBAL, /* one file for all ranks: state.h5 */
    /* A file a rank: shard-00002-of-00008.h5. Paths with a component that ends in @digits are
     * refused (DCP_ERR_UNSUPPORTED): further boxes of a tensor have such names there. */
    DCP_LAYOUT_SHARDED,
} dcp_layout;

#endif
