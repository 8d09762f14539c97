//! Names of schemas that many requests and answers share. The broker checks such values, so it says what each is.

use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

macro_rules! names {
    ($($name:ident)+) => {
        $(
            #[doc = concat!("The schema `", stringify!($name), "`.")]
            pub enum $name {}

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    Ref::from_schema_name(stringify!($name)).into()
                }
            }

            impl ToSchema for $name {}
        )+
    };
}

names! {
    Annotations Backoff Base64 BulkAction ConflictPolicy ContentType ControlStatus CronExpression CronName CronState Cursor DeathReason DedupKey Defect Duration Etag Expiry ExplainReason Fairness FaultCode GroupControlStatus GroupName GroupState Key MessageId MessageState Meta Missed OnFailure Ordering Past ProblemType PushStatus Rate Receipt ReceiptOrObject SearchText Time TimeOfDay TimeZone TopicName TopicNameOrNone TraceParent TraceState VerdictReason VerdictStatus Weekday Weights
}
