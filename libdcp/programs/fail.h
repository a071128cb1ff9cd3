/* Errors of programs are filled in like errors of the library (core_fail and related functions). */
#pragma once

#include "core/checks.h"
#include "core/fail.h"
