/* The embedding's gradient. The threads that own an id's row of the table add up the gradient's
 * rows with that id, in order. A counting sort puts the rows with one id into a bucket. Its atomic
 * additions are of integers only. They leave the order within a bucket undetermined, so each bucket
 * is then sorted. */
#include <algorithm>

#include "cuda/common/shares.cuh"

/* Arrays in the workspace, for one piece of the rows and one slice of the ids. */
typedef struct buckets {
    unsigned *counts;   /* [ids] the number of rows with the id */
    unsigned *used;     /* [1] the number of elements of `unsorted` that are assigned to buckets */
    unsigned *starts;   /* [ids] the start of the id's bucket */
    unsigned *places;   /* [rows] a row's position in its bucket, in any order */
    unsigned *unsorted; /* [rows] rows by bucket, in any order within a bucket */
    unsigned *sorted;   /* [rows] rows by bucket, in ascending order within a bucket */
} buckets;

/* What a launch handles: the gradients of those rows in 0 ... rows - 1 whose ids are in first ...
 * first + n_ids - 1. */
typedef struct embedded {
    const int32_t *ids;
    unsigned rows, first, n_ids;

    __device__ bool has(unsigned row) const {
        return row < rows && (unsigned)ids[row] - first < n_ids;
    }
    __device__ unsigned id(unsigned row) const { return (unsigned)ids[row] - first; }
} embedded;

static __global__ void count_kernel(buckets b, embedded in) {
    const unsigned row = blockIdx.x * THREADS + threadIdx.x;
    if (in.has(row)) b.places[row] = atomicAdd(b.counts + in.id(row), 1u);
}

/* Gives each bucket its position; the order of buckets does not matter. */
static __global__ void start_kernel(buckets b, embedded in) {
    const unsigned id = blockIdx.x * THREADS + threadIdx.x;
    if (id < in.n_ids && b.counts[id]) b.starts[id] = atomicAdd(b.used, b.counts[id]);
}

static __global__ void place_kernel(buckets b, embedded in) {
    const unsigned row = blockIdx.x * THREADS + threadIdx.x;
    if (in.has(row)) b.unsorted[b.starts[in.id(row)] + b.places[row]] = row;
}

/* The sorted position of a row in its bucket is the number of lower rows in the bucket. */
static __global__ void sort_kernel(buckets b, embedded in) {
    const unsigned row = blockIdx.x * THREADS + threadIdx.x;
    if (!in.has(row)) return;
    const unsigned id = in.id(row), n = b.counts[id];
    const unsigned *others = b.unsorted + b.starts[id];
    unsigned before = 0;
#pragma unroll 4
    for (unsigned i = 0; i < n; i++) before += others[i] < row;
    b.sorted[b.starts[id] + before] = row;
}

enum { ADD_THREADS = 64, ADD_COLUMNS = 4 * ADD_THREADS, AHEAD = 8 };

/* There is a block for each position in `sorted` and each ADD_COLUMNS columns. If a bucket begins
 * at that position, the block adds up the bucket; it loads AHEAD rows in advance. */
static __global__ void __launch_bounds__(ADD_THREADS)
    add_kernel(float *dtable, const float *dout, buckets b, embedded in, unsigned dim,
               unsigned cuts, bool wide) {
    const unsigned place = blockIdx.x / cuts, first = blockIdx.x % cuts * ADD_COLUMNS;
    if (place >= *b.used) return;
    const unsigned id = in.id(b.sorted[place]), n = b.counts[id];
    if (b.starts[id] != place) return;
    const unsigned here = min(dim - first, (unsigned)ADD_COLUMNS);
    float *to = dtable + (size_t)(in.first + id) * dim + first;
    float sum[1][4], next[AHEAD][1][4];
    load_share<ADD_THREADS>(sum, to, threadIdx.x, here, wide);
    for (unsigned i = 0; i < n; i += AHEAD) {
#pragma unroll
        for (unsigned a = 0; a < AHEAD; a++)
            if (i + a < n)
                load_share<ADD_THREADS>(next[a],
                                        dout + (size_t)b.sorted[place + i + a] * dim + first,
                                        threadIdx.x, here, wide);
#pragma unroll
        for (unsigned a = 0; a < AHEAD; a++)
            for (unsigned e = 0; e < 4; e++)
                if (i + a < n) sum[0][e] += next[a][0][e];
    }
    store_share<ADD_THREADS>(to, sum, threadIdx.x, here, wide);
}

/* The most rows and ids of a piece. With this many rows and ids, the three arrays of rows and the
 * two arrays of ids use 28 of the workspace's 32 MiB. */
static const size_t MOST_ROWS = 1 << 20, MOST_IDS = 1 << 21;

static void add_piece(kernels *k, float *dtable, const float *dout, embedded in, size_t dim) {
    buckets b;
    b.counts = (unsigned *)cuda_of(k)->workspace;
    b.used = b.counts + in.n_ids;
    b.starts = b.used + 1;
    b.places = b.starts + in.n_ids;
    b.unsorted = b.places + in.rows;
    b.sorted = b.unsorted + in.rows;
    const size_t blocks = pieces_of(in.rows, THREADS);
    const unsigned cuts = (unsigned)pieces_of(dim, ADD_COLUMNS);
    const bool wide = dim % 4 == 0 && aligned(dtable, dout);
    cuda_check(k,
               cudaMemsetAsync(b.counts, 0, (in.n_ids + 1) * sizeof *b.counts, cuda_of(k)->stream));
    LAUNCH(k, count_kernel, blocks, 0, b, in);
    LAUNCH(k, start_kernel, pieces_of(in.n_ids, THREADS), 0, b, in);
    LAUNCH(k, place_kernel, blocks, 0, b, in);
    LAUNCH(k, sort_kernel, blocks, 0, b, in);
    launch(k, add_kernel, (size_t)in.rows * cuts, ADD_THREADS, 0, dtable, dout, b, in,
           (unsigned)dim, cuts, wide);
}

static void cuda_embedding_backward(kernels *k, float *dtable, const float *dout,
                                    const int32_t *ids, size_t rows, size_t vocab, size_t dim) {
    for (size_t row = 0; row < rows; row += MOST_ROWS)
        for (size_t id = 0; id < vocab; id += MOST_IDS) {
            const size_t n_ids = std::min(vocab - id, MOST_IDS);
            const size_t here = std::min(rows - row, MOST_ROWS);
            const embedded in = {ids + row, (unsigned)here, (unsigned)id, (unsigned)n_ids};
            add_piece(k, dtable, dout + row * dim, in, dim);
        }
}

void cuda_embedding_fill(kernels *k) { k->embedding_backward = cuda_embedding_backward; }
