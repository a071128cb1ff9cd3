/* Of NVIDIA's cuFile what libdcp/device/cufile.c uses, for machines without its header. */
#ifndef TESTS_MPI_STAND_IN_CUFILE_CUFILE_H
#define TESTS_MPI_STAND_IN_CUFILE_CUFILE_H

#include <stdlib.h>
#include <sys/types.h>

#define CUFILEOP_BASE_ERR 5000

typedef enum CUfileOpError {
    CU_FILE_SUCCESS = 0,
    CU_FILE_DRIVER_NOT_INITIALIZED = 5001,
    CU_FILE_DIO_NOT_SET = 5020,
    CU_FILE_INVALID_VALUE = 5022,
    CU_FILE_DRIVER_ALREADY_OPEN = 5026,
    CU_FILE_IO_ERROR = 5044,
} CUfileOpError;

typedef struct CUfileError {
    CUfileOpError err;
    int cu_err;
} CUfileError_t;

static inline const char *cufileop_status_error(CUfileOpError code) {
    switch (code) {
    case CU_FILE_DRIVER_NOT_INITIALIZED:
        return "nvidia-fs driver is not loaded";
    case CU_FILE_DIO_NOT_SET:
        return "fd direct IO not set";
    case CU_FILE_IO_ERROR:
        return "cufile io error";
    default:
        return "another cufile error";
    }
}

#define IS_CUFILE_ERR(code) (abs((code)) > CUFILEOP_BASE_ERR)
#define CUFILE_ERRSTR(code) cufileop_status_error((CUfileOpError)abs((code)))

enum CUfileFileHandleType { CU_FILE_HANDLE_TYPE_OPAQUE_FD = 1 };

typedef struct CUfileDescr_t {
    enum CUfileFileHandleType type;
    union {
        int fd;
        void *handle;
    } handle;
    const void *fs_ops;
} CUfileDescr_t;

typedef void *CUfileHandle_t;

#pragma GCC visibility push(default)
CUfileError_t cuFileDriverOpen(void);
CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr);
void cuFileHandleDeregister(CUfileHandle_t fh);
ssize_t cuFileRead(CUfileHandle_t fh, void *base, size_t bytes, off_t offset, off_t in_memory);
ssize_t cuFileWrite(CUfileHandle_t fh, const void *base, size_t bytes, off_t offset,
                    off_t in_memory);
#pragma GCC visibility pop

#endif
