/* Errors of programs: they are filled as the library fills its own (core_fail and its like). */
#pragma once

#include "core/checks.h"
#include "core/fail.h"
