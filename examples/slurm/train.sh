#!/bin/bash
# A training run as a Slurm job: sbatch [options] train.sh CONFIG.json [key.path=value ...]
# README.md says what it does. Options of sbatch override these lines.
#SBATCH --job-name=dcp-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR2@120
#SBATCH --requeue
#SBATCH --open-mode=append

dcp-run -n "$SLURM_NTASKS" --on-failure shrink -- dcp-train "$@" &
run=$!

# Only this script gets the warning. SIGTERM (from scancel, or when the time is up) also reaches dcp-run, which
# would end at once if it got another one, so the script does not pass it on.
trap 'kill -USR2 $run' USR2
trap : TERM

wait $run
while kill -0 $run 2>/dev/null; do wait $run; done # a trap ends a wait
wait $run
status=$?

# 75: everything is saved, and the training is not complete.
[ $status -eq 75 ] && scontrol requeue "$SLURM_JOB_ID"
exit $status
