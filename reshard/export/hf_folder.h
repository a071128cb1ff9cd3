/* An export as the folder that Hugging Face's transformers loads. */
#pragma once

#include "export/contents.h"

/* Rank 0: everything in the empty folder `dir` but the tensors' data: files with their headers,
 * index, config.json, what /files holds. An exit status, after a message. */
int export_hf_folder_create(dcp_checkpoint *ckpt, const export_contents *contents, const char *dir);

/* config.json: the model's configuration with what transformers needs to load it; NULL: the
 * checkpoint has none. The caller's. */
json_t *export_hf_folder_config(const dcp_checkpoint *ckpt, const export_contents *contents);
