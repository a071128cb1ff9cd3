/* The tables of crc64_scheme.h. */
#ifndef DCP_DEVICE_CRC64_TABLES_H
#define DCP_DEVICE_CRC64_TABLES_H

#include "device/crc64_scheme.h"

void device_crc64_tables_fill(scheme_tables *tables);

#endif
