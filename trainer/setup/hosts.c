#include "setup/hosts.h"

unsigned hosts_number(MPI_Comm comm) {
    MPI_Comm host;
    int number;
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &number);
    MPI_Comm_free(&host);
    return (unsigned)number;
}

int hosts_count(MPI_Comm comm) {
    const int is_first = hosts_number(comm) == 0;
    int hosts;
    MPI_Allreduce(&is_first, &hosts, 1, MPI_INT, MPI_SUM, comm);
    return hosts;
}
