//! The calls of vectors.

use dwell_client::wire::topics::Backoff;
use dwell_client::{
    BulkChange, Client, DeadLetterFilter, DeadLetterSelector, Error, MessageFilter, NewCronJob, NewGroup, NewMessage,
    Pages, PurgeOf, Reschedule, TopicSettings,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::lab::{Outcome, text};
use crate::values::{described, message, named, span, time};

type Answer = Result<Value, Error>;

fn value<T: Serialize>(result: Result<T, Error>) -> Answer {
    result.map(|value| json!(value))
}

/// One outcome for each.
fn each<T: Serialize>(results: Result<Vec<Result<T, Error>>, Error>) -> Answer {
    let one = |result| value(result).unwrap_or_else(|error| json!({"error": described(&error)}));
    Ok(results?.into_iter().map(one).collect())
}

fn number(args: &Value, name: &str) -> Outcome<Option<u64>> {
    Ok(args[name].as_u64())
}

/// The entries of all pages, or so many.
async fn entries<T: Serialize + Send + 'static>(mut pages: Pages<T>, take: Option<u64>) -> Answer {
    let mut found = Vec::new();
    while take.is_none_or(|take| (found.len() as u64) < take) {
        match pages.next().await {
            Some(item) => found.push(json!(item?)),
            None => break,
        }
    }
    Ok(found.into())
}

pub(crate) async fn invoke(client: &Client, step: &Value) -> Outcome<Answer> {
    let (call, args) = (text(step, "call"), &step["args"]);
    let answer = match call.as_str() {
        "push" | "push_many" => push(client, &call, args).await,
        "get" | "get_many" | "cancel" | "cancel_many" | "reschedule" | "reschedule_many" | "explain" | "list" => {
            of_messages(client, &call, args, step["take"].as_u64()).await
        }
        "create_topic" | "topic" | "topics" | "delete_topic" | "move" | "brokers" | "attention" => {
            of_topics(client, &call, args).await
        }
        "bulk" | "bulk_count" | "forecast" => of_times(client, &call, args).await,
        _ if call.contains("cron") => of_crons(client, &call, args).await,
        _ => of_groups(client, &call, args).await,
    };
    match answer {
        // A wrong argument that only the types of other languages hold.
        Err(error) => match error.downcast::<Error>() {
            Ok(error) => Ok(Err(*error)),
            Err(error) => Err(error),
        },
        answer => answer,
    }
}

async fn push(client: &Client, call: &str, args: &Value) -> Outcome<Answer> {
    let topic = text(args, "topic");
    if call == "push" {
        return Ok(value(client.push(&topic, message(args)?).await));
    }
    let given = args["messages"].as_array().into_iter().flatten();
    let mut messages: Vec<NewMessage> = given.map(message).collect::<Outcome<_>>()?;
    for _ in 0..args["repeat"].as_u64().unwrap_or_default() {
        messages.push(message(&json!({"payload": args["payload"], "times": args["times"]}))?);
    }
    Ok(value(client.push_many(&topic, messages).await))
}

fn reschedule(args: &Value) -> Outcome<Reschedule> {
    let mut to = match (span(args, "delay")?, time(args, "due_at")?) {
        (None, Some(due_at)) => Reschedule::at(due_at),
        (Some(delay), None) => Reschedule::after(delay),
        _ => return Err(Error::Argument("a delay or a due time".to_owned()).into()),
    };
    if let Some(etag) = args["etag"].as_str() {
        to = to.etag(etag);
    }
    Ok(match args["past"].as_str() {
        Some("now") => to.past(dwell_client::Past::Now),
        Some(_) => to.past(dwell_client::Past::Reject),
        None => to,
    })
}

async fn of_messages(client: &Client, call: &str, args: &Value, take: Option<u64>) -> Outcome<Answer> {
    let (topic, group) = (text(args, "topic"), args["group"].as_str());
    let many = args["messages"].as_array().into_iter().flatten().map(named);
    Ok(match (call, group) {
        ("get", Some(group)) => value(client.get_in(&topic, group, named(args)).await),
        ("get", None) => value(client.get(&topic, named(args)).await),
        ("get_many", Some(group)) => each(client.get_many_in(&topic, group, many).await),
        ("get_many", None) => each(client.get_many(&topic, many).await),
        ("cancel", _) => value(client.cancel(&topic, named(args)).await),
        ("cancel_many", _) => each(client.cancel_many(&topic, many).await),
        ("reschedule", _) => value(client.reschedule(&topic, named(args), reschedule(args)?).await),
        ("reschedule_many", _) => each(client.reschedule_many(&topic, many, reschedule(args)?).await),
        ("explain", _) => value(client.explain(&topic, named(args)).await),
        _ => {
            let mut filter = MessageFilter::default();
            if let Some(state) = args["state"].as_str() {
                filter = filter.state(state);
            }
            if let Some(group) = group {
                filter = filter.group(group);
            }
            if let Some(from) = time(args, "from")? {
                filter = filter.from(from);
            }
            if let Some(to) = time(args, "to")? {
                filter = filter.to(to);
            }
            if args["order"] == "due" {
                filter = filter.by_due_time();
            }
            if let Some(limit) = number(args, "limit")? {
                filter = filter.page(usize::try_from(limit)?);
            }
            entries(client.list(&topic, filter), take).await
        }
    })
}

fn settings(args: &Value) -> Outcome<TopicSettings> {
    let given = &args["settings"];
    let mut settings = TopicSettings::default();
    for (name, value) in given.as_object().into_iter().flatten() {
        let number = value.as_u64().unwrap_or_default();
        let span = span(given, name).ok().flatten().unwrap_or_default();
        let text = value.as_str().unwrap_or_default();
        settings =
            match name.as_str() {
                "partitions" => settings.partitions(u16::try_from(number)?),
                "visibility_timeout" => settings.visibility_timeout(span),
                "max_attempts" => settings.max_attempts(u32::try_from(number)?),
                "backoff" => settings.backoff(backoff(value)?),
                "dedup_window" => settings.dedup_window(span),
                "ttl" => settings.ttl(span),
                "on_expiry" => settings.bury_expired(text == "bury"),
                "dead_max_age" => settings.dead_max_age(span),
                "dead_max_count" => settings.dead_max_count(number),
                "annotations" => value.as_object().into_iter().flatten().fold(settings, |settings, (name, text)| {
                    settings.annotation(name, text.as_str().unwrap_or_default())
                }),
                "dead_letter" => settings.dead_letter_topic(value["topic"].as_str().unwrap_or_default()),
                "ordering" if text == "key" => settings.ordered_by_key(),
                "ordering" => TopicSettings { ordering: Some(text.to_owned().into()), ..settings },
                _ => return Err(format!("no setting is named {name}").into()),
            };
    }
    Ok(settings)
}

fn backoff(value: &Value) -> Outcome<Backoff> {
    if value["kind"] == "ladder" {
        let steps = value["steps"].as_array().into_iter().flatten().filter_map(Value::as_str);
        return Ok(Backoff::ladder(steps.map(crate::values::duration).collect::<Outcome<Vec<_>>>()?));
    }
    let (initial, max) = (span(value, "initial")?, span(value, "max")?);
    let (factor, jitter) = (value["factor"].as_f64(), value["jitter"].as_f64());
    Ok(Backoff::exponential(
        initial.unwrap_or_default(),
        max.unwrap_or_default(),
        factor.unwrap_or_default(),
        jitter.unwrap_or_default(),
    ))
}

async fn of_topics(client: &Client, call: &str, args: &Value) -> Outcome<Answer> {
    let topic = text(args, "topic");
    Ok(match call {
        "create_topic" => value(client.create_topic(&topic, settings(args)?).await.map(|put| put.value)),
        "topic" => value(client.topic(&topic).await),
        "topics" => value(client.topics().await),
        "delete_topic" => value(client.delete_topic(&topic).await),
        "brokers" => value(client.brokers().await),
        "attention" => value(client.attention().await),
        _ => {
            let partitions = number(args, "partitions")?.map(u16::try_from).transpose()?;
            value(client.move_topic(&topic, &text(args, "to"), partitions).total().await)
        }
    })
}

async fn of_times(client: &Client, call: &str, args: &Value) -> Outcome<Answer> {
    let (topic, group) = (text(args, "topic"), text(args, "group"));
    if call == "forecast" {
        let (step, spans) = (span(args, "step")?, number(args, "spans")?);
        let spans = u16::try_from(spans.unwrap_or_default())?;
        return Ok(value(client.forecast(&topic, &group, step.unwrap_or_default(), spans).await));
    }
    let (from, to) = (time(args, "from")?.unwrap_or_default(), time(args, "to")?.unwrap_or_default());
    if call == "bulk_count" {
        return Ok(client.bulk_count(&topic, &group, from, to).await.map(|waiting| json!({"waiting": waiting})));
    }
    let by = span(args, "by")?.unwrap_or_default();
    let change = match args["action"].as_str() {
        Some("cancel") => BulkChange::cancel(from, to),
        Some("postpone") => BulkChange::postpone(from, to, by),
        Some("advance") => BulkChange::advance(from, to, by),
        Some("park") => BulkChange::park(from, to),
        _ => BulkChange::unpark(from, to),
    };
    Ok(value(client.bulk(&topic, &group, change).total().await))
}

fn cron(given: &Value) -> Outcome<NewCronJob> {
    let mut cron = match given["cron"].as_str() {
        Some(cron) => NewCronJob::at(cron),
        None => NewCronJob::each(span(given, "every")?.unwrap_or_default()),
    };
    for (name, value) in given.as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        cron = match name.as_str() {
            "time_zone" => cron.time_zone(text),
            "from" => cron.starting(time(given, name)?.unwrap_or_default()),
            "missed" => cron.missed(text),
            "ttl" => cron.ttl(span(given, name)?.unwrap_or_default()),
            "max_attempts" => cron.max_attempts(u32::try_from(value.as_u64().unwrap_or_default())?),
            "content_type" => cron.content_type(text),
            "meta" => value
                .as_object()
                .into_iter()
                .flatten()
                .fold(cron, |cron, (name, value)| cron.meta(name, value.as_str().unwrap_or_default())),
            "payload" => cron.text(text),
            "payload_json" => cron.json(value)?,
            _ => cron,
        };
    }
    Ok(cron)
}

async fn of_crons(client: &Client, call: &str, args: &Value) -> Outcome<Answer> {
    let (topic, name) = (text(args, "topic"), text(args, "name"));
    Ok(match call {
        "put_cron" => value(client.put_cron(&topic, &name, cron(&args["settings"])?).await.map(|put| put.value)),
        "cron" => value(client.cron(&topic, &name).await),
        "pause_cron" => value(client.pause_cron(&topic, &name).await),
        "resume_cron" => value(client.resume_cron(&topic, &name).await),
        "delete_cron" => value(client.delete_cron(&topic, &name).await),
        _ => entries(client.crons(&topic), None).await,
    })
}

fn which(args: &Value) -> Outcome<DeadLetterSelector> {
    let mut which = match args["ids"].as_array() {
        Some(ids) => DeadLetterSelector::of(ids.iter().filter_map(Value::as_str)),
        None if args["all"] == true => DeadLetterSelector::everything(),
        None => DeadLetterSelector::default(),
    };
    if let Some(reason) = args["reason"].as_str() {
        which = which.reason(reason);
    }
    if let Some(age) = span(args, "older_than")? {
        which = which.older_than(age);
    }
    if let Some(age) = span(args, "younger_than")? {
        which = which.younger_than(age);
    }
    if let Some(text) = args["text"].as_str() {
        which = which.text(text);
    }
    if let Some(rate) = number(args, "rate")? {
        which = which.rate(u32::try_from(rate)?);
    }
    if let Some(limit) = number(args, "limit")? {
        which = which.limit(limit);
    }
    Ok(if args["dry_run"] == true { which.dry_run() } else { which })
}

fn filter(args: &Value) -> Outcome<DeadLetterFilter> {
    let mut filter = DeadLetterFilter::default();
    if let Some(reason) = args["reason"].as_str() {
        filter = filter.reason(reason);
    }
    if let Some(age) = span(args, "older_than")? {
        filter = filter.older_than(age);
    }
    if let Some(age) = span(args, "younger_than")? {
        filter = filter.younger_than(age);
    }
    if let Some(text) = args["text"].as_str() {
        filter = filter.text(text);
    }
    if let Some(limit) = number(args, "limit")? {
        filter = filter.page(usize::try_from(limit)?);
    }
    Ok(match args["order"].as_str() {
        Some("newest") => filter.newest_first(),
        Some("oldest") => filter.oldest_first(),
        _ => filter,
    })
}

async fn of_groups(client: &Client, call: &str, args: &Value) -> Outcome<Answer> {
    let (topic, group) = (text(args, "topic"), text(args, "group"));
    Ok(match call {
        "groups" => value(client.groups(&topic).await),
        "group" => value(client.group(&topic, &group).await),
        "create_group" => {
            let given: NewGroup = serde_json::from_value(args["settings"].clone())?;
            value(client.put_group(&topic, &group, given).await.map(|put| put.value))
        }
        "delete_group" => value(client.delete_group(&topic, &group).await),
        "pause" => match (span(args, "for")?, time(args, "until")?) {
            (Some(pause), _) => value(client.pause_for(&topic, &group, pause).await),
            (None, Some(until)) => value(client.pause_until(&topic, &group, until).await),
            (None, None) => value(client.pause(&topic, &group).await),
        },
        "resume" => value(client.resume(&topic, &group).await),
        "pause_key" => {
            let key = text(args, "key");
            match (span(args, "for")?, time(args, "until")?) {
                (Some(pause), _) => value(client.pause_key_for(&topic, &group, &key, pause).await),
                (None, Some(until)) => value(client.pause_key_until(&topic, &group, &key, until).await),
                // The methods of Rust have no pause of a key without an end.
                (None, None) => return Err(Error::Argument("no end is given".to_owned()).into()),
            }
        }
        "resume_key" => value(client.resume_key(&topic, &group, &text(args, "key")).await),
        "purge" => {
            let (all, dead_letters, dry_run) =
                (args["all"] == true, args["dead_letters"] == true, args["dry_run"] == true);
            value(client.purge(&topic, &group, PurgeOf { all, dead_letters, dry_run }).await)
        }
        "dead_letters" => entries(client.dead_letters(&topic, &group, filter(args)?), None).await,
        "redrive" => value(client.redrive(&topic, &group, which(args)?).total().await),
        "purge_dead_letters" => value(client.purge_dead_letters(&topic, &group, which(args)?).total().await),
        "verify" => value(client.verify(&topic, &group).total().await),
        "repair" => value(client.repair(&topic, &group).total().await),
        _ => return Err(format!("no call is named {call}").into()),
    })
}
