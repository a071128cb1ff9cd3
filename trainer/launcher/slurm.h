/* Slurm, as dcp-run meets it inside of a job. It is asked by its own programs. */
#pragma once

/* Before the first start in a job: whether anything can be started on its other nodes, where it has
 * any. 0, or PROGRAM_FAILED after a message: srun or scontrol is missing, or no controller answers.
 */
int launcher_slurm_check(void);

/* In the process that becomes mpirun: what its srun needs to know. Nothing outside of a job. */
void launcher_slurm_set_environment(void);

/* In the process that becomes mpirun: srun passes this variable on to other nodes, whatever the
 * user has told it to pass. */
void launcher_slurm_pass(const char *name);

/* Whether Slurm takes the nodes of this job away so that it runs another time: it is preempted, or
 * in the queue again already. 0 outside of a job, and where no controller answers within 2 s. Of
 * scancel and of a time limit it is 0, too. Called at a SIGTERM, and when ranks end by one. */
int launcher_slurm_is_preempted(void);
