//! The store contract, told once and run with every store. It is the definition of both.
//!
//! A story gets a world of its own: a fresh store, and a clock that only the story moves. Leases are the exception: in
//! Redis they lapse in real time, so stories about lapsed leases move the clock *and* ask until the store agrees.

mod audit;
mod control;
mod dead;
mod dedup;
mod forwarding;
mod groups;
mod late;
mod leases;
mod list;
mod list_by_due;
mod look;
mod members;
mod moving;
mod order;
mod purge;
mod push;
mod put;
mod recovery;
mod reserve;
mod schedules;
mod settle;
mod slots;
mod topics;
mod wake;

pub(crate) use audit::audited;

/// Makes a test of every story for every store: each is a way to make a world.
macro_rules! contract {
    ([$($store:ident),*] $stories:tt) => {
        $(mod $store { contract!(@ $store $stories); })*
    };
    (@ $store:ident { $($part:ident: $($story:ident),* ;)* }) => {
        $(mod $part { $(
            #[tokio::test]
            async fn $story() -> dwell::model::error::Result<()> {
                crate::conformance::$part::$story(crate::support::World::$store().await?).await
            }
        )* })*
    };
}

contract! { [embedded, redis, failover, redis_as_user, redis_over_tls, redis_cluster] {
    push: every_message_gets_its_own_answer, an_id_is_a_duplicate_in_every_state_and_changes_nothing,
        a_settled_id_is_a_duplicate_until_its_window_ends, the_groups_of_a_partition_share_the_window,
        one_push_reaches_every_group, a_group_that_holds_an_id_makes_it_a_duplicate_for_all,
        what_is_pushed_comes_back_unchanged, the_largest_message_comes_back_unchanged,
        a_call_takes_a_thousand_messages_and_not_one_more;
    dedup: a_push_with_a_seen_dedup_key_is_a_duplicate_until_its_window_ends,
        a_dedup_window_counts_whatever_becomes_of_the_first_message, equal_dedup_keys_of_one_call_meet_in_their_order,
        a_dedup_key_is_remembered_only_of_a_message_that_was_stored, past_dedup_windows_are_forgotten,
        a_topic_made_again_remembers_no_dedup_key, a_dedup_key_and_an_attachment_stay_with_the_message;
    reserve: nothing_is_reserved_a_millisecond_early, what_is_due_comes_in_order_of_due_time,
        a_reservation_is_bounded_by_count, a_reservation_is_bounded_by_bytes_but_takes_one_message,
        what_is_reserved_is_not_reserved_again, an_empty_pair_has_no_head, each_group_reserves_for_itself;
    settle: an_acked_message_is_gone_for_good, a_failed_message_is_due_again_with_its_attempts,
        a_message_given_back_is_not_charged, a_settlement_may_decide_differently_about_each_message,
        deciding_about_what_is_gone_changes_nothing, charges_are_absolute,
        a_settlement_takes_a_thousand_decisions_and_not_one_more;
    leases: every_acquisition_is_a_new_epoch, a_held_lease_is_refused_and_names_its_holder,
        a_released_pair_is_free_at_once, who_races_for_a_pair_gets_it_or_is_told_who_has_it, an_owner_of_an_older_epoch_is_refused_in_every_call,
        a_lease_that_lapsed_is_free, a_lease_that_lapsed_and_was_not_taken_is_resumed,
        a_renewal_answers_for_each_claim, a_renewal_sees_head_and_generation;
    recovery: what_a_lost_owner_held_is_due_again, recovery_charges_one_attempt_unless_more_were,
        recovery_comes_in_pages, what_was_settled_does_not_come_back, an_owner_does_not_recover_its_own,
        an_id_that_was_pushed_again_after_its_ack_stays_where_it_is;
    order: what_is_due_together_comes_as_it_was_pushed, what_comes_late_stands_behind_what_is_reserved,
        what_is_given_back_stands_where_it_stood,
        a_failed_message_that_holds_its_key_stays_reserved, what_remains_of_a_reservation_keeps_its_places,
        a_full_millisecond_goes_on_in_the_next, an_id_that_was_pushed_again_has_the_place_of_its_last_push, each_group_keeps_the_order;
    dead: a_dead_message_keeps_its_body_and_its_reason, dead_messages_are_listed_by_death_and_id,
        pages_hold_still_while_the_list_changes, a_redriven_message_begins_anew,
        a_purged_message_is_gone, a_call_takes_so_many_dead_messages_and_not_one_more, a_page_of_large_dead_messages_is_short,
        a_history_tells_how_attempts_failed, a_history_keeps_the_newest_sixteen, recovery_and_charges_keep_the_history,
        what_is_past_the_bounds_is_dropped_oldest_first, dropping_comes_in_pages;
    forwarding: a_forwarded_dead_letter_is_a_message_that_says_where_it_died, a_dead_letter_whose_id_is_taken_gets_another_id,
        what_was_forwarded_and_consumed_is_not_forwarded_again, what_the_other_topic_refuses_stays_a_dead_letter,
        forwarded_dead_letters_have_their_places_in_an_ordered_topic, a_forward_takes_so_many_dead_letters_and_not_one_more;
    look: a_message_is_seen_in_every_state, counts_are_true_in_every_state, counts_follow_the_clock, a_forecast_counts_what_becomes_due,
        what_becomes_due_within_a_span_is_counted_to_the_millisecond, a_window_is_gone_through_in_pages,
        what_does_not_exist_is_empty, a_store_describes_itself, a_store_has_one_identity_for_ever;
    topics: creating_a_topic_twice_returns_the_first, an_update_needs_the_current_generation,
        of_a_change_and_a_deletion_of_one_generation_one_succeeds,
        of_changes_that_expect_the_same_generation_one_succeeds,
        a_push_under_an_older_descriptor_is_refused, an_owner_keeps_its_pair_through_an_update,
        a_new_group_gets_what_is_pushed_from_then_on, a_deleted_topic_is_gone_with_its_messages,
        a_topic_made_again_is_another_one,
        a_topic_that_was_lost_is_made_again_as_itself_but_a_deleted_one_is_not, topics_are_listed_by_name,
        a_deletion_that_is_overtaken_touches_nothing_of_the_next_topic;
    moving: a_moved_message_is_what_it_was_where_its_key_belongs, what_is_in_flight_stays_and_groups_move_apart,
        two_moves_at_a_time_double_nothing, a_move_to_a_topic_that_changed_is_refused_and_goes_on;
    schedules: a_schedule_is_changed_by_who_saw_it, an_occurrence_is_fired_once_even_when_it_was_consumed,
        nothing_is_fired_early_or_under_another_version, occurrences_are_fired_together_or_passed_over,
        schedules_are_found_and_go_with_their_topic, a_partition_has_a_hundred_schedules_and_not_one_more;
    groups: a_deleted_group_is_gone_with_its_messages, a_group_made_again_is_another_one,
        a_descriptor_is_proclaimed_unless_it_is_old, a_copy_has_what_its_source_holds,
        a_copy_begun_again_copies_nothing_twice, a_copy_that_is_done_copies_no_more;
    slots: each_slot_is_given_once_and_keeps_its_distance;
    audit: what_dwell_wrote_is_sound, an_audit_goes_on_where_it_ended_and_nowhere_else;
    members: a_member_lives_until_it_is_silent_for_a_ttl, one_call_records_the_heartbeats_of_many_groups,
        joining_leaving_and_demand_are_announced;
    control: what_waits_is_cancelled_in_every_group, what_is_in_flight_is_not_cancelled,
        what_is_dead_or_gone_is_not_cancelled, a_cancel_is_answered_the_same_when_it_is_said_again,
        who_pushes_a_cancelled_id_again_makes_a_message,
        a_cancel_is_remembered_for_a_day,
        a_rescheduled_message_is_due_then_and_not_before, a_reschedule_keeps_attempts_and_what_was_pushed,
        what_does_not_wait_is_not_rescheduled, a_reschedule_may_expect_what_it_finds,
        a_reschedule_that_finds_one_group_changed_changes_none, cancels_and_reschedules_need_the_current_descriptor;
    purge: a_purged_group_is_empty_and_others_keep_theirs, an_owner_of_a_purged_group_is_refused_in_every_call,
        dead_letters_are_purged_only_if_asked, what_is_pushed_after_a_purge_stays, a_purge_needs_the_current_descriptor;
    late: a_message_that_waits_since_its_delivery_is_acknowledged, a_late_ack_is_remembered_for_the_dedup_window,
        a_message_that_somebody_had_since_is_left_alone, a_message_that_was_rescheduled_since_is_another_one,
        a_message_that_nobody_had_is_not_settled_late, a_message_is_due_again_when_a_late_settlement_says,
        a_recovered_message_is_settled_by_its_last_delivery, what_a_released_owner_left_behind_is_settled,
        with_ordering_a_late_settlement_leaves_the_place;
    put: what_is_new_is_stored_under_every_policy, a_rejected_push_changes_nothing,
        a_replaced_message_is_another_one, a_debounced_message_has_another_due_time_and_nothing_else,
        what_is_in_flight_or_dead_is_left_alone, what_was_settled_lately_or_in_one_group_is_not_given_again,
        a_message_is_not_debounced_past_its_expiry, a_message_of_the_id_with_another_key_is_another_message,
        a_call_meets_its_own_messages_in_order, a_put_takes_so_many_messages_and_not_one_more;
    list: what_waits_is_listed_in_the_order_in_which_it_is_tried, a_window_has_its_beginning_and_not_its_end,
        a_list_holds_still_while_messages_come_and_go, what_is_in_flight_is_listed_in_pages,
        a_page_of_large_messages_is_short, a_list_of_nothing_is_empty;
    list_by_due: an_outline_is_a_message_without_its_body, a_list_by_due_time_merges_the_partitions,
        equal_due_times_are_listed_once_by_partition, a_message_that_moves_between_pages_disturbs_no_other,
        a_state_and_a_window_bound_a_list_by_due_time, a_page_by_due_time_of_large_messages_is_short,
        a_list_by_due_time_refuses_other_cursors_and_states;
    wake: an_earlier_head_wakes, a_message_that_is_rescheduled_to_the_front_wakes, a_redriven_message_wakes,
        a_release_is_no_head_and_a_head_no_release, a_change_of_a_topic_is_told_and_no_head;
} }
