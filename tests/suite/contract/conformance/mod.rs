//! The store contract, told once and run with every store. It is the definition of both.
//!
//! A story gets a world of its own: a fresh store, and a clock that only the story moves. Leases are the exception: in
//! Redis they lapse in real time, so stories about lapsed leases move the clock *and* ask until the store agrees.

mod verify;
mod control;
mod dead_letters;
mod dedup;
mod forwarding;
mod groups;
mod late_settlement;
mod key_pauses;
mod leases;
mod list;
mod list_by_due;
mod reads;
mod members;
mod topic_move;
mod after;
mod order;
mod purge;
mod push;
mod push_over;
mod recovery;
mod reserve;
mod cron_jobs;
mod dead_by_age;
mod settle;
mod sorted;
mod sorted_changes;
mod sorting;
mod rate_slots;
mod topics;
mod notifications;

pub(crate) use verify::audited;

/// Makes a test of every story for every store: each is a way to make a world.
macro_rules! contract {
    ([$($store:ident),*] $stories:tt) => {
        $(mod $store { contract!(@ $store $stories); })*
    };
    (@ $store:ident { $($part:ident: $($story:ident),* ;)* }) => {
        $(mod $part { $(
            #[tokio::test]
            async fn $story() -> dwell::model::error::Result<()> {
                crate::contract::conformance::$part::$story(crate::support::World::$store().await?).await
            }
        )* })*
    };
}

contract! { [embedded, redis, simulated, buffered, redis_as_user, redis_over_tls, redis_cluster] {
    push: every_message_gets_its_own_result, existing_id_is_a_duplicate_in_every_state,
        duplicate_says_what_is_there,
        settled_id_is_a_duplicate_within_the_dedup_window, groups_of_a_partition_share_the_dedup_window,
        one_push_reaches_every_group, id_in_one_group_is_a_duplicate_for_all_groups,
        pushed_message_is_returned_unchanged, largest_message_is_returned_unchanged,
        push_accepts_at_most_a_thousand_messages;
    dedup: seen_dedup_key_is_a_duplicate_within_its_window, dedup_window_outlives_the_first_message,
        equal_dedup_keys_of_one_call_are_resolved_in_order, only_stored_messages_record_their_dedup_key,
        expired_dedup_windows_are_removed, recreated_topic_has_no_dedup_keys,
        dedup_key_and_attachment_are_stored_with_the_message;
    reserve: no_message_is_reserved_a_millisecond_early, due_messages_are_reserved_in_due_time_order,
        a_reservation_is_bounded_by_count, a_reservation_is_bounded_by_bytes_but_takes_one_message,
        reserved_message_is_not_reserved_twice, empty_partition_has_no_head, groups_reserve_independently;
    settle: acked_message_is_removed, nacked_message_is_rescheduled_with_its_attempts, released_message_is_charged_less,
        returned_message_is_not_charged,
        settle_applies_a_decision_per_message, settling_a_missing_message_changes_nothing, attempt_charges_are_absolute,
        settle_accepts_at_most_a_thousand_decisions;
    sorted: sorted_messages_are_reserved_by_key, a_reservation_by_key_is_bounded_by_count_and_bytes,
        sorted_messages_of_a_key_are_ordered_by_ready_time_and_id, keys_of_sorted_messages_are_read_in_pages,
        next_owner_finds_what_was_sorted, renewal_and_wakes_pass_over_sorted_messages, sorting_again_changes_nothing,
        many_sorted_messages_are_reserved_exactly_once;
    sorted_changes: sorted_message_is_cancelled, rescheduled_message_is_sorted_no_more,
        repeated_reschedule_of_a_sorted_message_is_done, sorted_message_is_settled_late,
        sorted_message_behind_many_that_ended_is_found,
        push_over_a_sorted_message_takes_it_back, sorted_messages_are_listed_by_due_time,
        pages_of_sorted_messages_are_stable, windows_hold_sorted_messages, sorted_messages_are_counted_as_ready,
        sorted_messages_are_moved_with_their_ready_time, copied_group_has_sorted_messages_unsorted,
        purge_leaves_nothing_sorted, recreated_topic_or_group_has_nothing_sorted;
    sorting: what_is_beyond_the_share_of_a_key_is_sorted, what_the_memory_has_no_room_for_is_sorted,
        what_became_due_last_is_looked_at_in_each_call, a_look_is_bounded_by_bytes,
        what_was_sorted_in_a_call_is_kept;
    key_pauses: messages_of_a_paused_key_are_sorted_and_not_taken, the_last_pause_of_a_key_counts,
        a_reservation_without_a_share_knows_no_pause, a_backlog_of_a_paused_key_is_sorted_page_by_page,
        pauses_go_with_their_group_and_topic;
    leases: every_acquire_starts_a_new_epoch, next_owner_learns_when_the_last_delivery_was, a_held_lease_is_refused_and_names_its_holder,
        released_partition_is_free_immediately, racing_acquires_succeed_or_name_the_holder,
        every_call_of_an_older_epoch_is_refused, expired_lease_is_free, expired_and_untaken_lease_is_resumed,
        renew_returns_a_result_per_claim, renew_returns_head_and_generation;
    recovery: messages_of_a_lost_owner_are_due_again, recovery_charges_at_least_one_attempt, recovery_is_paged,
        settled_messages_are_not_recovered, owner_does_not_recover_its_own_messages,
        repushed_id_is_untouched_by_recovery;
    order: equal_due_times_keep_push_order, late_push_is_ordered_after_reserved_messages,
        returned_message_keeps_its_position, a_failed_message_that_holds_its_key_stays_reserved,
        rest_of_a_reservation_keeps_its_positions, full_millisecond_overflows_into_the_next,
        repushed_id_has_the_position_of_its_last_push, order_holds_in_each_group;
    dead_letters: dead_letter_keeps_its_payload_and_reason, dead_letters_are_listed_by_time_and_id,
        dead_letter_pages_are_stable_under_changes, redriven_message_has_no_attempts, purged_dead_letter_is_removed,
        dead_letter_calls_are_bounded, page_of_large_dead_letters_is_bounded_by_bytes, history_records_failed_attempts,
        a_history_keeps_the_newest_sixteen, the_last_attempt_keeps_its_whole_error, recovery_and_charges_keep_the_history,
        retention_drops_the_oldest_dead_letters, retention_drops_in_pages;
    dead_by_age: dead_letters_of_a_partition_are_read_in_both_orders, dead_letters_by_age_merge_the_partitions,
        equal_deaths_are_listed_once_by_partition, dead_letter_pages_by_age_are_stable_under_changes,
        a_filter_bounds_dead_letters_by_age, page_of_dead_letters_by_age_is_bounded_by_bytes,
        dead_letters_by_age_refuse_the_cursor_of_another_order;
    forwarding: forwarded_dead_letter_names_its_source, forwarded_dead_letter_with_a_taken_id_gets_a_new_id,
        consumed_forwarded_dead_letter_is_not_repeated, refused_forward_stays_a_dead_letter,
        forwarded_dead_letters_are_ordered_in_an_ordered_topic, forward_page_size_is_bounded;
    reads: message_is_found_in_every_state, counts_are_exact_in_every_state, counts_follow_the_clock,
        forecast_counts_messages_by_due_time, forecast_bounds_are_exact_to_the_millisecond,
        due_time_range_is_read_in_pages, missing_topics_and_groups_read_as_empty, store_reports_its_info,
        store_id_is_permanent, receipt_key_is_made_once;
    topics: create_topic_is_idempotent, an_update_needs_the_current_generation, limits_and_windows_of_groups_are_kept,
        concurrent_update_and_deletion_have_one_winner, concurrent_updates_have_one_winner,
        push_with_an_older_descriptor_is_refused, owner_keeps_its_partition_across_an_update,
        new_group_gets_later_pushes_only, deleted_topic_is_removed_with_its_messages,
        recreated_topic_has_a_new_identity, lost_topic_is_recreated_but_a_deleted_one_is_not, topics_are_listed_by_name,
        late_deletion_spares_the_recreated_topic, topic_past_its_limits_is_refused;
    topic_move: moved_message_is_unchanged_in_the_partition_of_its_key, move_skips_in_flight_messages_and_is_per_group,
        concurrent_moves_duplicate_nothing, move_to_a_changed_topic_is_refused_and_resumable;
    cron_jobs: cron_job_update_needs_the_current_version, occurrence_fires_once_even_after_consumption,
        nothing_fires_early_or_with_an_older_version, occurrences_fire_together_or_are_skipped,
        cron_jobs_are_listed_and_deleted_with_their_topic, partition_accepts_at_most_a_hundred_cron_jobs;
    groups: deleted_group_is_removed_with_its_messages, recreated_group_is_a_new_group,
        descriptor_is_published_unless_older, copied_group_has_the_messages_of_its_source,
        restarted_copy_duplicates_nothing, finished_copy_copies_nothing_more;
    rate_slots: rate_slots_are_unique_and_spaced;
    verify: verify_finds_no_fault_in_normal_data, verify_resumes_from_its_cursor_only;
    members: member_is_alive_until_its_ttl_passes, one_call_records_the_heartbeats_of_many_groups,
        join_leave_and_demand_are_announced;
    control: waiting_message_is_cancelled_in_every_group, in_flight_message_is_not_cancelled,
        dead_or_absent_message_is_not_cancelled, repeated_cancel_gets_the_same_result, cancelled_id_can_be_pushed_again,
        a_cancel_is_remembered_for_a_day, rescheduled_message_is_due_at_the_new_time,
        reschedule_keeps_attempts_and_payload, only_waiting_messages_are_rescheduled,
        reschedule_honours_its_expected_state, reschedule_is_atomic_over_groups,
        cancels_and_reschedules_need_the_current_descriptor;
    purge: purge_empties_one_group_only, every_call_of_an_owner_before_a_purge_is_refused,
        dead_letters_are_purged_only_if_asked, messages_pushed_after_a_purge_stay, a_purge_needs_the_current_descriptor;
    late_settlement: late_ack_removes_a_waiting_message, late_ack_is_not_repeated_by_that_of_a_later_message,
        late_ack_for_later_deliveries_removes_what_was_delivered_again,
        late_ack_for_later_deliveries_counts_for_what_is_gone, a_late_ack_is_remembered_for_the_dedup_window,
        late_settlement_spares_a_redelivered_message, late_settlement_spares_a_rescheduled_message,
        late_settlement_needs_an_earlier_delivery, late_nack_sets_the_due_time_in_the_store,
        recovered_message_accepts_a_settlement_of_its_last_delivery, late_settlement_works_after_the_owner_released,
        late_settlement_keeps_the_position_with_ordering;
    push_over: new_id_is_stored_under_every_policy, reject_policy_changes_nothing, replace_policy_stores_a_new_message,
        debounce_policy_changes_only_the_due_time, in_flight_or_dead_message_is_unchanged_by_policies,
        policies_do_not_repeat_settled_messages, debounce_does_not_pass_the_expiry,
        debounce_goes_no_further_than_its_bound_from_the_first_push, bound_of_a_debounce_begins_anew_with_a_replacement,
        same_id_with_another_key_is_another_message, policies_resolve_conflicts_within_a_call_in_order,
        policy_call_size_is_bounded;
    after: successor_is_delivered_once_its_message_is_acked, successor_waits_for_its_own_due_time,
        later_successor_takes_the_place_of_an_earlier_one, nothing_follows_a_message_that_waits_or_is_dead,
        retried_message_comes_before_its_successor, next_epoch_delivers_a_message_before_its_successor,
        successor_of_a_dead_message_takes_its_id, each_group_decides_whether_a_push_follows,
        message_with_another_key_is_not_followed, cancel_ends_a_message_and_its_successor,
        replacement_ends_a_message_and_its_successor, late_ack_makes_room_for_the_successor,
        purge_ends_a_message_and_its_successor, moved_message_takes_its_successor_along,
        copied_group_gets_a_message_before_its_successor,
        messages_of_any_kind_have_successors_of_any_kind;
    list: waiting_messages_are_listed_in_delivery_order, due_time_range_is_half_open,
        list_pages_are_stable_under_changes, in_flight_messages_are_listed_in_pages,
        page_of_large_messages_is_bounded_by_bytes, empty_group_lists_no_messages;
    list_by_due: an_outline_is_a_message_without_its_body, a_list_by_due_time_merges_the_partitions,
        equal_due_times_are_listed_once_by_partition, moving_message_does_not_disturb_list_pages,
        a_state_and_a_window_bound_a_list_by_due_time, page_by_due_time_is_bounded_by_bytes,
        a_list_by_due_time_refuses_other_cursors_and_states;
    notifications: an_earlier_head_wakes, rescheduling_to_the_front_wakes, a_redriven_message_wakes,
        release_and_head_notifications_are_distinct, topic_change_notifies_without_a_head;
} }
