#include "tiers/model.h"

#include <string.h>

static model_bounds *widened;

static void widen(const model *m) {
    for (int i = 0; i < m->tiers && widened; i++)
        for (unsigned s = 1; s <= MODEL_STEPS; s++) {
            const model_copy *c = &m->t[i].copies[s];
            uint16_t *values = widened->values[i][s];
            int k = 0;
            if (c->is != MODEL_THERE) widened->stays[i][s] = 0;
            if (c->is == MODEL_ABSENT) continue;
            while (k < MODEL_VALUES - 1 && values[k] && values[k] != c->value) k++;
            values[k] = (uint16_t)c->value;
        }
}

void model_begin_bounds(const model *m, model_bounds *bounds) {
    memset(bounds, 0, sizeof *bounds);
    memset(bounds->stays, 1, sizeof bounds->stays);
    widened = bounds;
    widen(m);
}

void model_end_bounds(void) { widened = NULL; }

static int is_abandoned(const model *m, unsigned step) { return m->goes_back && step > m->back_to; }

int model_has(const model *m, int i, unsigned step) {
    const model_tier *t = &m->t[i];
    return t->has_step && t->step == step && !is_abandoned(m, step);
}

static int is_owed(const model *m, const model_tier *t) {
    if (t->asked) return 1;
    if (!t->has_missed || is_abandoned(m, t->missed)) return 0;
    return !t->is_made_good || is_abandoned(m, t->made_good);
}

int model_is_due(const model *m, int i, unsigned step) {
    const model_tier *t = &m->t[i];
    if (t->filled && t->fill_step == step && !is_abandoned(m, step)) return 0;
    if (model_has(m, i, step)) return 0;
    return is_owed(m, t) || (t->every && step % t->every == 0);
}

static void note_missed(model_tier *t, unsigned step) {
    if (t->has_missed && !t->is_made_good) return;
    t->has_missed = 1, t->missed = step, t->is_made_good = 0;
}

static void note(model_tier *t, unsigned step, int failed) {
    t->failed = failed;
    if (failed) {
        note_missed(t, step);
        return;
    }
    if (t->has_missed && !t->is_made_good) t->is_made_good = 1, t->made_good = step;
    t->has_step = 1, t->step = step;
}

int model_is_whole(const model_copy *c) { return c->is == MODEL_THERE && !c->lost && !c->bad; }

int model_can_be_rebuilt(const model *m, int i, const model_copy *c) {
    static const int most[] = {0, 1, 1, 2};
    return c->is == MODEL_THERE && m->t[i].is_private &&
           __builtin_popcount(c->lost | c->bad) <= most[m->t[i].redundancy];
}

/* A step that is read to fill another store is kept while that may still be in progress. */
static int may_be_pinned(const model *m, int i, unsigned step) {
    for (int k = 0; k < m->tiers; k++)
        if (m->t[k].filled && (int)m->t[k].fill_from == i && m->t[k].fill_step == step) return 1;
    return 0;
}

/* Counts the complete steps after this one: those that certainly exist, and those that may. */
static void count_newer(const model_tier *t, unsigned step, unsigned *sure, unsigned *most) {
    *sure = *most = 0;
    for (unsigned s = step + 1; s <= MODEL_STEPS; s++) {
        if (t->copies[s].lost) continue;
        *sure += t->copies[s].is == MODEL_THERE;
        *most += t->copies[s].is != MODEL_ABSENT;
    }
}

/* Whether a step is removed depends only on later complete ones, so this starts with the oldest. */
static void retain(model *m, int i) {
    model_tier *t = &m->t[i];
    for (unsigned s = 1; s <= MODEL_STEPS && t->keep; s++) {
        unsigned sure, most;
        if (t->copies[s].is == MODEL_ABSENT) continue;
        count_newer(t, s, &sure, &most);
        if (sure >= t->keep && !may_be_pinned(m, i, s))
            t->copies[s] = (model_copy){MODEL_ABSENT, 0, 0, 0};
        else if (most >= t->keep)
            t->copies[s].is = MODEL_MAYBE;
    }
}

static void set_aside(model *m) {
    for (int i = 0; i < m->tiers; i++)
        for (unsigned s = m->back_to + 1; s <= MODEL_STEPS; s++)
            m->t[i].copies[s] = (model_copy){MODEL_ABSENT, 0, 0, 0};
    widen(m);
}

/* Returns true if it failed. */
static int publish(model *m, int i, unsigned step, unsigned value) {
    if (m->t[i].gone) return 1;
    m->t[i].copies[step] = (model_copy){MODEL_THERE, value, 0, 0};
    widen(m);
    retain(m, i);
    widen(m);
    return 0;
}

static void end_filling(model *m, int i) {
    model_tier *t = &m->t[i];
    if (!t->filled || t->has_ended) return;
    t->has_failed = publish(m, i, t->fill_step, t->fill_value);
    t->has_ended = 1;
}

/* The filling of store i has ended, and the list has noted that. */
static void finish_filling(model *m, int i) {
    model_tier *t = &m->t[i];
    if (!t->filled) return;
    end_filling(m, i);
    t->filled = t->has_ended = 0;
    if (!is_abandoned(m, t->fill_step)) note(t, t->fill_step, t->has_failed);
}

void model_end_fillings(model *m) {
    for (int i = 0; i < m->tiers; i++) end_filling(m, i);
}

void model_settle(model *m) {
    for (int i = 0; i < m->tiers; i++) finish_filling(m, i);
}

int model_wait(model *m) {
    if (!m->flies) return 0;
    m->flies = 0;
    const unsigned from = m->flight_tier, step = m->flight_step, value = m->flight_value;
    const int failed = publish(m, (int)from, step, value);
    note(&m->t[from], step, failed);
    for (int i = 0; i < m->tiers; i++) {
        model_tier *t = &m->t[i];
        if (!t->waiting) continue;
        t->waiting = 0;
        if (failed)
            note_missed(t, step);
        else if (!is_abandoned(m, step))
            t->filled = 1, t->has_ended = 0, t->fill_step = step, t->fill_value = value,
            t->fill_from = from;
    }
    return failed;
}

/* A filling of an abandoned step may still have been published in time; then what `keep` removed
 * for it is gone. */
static void stop_filling(model *m, int i) {
    model_tier *t = &m->t[i], before = *t;
    if (!t->filled || t->has_ended || !is_abandoned(m, t->fill_step)) return;
    t->filled = before.filled = 0;
    publish(m, i, t->fill_step, t->fill_value);
    for (unsigned s = 1; s <= MODEL_STEPS; s++)
        if (before.copies[s].is != t->copies[s].is) {
            t->copies[s] = before.copies[s];
            if (t->copies[s].is != MODEL_ABSENT) t->copies[s].is = MODEL_MAYBE;
        }
}

static void go_back(model *m) {
    if (!m->goes_back) return;
    for (int i = 0; i < m->tiers; i++) {
        model_tier *t = &m->t[i];
        stop_filling(m, i);
        finish_filling(m, i);
        if (t->has_step && t->step > m->back_to) t->has_step = 0;
        if (t->is_made_good && t->made_good > m->back_to) t->is_made_good = 0;
        if (t->has_missed && t->missed > m->back_to) t->has_missed = t->failed = 0;
    }
    m->goes_back = 0;
    set_aside(m);
}

int model_save_async(model *m, unsigned step, unsigned value) {
    int first = -1;
    model_wait(m); /* its failure is logged */
    go_back(m);
    for (int i = 0; i < m->tiers; i++) {
        model_tier *t = &m->t[i];
        if (t->has_ended || model_is_due(m, i, step)) finish_filling(m, i);
        t->waiting = model_is_due(m, i, step);
        if (t->waiting) t->asked = 0;
        if (t->waiting && (first < 0 || (m->t[first].failed && !t->failed))) first = i;
    }
    if (first < 0) return 0;
    m->t[first].waiting = 0;
    m->flies = 1;
    m->flight_tier = (unsigned)first, m->flight_step = step, m->flight_value = value;
    return 0;
}

int model_save(model *m, unsigned step, unsigned value, int also_last) {
    int saved = 0, failed = -1;
    model_wait(m);
    go_back(m);
    model_settle(m);
    for (int i = 0; i < m->tiers; i++) {
        const int is_last = also_last && i == m->tiers - 1;
        if (model_has(m, i, step) && (m->t[i].gone || m->t[i].copies[step].is == MODEL_ABSENT))
            m->t[i].has_step = 0; /* a save checks whether what it remembers exists */
        if (model_has(m, i, step) || !(model_is_due(m, i, step) || is_last)) continue;
        if (publish(m, i, step, value))
            failed = i, note(&m->t[i], step, 1);
        else
            saved++, m->t[i].asked = 0, note(&m->t[i], step, 0);
    }
    return failed >= 0 && !(also_last ? model_has(m, m->tiers - 1, step) : saved);
}

void model_mark(model *m, int i, unsigned step) { m->t[i].has_step = 1, m->t[i].step = step; }

void model_continue_from(model *m, unsigned step) { m->goes_back = 1, m->back_to = step; }

unsigned model_load(model *m, unsigned *tier, unsigned *value) {
    for (unsigned s = MODEL_STEPS; s > 0; s--)
        for (int i = 0; i < m->tiers; i++) {
            model_copy *c = &m->t[i].copies[s];
            if (c->is == MODEL_ABSENT) continue;
            if (!model_is_whole(c) && m->t[i].is_private) finish_filling(m, i); /* to rebuild it */
            if (model_is_whole(c) || model_can_be_rebuilt(m, i, c)) {
                c->lost = c->bad = 0;
                *tier = (unsigned)i, *value = c->value;
                model_mark(m, i, s);
                return s;
            }
            if (m->t[i].step == s) m->t[i].has_step = 0;
        }
    return 0;
}

void model_lose(model *m, int i, int node, int open) {
    model_tier *t = &m->t[i];
    const unsigned all = t->is_private ? (1u << m->ranks) - 1 : 1;
    for (unsigned s = 1; s <= MODEL_STEPS; s++) {
        model_copy *c = &t->copies[s];
        c->lost |= node < 0 ? all : 1u << node;
        c->bad &= ~c->lost;
        if (c->is == MODEL_ABSENT || c->lost == all) *c = (model_copy){MODEL_ABSENT, 0, 0, 0};
    }
    t->gone |= open;
}

void model_close(model *m) {
    model_wait(m);
    model_settle(m);
    model_free_described(m);
}

void model_free_described(model *m) {
    m->goes_back = m->flies = 0;
    for (int i = 0; i < m->tiers; i++) {
        model_tier *t = &m->t[i];
        t->asked = t->failed = t->waiting = t->has_missed = t->is_made_good = t->has_step = 0;
        t->gone = t->filled = t->has_ended = 0;
    }
}
