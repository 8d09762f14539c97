//! The actions of SQS, as the gate needs to know them. The match has no wildcard: a new action does not compile without its rule.

use super::model::Action;
use crate::gate::{self, AnswerSize, Effect, Holds, Needs, Resource};

/// A message of 1 MiB grows up to 6-fold in JSON and 3-fold in a form.
pub(crate) const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

macro_rules! rule {
    ($name:ident, $needs:expr, $effect:ident, $acts_on:ident, $answer:ident, $holds:ident) => {{
        static RULE: gate::Action = gate::Action {
            method: "POST",
            name: concat!("AmazonSQS.", stringify!($name)),
            needs: $needs,
            effect: Effect::$effect,
            acts_on: Resource::$acts_on,
            body_bytes: BODY_BYTES_MAX,
            answer: AnswerSize::$answer,
            holds: Holds::$holds,
        };
        &RULE
    }};
}

/// The rule of an action. One that acts on a topic is refused for a queue that is a group.
pub(crate) fn rule(action: Action) -> &'static gate::Action {
    match action {
        Action::AddPermission => rule!(AddPermission, Needs::ADMIN, Changes, Topic, Small, Nothing),
        Action::CancelMessageMoveTask => rule!(CancelMessageMoveTask, Needs::ADMIN, Changes, Group, Small, Nothing),
        Action::ChangeMessageVisibility => {
            rule!(ChangeMessageVisibility, Needs::CONSUME, Changes, Group, Small, Nothing)
        }
        Action::ChangeMessageVisibilityBatch => {
            rule!(ChangeMessageVisibilityBatch, Needs::CONSUME, Changes, Group, Counted, Nothing)
        }
        Action::CreateQueue => rule!(CreateQueue, Needs::PRODUCE, Changes, Topic, Small, Nothing),
        Action::DeleteMessage => rule!(DeleteMessage, Needs::CONSUME, Changes, Group, Small, Nothing),
        Action::DeleteMessageBatch => rule!(DeleteMessageBatch, Needs::CONSUME, Changes, Group, Counted, Nothing),
        Action::DeleteQueue => rule!(DeleteQueue, Needs::ADMIN, Changes, Group, Small, Nothing),
        Action::GetQueueAttributes => rule!(GetQueueAttributes, Needs::Token, Reads, Group, Counted, WholeRead),
        Action::GetQueueUrl => rule!(GetQueueUrl, Needs::Token, Reads, Group, Small, Nothing),
        Action::ListDeadLetterSourceQueues => {
            rule!(ListDeadLetterSourceQueues, Needs::Token, Reads, Topic, Counted, WholeRead)
        }
        Action::ListMessageMoveTasks => rule!(ListMessageMoveTasks, Needs::Token, Reads, Group, Counted, Nothing),
        Action::ListQueueTags => rule!(ListQueueTags, Needs::Token, Reads, Topic, Counted, Nothing),
        Action::ListQueues => rule!(ListQueues, Needs::Token, Reads, Broker, Counted, Nothing),
        Action::PurgeQueue => rule!(PurgeQueue, Needs::ADMIN, Changes, Group, Small, Nothing),
        Action::ReceiveMessage => rule!(ReceiveMessage, Needs::CONSUME, Changes, Group, Counted, Place),
        Action::RemovePermission => rule!(RemovePermission, Needs::ADMIN, Changes, Topic, Small, Nothing),
        Action::SendMessage => rule!(SendMessage, Needs::PRODUCE, Changes, Topic, Small, Nothing),
        Action::SendMessageBatch => rule!(SendMessageBatch, Needs::PRODUCE, Changes, Topic, Counted, Nothing),
        Action::SetQueueAttributes => rule!(SetQueueAttributes, Needs::ADMIN, Changes, Topic, Small, Nothing),
        Action::StartMessageMoveTask => rule!(StartMessageMoveTask, Needs::ADMIN, Changes, Group, Small, WholeRead),
        Action::TagQueue => rule!(TagQueue, Needs::ADMIN, Changes, Topic, Small, Nothing),
        Action::UntagQueue => rule!(UntagQueue, Needs::ADMIN, Changes, Topic, Small, Nothing),
    }
}

/// The rules of all actions, in the order of their names.
pub fn actions() -> Vec<&'static gate::Action> {
    Action::ALL.iter().map(|action| rule(*action)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_the_name_of_its_action() {
        for action in Action::ALL {
            assert_eq!(rule(*action).name, action.route());
        }
    }
}
