#include "models/stages.h"

#include <stdbool.h>

static size_t own_stages(const model *m) { return m->c.layers + 2; }

size_t model_stages_count(const model *m) {
    return own_stages(m) + (m->inner ? own_stages(m->inner) : 0);
}

static stage_place place_in(const model *m, size_t stage) {
    if (stage > 0 && stage <= m->c.layers)
        return (stage_place){
            .level = m, .kind = m->body, .layer = stage - 1, .unit = stage, .is_block = true};
    return (stage_place){.level = m, .kind = stage ? m->head : m->input};
}

stage_place model_stages_at(const model *m, size_t stage) {
    if (stage < own_stages(m)) return place_in(m, stage);
    stage_place inner = place_in(m->inner, stage - own_stages(m));
    if (inner.is_block) inner.unit += m->c.layers;
    return inner;
}
