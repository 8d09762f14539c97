//! One broker below HTTP: what consumers get, when, in which order, and what their decisions do. A clock that only the
//! story moves, on both stores.

mod batches;
mod bulk;
mod cron;
mod cron_times;
mod dead_letter_topics;
mod dead_letters;
mod end_to_end;
mod fair;
mod key_pauses;
mod group_limits;
mod late_settlement;
mod message_id;
mod ordered;
mod prefetch;
mod priority;
mod receipts;
mod released;
mod sessions;
mod subscriptions;
mod test_clock;
mod verdicts;
mod webhooks;
mod windows;
