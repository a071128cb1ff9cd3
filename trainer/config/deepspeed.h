/* Keys and values of DeepSpeed's configuration that dcp-train has not. */
#pragma once

/* What to do about the key: "use bf16.enabled", "drop it: ..."; NULL where it is none of
 * DeepSpeed's. Keys below a known one count as that. Static storage. */
const char *config_deepspeed_instead(const char *path);

/* What DeepSpeed's name of a scheduler or optimizer is here; NULL: none of its. */
const char *config_deepspeed_name(const char *path, const char *value);
