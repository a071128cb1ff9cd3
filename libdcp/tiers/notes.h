/* What the list remembers of its stores. The caller's thread alone touches it, so nothing here
 * waits. What a store itself has to know is told to it only while no thread works on it. */
#pragma once

#include "tiers/tiers.h"

/* Whether the run has gone back behind the step: what is remembered of it counts no more. The next
 * save sets it aside. */
int tiers_is_abandoned(const dcp_tiers *tiers, uint64_t step);

/* Whether the store has the step, as far as is known. */
int tiers_has_step(const dcp_tiers *tiers, const tier *t, uint64_t step);

/* Whether the store is due, whatever its `every` says. */
int tiers_is_owed(const dcp_tiers *tiers, const tier *t);

/* Notes how a save of `step` into the tier ended. */
void tiers_note(tier *t, uint64_t step, int status);

/* The step could not be saved into the tier, since the save that it was to be filled from failed.
 */
void tiers_note_missed(tier *t, uint64_t step);

/* The tier's copy of the step is intact. `keep` leaves it from now on. */
void tiers_note_intact(const dcp_tiers *tiers, tier *t, uint64_t step);

/* Collective. Looks for the steps that the caller has marked as intact, and forgets those that
 * their stores have not got. No save is in flight. */
int tiers_check_marks(dcp_tiers *tiers, dcp_error *err);

/* What the caller has marked, or asked for, since the last save, in one number for all stores. */
uint64_t tiers_marks(const dcp_tiers *tiers);
uint64_t tiers_asks(const dcp_tiers *tiers);

/* The tier's copy of the step is damaged or lost: it is none that the tier has. */
void tiers_note_lost(tier *t, uint64_t step);

/* A copy of the step that the tier is not known to have is replaced by a save of the step, as
 * nobody has read it. */
void tiers_note_unread(const dcp_tiers *tiers, tier *t, uint64_t step);

/* Tells the tier's store what was noted while a thread was working on it, unless one still is. */
void tiers_tell_store(const dcp_tiers *tiers, tier *t);

/* Forgets for good what is remembered of abandoned steps. */
void tiers_forget_abandoned(const dcp_tiers *tiers, tier *t);
