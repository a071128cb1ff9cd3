/* Other programs that are asked something. */
#pragma once

#include <stddef.h>

/* What the program prints on stdout, cut to the size of `text`, and its exit status; -1: it is
 * missing, or has not ended its answer within the limit. */
int launcher_ask(char *const *argv, double limit_s, char *text, size_t size);

/* Whether there is such a program: in PATH, or where its path says. */
int launcher_ask_finds(const char *program);
