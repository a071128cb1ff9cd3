/* dcp-run ctl: asks a running dcp-run, and prints what it answers. */
#pragma once

/* With dcp-run's own arguments, of which the first is "ctl"; the exit status: 0, PROGRAM_USAGE
 * where no dcp-run of this user is there, PROGRAM_FAILED where the request failed. */
int launcher_control_main(int argc, char **argv);
