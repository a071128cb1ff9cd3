/* Which ranks share a host. */
#ifndef TRAINER_SETUP_HOSTS_H
#define TRAINER_SETUP_HOSTS_H

#include <mpi.h>

/* Collective: this rank's number among those of its host, from 0. */
unsigned hosts_number(MPI_Comm comm);

/* Collective: how many hosts the ranks are on. */
int hosts_count(MPI_Comm comm);

#endif
