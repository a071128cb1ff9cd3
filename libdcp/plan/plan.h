/* Choosing an engine. */
#ifndef DCP_PLAN_PLAN_H
#define DCP_PLAN_PLAN_H

#include "dcp/save.h"

/* Whether there is such an engine, and it can be used here. Not collective. */
int plan_check_engine(dcp_engine wanted, dcp_error *err);
/* That engine, or the one that suits dir's file system as this rank sees it. Not collective. */
dcp_engine plan_engine(dcp_engine wanted, const char *dir);

#endif
