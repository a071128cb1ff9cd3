/* Errors of programs: they are filled as the library fills its own (core_fail and its like). */
#ifndef PROGRAMS_FAIL_H
#define PROGRAMS_FAIL_H

#include "core/fail.h"

#endif
