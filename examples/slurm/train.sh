#!/bin/bash
# A training run as a job of Slurm: sbatch [options] train.sh CONFIG.json [key.path=value ...]
# README.md says what it does. Options of sbatch win over these lines.
#SBATCH --job-name=dcp-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR2@120
#SBATCH --requeue
#SBATCH --open-mode=append

dcp-run -n "$SLURM_NTASKS" --on-failure shrink -- dcp-train "$@" &
run=$!

# The warning reaches this script alone. SIGTERM (scancel, the end of the time) reaches dcp-run by
# itself, which ends at once at a second one: it is not passed on.
trap 'kill -USR2 $run' USR2
trap : TERM

wait $run
while kill -0 $run 2>/dev/null; do wait $run; done # a trap ends a wait
wait $run
status=$?

# 75: everything is saved, and there is more to do.
[ $status -eq 75 ] && scontrol requeue "$SLURM_JOB_ID"
exit $status
