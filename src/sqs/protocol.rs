//! Both protocols of SQS: JSON (`application/x-amz-json-1.0`), which newer clients speak, and Query, a form in and XML out,
//! which older ones speak.
//!
//! The form becomes the JSON of the same request, and the XML is written from the JSON of the answer: so both protocols
//! have one model.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::errors::{Failure, MALFORMED, Result};
use super::model::{Action, Answer, ITEMS_MAX, Request};
pub(crate) use crate::model::attributes::is_xml;

pub(crate) const JSON_TYPE: &str = "application/x-amz-json-1.0";

/// Errors: `SerializationException`. An empty body is an empty object.
pub(crate) fn decode_json(action: Action, body: &[u8]) -> Result<Request> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let malformed = |error: serde_json::Error| Failure::new(MALFORMED, format!("The body cannot be read: {error}"));
    let mut request: Request = serde_json::from_slice(body).map_err(malformed)?;
    if action.is_single() {
        request.entries = vec![serde_json::from_slice(body).map_err(malformed)?];
    }
    check_required(action, &request)?;
    Ok(request)
}

/// Lists and maps that have to have something. Errors: `MissingParameter`.
fn check_required(action: Action, request: &Request) -> Result<()> {
    let missing = match action {
        Action::TagQueue if request.tags.is_empty() => "Tags",
        Action::UntagQueue if request.tag_keys.is_empty() => "TagKeys",
        Action::SetQueueAttributes if request.attributes.is_empty() => "Attributes",
        Action::AddPermission if request.aws_account_ids.is_empty() => "AWSAccountIds",
        Action::AddPermission if request.actions.is_empty() => "Actions",
        _ => return Ok(()),
    };
    Err(Failure::missing(missing))
}

/// Of a successful action: an object, also if nothing is in it, but nothing at all for an action that never answers anything.
pub(crate) fn encode_json(action: Action, answer: &Answer) -> Vec<u8> {
    match action.has_result() {
        true => serde_json::to_vec(answer).unwrap_or_default(),
        false => Vec::new(),
    }
}

pub(crate) fn json_failure(failure: &Failure) -> Vec<u8> {
    let shape = format!("com.amazonaws.sqs#{}", failure.class.shape);
    serde_json::json!({"__type": shape, "message": failure.message}).to_string().into_bytes()
}

/// The header with the code of the Query protocol: older programs compare it.
pub(crate) fn query_error_header(failure: &Failure) -> String {
    format!("{};{}", failure.class.code, failure.class.side())
}

pub(crate) const XML_TYPE: &str = "text/xml";

const NAMESPACE: &str = "http://queue.amazonaws.com/doc/2012-11-05/";
/// Parameters of a form. A batch of ten messages with ten attributes each has about 450.
const PARAMETERS_MAX: usize = 4_096;
/// Objects inside objects: a request, its entries, their attributes, and a value.
const DEPTH_MAX: usize = 4;

/// How an indexed parameter, as in `Tag.1.Key`, is called in JSON, and what it is there.
enum Form {
    List(&'static str),
    /// The names of key and value.
    Map(&'static str, &'static str, &'static str),
}

fn form(name: &str) -> Option<Form> {
    Some(match name {
        "Attribute" => Form::Map("Attributes", "Name", "Value"),
        "MessageAttribute" => Form::Map("MessageAttributes", "Name", "Value"),
        "MessageSystemAttribute" => Form::Map("MessageSystemAttributes", "Name", "Value"),
        "Tag" => Form::Map("Tags", "Key", "Value"),
        "AttributeName" => Form::List("AttributeNames"),
        "MessageAttributeName" => Form::List("MessageAttributeNames"),
        "MessageSystemAttributeName" => Form::List("MessageSystemAttributeNames"),
        "TagKey" => Form::List("TagKeys"),
        "AWSAccountId" => Form::List("AWSAccountIds"),
        "ActionName" => Form::List("Actions"),
        _ if name.ends_with("BatchRequestEntry") => Form::List("Entries"),
        _ => return None,
    })
}

/// Whether a parameter is a list or a map: one with an empty value is empty. Some clients then write its name in JSON.
fn is_list(name: &str) -> bool {
    const MEMBERS: [&str; 8] = [
        "Attributes",
        "MessageAttributes",
        "MessageSystemAttributes",
        "Tags",
        "AttributeNames",
        "MessageAttributeNames",
        "MessageSystemAttributeNames",
        "Entries",
    ];
    form(name).is_some() || MEMBERS.contains(&name)
}

/// The pairs of a form or a query. Errors: bad percent-encoding, bytes that are not UTF-8, too many pairs.
pub(crate) fn pairs(text: &str) -> Result<Vec<(String, String)>> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((percent_decode(name)?, percent_decode(value)?))
    };
    let refused = |why: &'static str| Failure::new(MALFORMED, why);
    let pairs: Option<Vec<_>> = pairs.take(PARAMETERS_MAX + 1).map(read).collect();
    match pairs {
        None => Err(refused("The parameters are not UTF-8 in percent-encoding.")),
        Some(pairs) if pairs.len() > PARAMETERS_MAX => Err(refused("There are too many parameters.")),
        Some(pairs) => Ok(pairs),
    }
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    let hex = |rest: &mut std::str::Bytes<'_>| char::from(rest.next()?).to_digit(16);
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => u8::try_from(hex(&mut rest)? << 4 | hex(&mut rest)?).ok()?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Errors: `MalformedInput`.
pub(crate) fn decode_form(action: Action, pairs: &[(String, String)]) -> Result<Request> {
    let value =
        Value::Object(object(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(), DEPTH_MAX)?);
    let malformed = |error: serde_json::Error| Failure::new(MALFORMED, format!("The form cannot be read: {error}"));
    let entry = action.is_single().then(|| serde_json::from_value(value.clone())).transpose().map_err(malformed)?;
    let mut request: Request = serde_json::from_value(value).map_err(malformed)?;
    request.entries.extend(entry);
    check_required(action, &request)?;
    Ok(request)
}

/// The object that `a.b=c` and `List.1.a=c` describe.
fn object(pairs: Vec<(&str, &str)>, depth: usize) -> Result<Map<String, Value>> {
    let depth = depth.checked_sub(1).ok_or_else(|| Failure::new(MALFORMED, "The parameters are nested too deep."))?;
    let mut object = Map::new();
    let mut nested: Vec<(&str, Vec<(&str, &str)>)> = Vec::new();
    for (name, value) in pairs {
        match name.split_once('.') {
            None if value.is_empty() && is_list(name) => {}
            None => drop(object.insert(name.to_owned(), Value::from(value))),
            Some((name, rest)) => match nested.iter().position(|(there, _)| *there == name) {
                Some(at) => nested[at].1.push((rest, value)),
                None if nested.len() == ITEMS_MAX => {
                    return Err(Failure::new(MALFORMED, "Too many kinds of parameters."));
                }
                None => nested.push((name, vec![(rest, value)])),
            },
        }
    }
    for (name, pairs) in nested {
        match form(name) {
            None => drop(object.insert(name.to_owned(), Value::Object(self::object(pairs, depth)?))),
            Some(Form::List(member)) => drop(object.insert(member.to_owned(), Value::Array(items(pairs, depth)?))),
            Some(Form::Map(member, key, value)) => {
                drop(object.insert(member.to_owned(), Value::Object(entries(items(pairs, depth)?, key, value))));
            }
        }
    }
    Ok(object)
}

/// The items of a list in the order of their numbers: texts, or objects.
fn items(pairs: Vec<(&str, &str)>, depth: usize) -> Result<Vec<Value>> {
    let mut items: std::collections::BTreeMap<u32, Vec<(&str, &str)>> = std::collections::BTreeMap::new();
    for (name, value) in pairs {
        let (number, rest) = name.split_once('.').unwrap_or((name, ""));
        // `.member` is how other services of AWS write lists.
        let malformed = || Failure::new(MALFORMED, "A parameter of a list has no number.");
        items.entry(number.parse().map_err(|_| malformed())?).or_default().push((rest, value));
    }
    let item = |pairs: Vec<(&str, &str)>| match pairs.as_slice() {
        [("", value)] => Ok(Value::from(*value)),
        _ => object(pairs, depth).map(Value::Object),
    };
    items.into_values().map(item).collect()
}

fn entries(items: Vec<Value>, key: &str, value: &str) -> Map<String, Value> {
    let entry = |item: Value| match item {
        Value::Object(mut item) => {
            let Some(Value::String(name)) = item.remove(key) else { return None };
            Some((name, item.remove(value).unwrap_or_else(|| Value::from(""))))
        }
        _ => None,
    };
    items.into_iter().filter_map(entry).collect()
}

/// Of a successful action.
pub(crate) fn encode_xml(action: Action, answer: &Answer, request_id: &str) -> Vec<u8> {
    let (action, has_result) = (action.name(), action.has_result());
    let mut xml = format!("<?xml version=\"1.0\"?><{action}Response xmlns=\"{NAMESPACE}\">");
    if has_result {
        match serde_json::to_value(answer) {
            Ok(Value::Object(members)) if !members.is_empty() => {
                element(&mut xml, &format!("{action}Result"), |xml| write_members(xml, action, &members));
            }
            _ => xml.push_str(&format!("<{action}Result/>")),
        }
    }
    element(&mut xml, "ResponseMetadata", |xml| text(xml, "RequestId", request_id));
    xml.push_str("</");
    xml.push_str(action);
    xml.push_str("Response>");
    xml.into_bytes()
}

pub(crate) fn xml_failure(failure: &Failure, request_id: &str) -> Vec<u8> {
    let mut xml = format!("<?xml version=\"1.0\"?><ErrorResponse xmlns=\"{NAMESPACE}\">");
    element(&mut xml, "Error", |xml| {
        text(xml, "Type", failure.class.side());
        text(xml, "Code", failure.class.code);
        text(xml, "Message", failure.query_message());
        xml.push_str("<Detail/>");
    });
    text(&mut xml, "RequestId", request_id);
    xml.push_str("</ErrorResponse>");
    xml.into_bytes()
}

/// How an item of a list or a map is called in XML.
fn item_name<'a>(action: &str, member: &'a str) -> std::borrow::Cow<'a, str> {
    match member {
        "Messages" => "Message".into(),
        "QueueUrls" | "queueUrls" => "QueueUrl".into(),
        "Attributes" => "Attribute".into(),
        "MessageAttributes" => "MessageAttribute".into(),
        "Tags" => "Tag".into(),
        "Successful" => format!("{action}ResultEntry").into(),
        "Failed" => "BatchResultErrorEntry".into(),
        "Results" => "ListMessageMoveTasksResultEntry".into(),
        other => other.into(),
    }
}

fn write_members(xml: &mut String, action: &str, members: &Map<String, Value>) {
    for (member, value) in members {
        let name = item_name(action, member);
        match value {
            Value::Array(items) => items.iter().for_each(|item| write_value(xml, action, &name, item)),
            Value::Object(entries) if *member != *name => {
                let key = if member == "Tags" { "Key" } else { "Name" };
                for (entry, value) in entries {
                    element(xml, &name, |xml| {
                        text(xml, key, entry);
                        write_value(xml, action, "Value", value);
                    });
                }
            }
            value => write_value(xml, action, &name, value),
        }
    }
}

fn write_value(xml: &mut String, action: &str, name: &str, value: &Value) {
    match value {
        Value::Object(members) => element(xml, name, |xml| write_members(xml, action, members)),
        Value::String(value) => text(xml, name, value),
        value => text(xml, name, &value.to_string()),
    }
}

fn element(xml: &mut String, name: &str, inside: impl FnOnce(&mut String)) {
    // Writing to a string cannot fail.
    let _ = write!(xml, "<{name}>");
    inside(xml);
    let _ = write!(xml, "</{name}>");
}

fn text(xml: &mut String, name: &str, value: &str) {
    element(xml, name, |xml| {
        for c in value.chars() {
            match c {
                '&' => xml.push_str("&amp;"),
                '<' => xml.push_str("&lt;"),
                '>' => xml.push_str("&gt;"),
                '"' => xml.push_str("&quot;"),
                // A parser turns a bare one into a line feed.
                '\r' => xml.push_str("&#xD;"),
                // No XML can have it. Bodies and attributes with one were refused, or are sent as base64.
                c if !is_xml(c) => xml.push('\u{fffd}'),
                c => xml.push(c),
            }
        }
    });
}

/// Serves all other requests of the listener.
const OTHERS: [&str; 6] = ["/v1", "/ui", "/livez", "/readyz", "/metrics", "/openapi.json"];

const TARGET: &str = "AmazonSQS.";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// With the name of the action.
    Json(String),
    Query,
}

/// `None` for a request that is not of SQS.
pub(crate) fn recognise(
    method: &str,
    path: &str,
    query: Option<&str>,
    header: impl Fn(&str) -> Option<String>,
) -> Option<Protocol> {
    let is_other = |other: &str| path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if OTHERS.into_iter().any(is_other) {
        return None;
    }
    let target = || Some(header("x-amz-target")?.strip_prefix(TARGET)?.to_owned());
    if method == "POST"
        && let Some(action) = target()
    {
        return Some(Protocol::Json(action));
    }
    let is_query = match method {
        "GET" => query.unwrap_or_default().split('&').any(|pair| pair.split('=').next() == Some("Action")),
        "POST" => header("content-type").is_some_and(|given| is_form(&given)),
        _ => false,
    };
    (is_query || is_queue(path)).then_some(Protocol::Query)
}

fn is_form(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// Whether a path is that of a queue's URL, `/<account of 12 digits>/<name>`, which nothing else has.
fn is_queue(path: &str) -> bool {
    let Some((account, name)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else { return false };
    account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sqs::model::{AttributeValue, Failed, ITEMS_MAX, Received, Sent};

    fn read_json(action: Action, body: &Value) -> Result<Request> {
        decode_json(action, body.to_string().as_bytes())
    }

    #[test]
    fn unknown_members_are_ignored_and_null_is_absent() -> Result<()> {
        let body = json!({
            "QueueUrl": "http://h/0/orders", "MessageBody": "x", "DelaySeconds": null, "MessageAttributes": null,
            "New": {"a": [1, 2]},
        });
        let request = read_json(Action::SendMessage, &body)?;
        assert_eq!(request.queue_url.as_deref(), Some("http://h/0/orders"));
        assert_eq!(request.entries.len(), 1);
        assert_eq!((request.entries[0].message_body.as_deref(), request.entries[0].delay_seconds), (Some("x"), None));
        assert_eq!(decode_json(Action::ListQueues, b" ")?, Request::default());
        let created = read_json(Action::CreateQueue, &json!({"QueueName": "a", "tags": {"k": "v"}}))?;
        assert_eq!(created.tags["k"], "v");
        Ok(())
    }

    #[test]
    fn invalid_requests_are_refused_with_bounded_memory() {
        let refused =
            |text: &str| decode_json(Action::SendMessageBatch, text.as_bytes()).is_err_and(|it| it.class == MALFORMED);
        let many = format!("{{\"Entries\":[{}{{}}]}}", "{},".repeat(ITEMS_MAX));
        let deep = format!("{{\"MaxResults\":{}", "[".repeat(1_000_000));
        for text in
            ["[", "\u{1}", "\"x\"", "{\"QueueUrl\":7}", "{\"MaxResults\":[1]}", "{\"MaxResults\":1.5}", &many, &deep]
        {
            assert!(refused(text), "{}", &text[..text.len().min(40)]);
        }
        let nested = read_json(Action::SendMessageBatch, &json!({"Entries": [{"Entries": [{}], "Id": "a"}]}));
        assert_eq!(nested.map(|request| request.entries.len()), Ok(1));
    }

    #[test]
    fn empty_lists_are_left_out_of_an_answer() {
        let written_json =
            |action: Action, answer: &Answer| String::from_utf8(encode_json(action, answer)).unwrap_or_default();
        for (action, written) in [(Action::ReceiveMessage, "{}"), (Action::ListQueues, "{}"), (Action::PurgeQueue, "")]
        {
            assert_eq!(written_json(action, &Answer::default()), written);
        }
        let sent = Sent { message_id: Some("m".to_owned()), ..Sent::default() };
        assert_eq!(
            written_json(Action::SendMessage, &Answer { sent: Some(sent), ..Answer::default() }),
            r#"{"MessageId":"m"}"#
        );
        let failed = Failed::new("a".to_owned(), &Failure::no_queue());
        let batch = Answer { successful: Some(vec![]), failed: vec![failed], ..Answer::default() };
        let code = "AWS.SimpleQueueService.NonExistentQueue";
        assert_eq!(
            serde_json::from_slice::<Value>(&encode_json(Action::SendMessageBatch, &batch)).ok(),
            Some(json!({
                "Successful": [],
                "Failed": [{
                    "Id": "a", "SenderFault": true, "Code": code, "Message": "The specified queue does not exist.",
                }],
            }))
        );
        let received = Answer { messages: vec![Received::default()], ..Answer::default() };
        let members = r#"{"Messages":[{"MessageId":"","ReceiptHandle":"","MD5OfBody":"","Body":""}]}"#;
        assert_eq!(written_json(Action::ReceiveMessage, &received), members);
    }

    #[test]
    fn error_has_a_json_body_and_a_code_header() {
        let failure = Failure::no_queue();
        let body: Value = serde_json::from_slice(&json_failure(&failure)).unwrap_or_default();
        let shape = "com.amazonaws.sqs#QueueDoesNotExist";
        assert_eq!(body, json!({"__type": shape, "message": "The specified queue does not exist."}));
        assert_eq!(query_error_header(&failure), "AWS.SimpleQueueService.NonExistentQueue;Sender");
    }

    fn read_form(action: Action, form: &str) -> Result<Request> {
        decode_form(action, &pairs(form)?)
    }

    fn written(action: Action, answer: &Answer) -> String {
        let xml = String::from_utf8(encode_xml(action, answer, "r")).unwrap_or_default();
        let head = format!("<?xml version=\"1.0\"?><{}Response xmlns=\"{NAMESPACE}\">", action.name());
        let tail = format!("<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></{}Response>", action.name());
        xml.strip_prefix(&head).and_then(|xml| xml.strip_suffix(&tail)).unwrap_or(&xml).to_owned()
    }

    #[test]
    fn form_and_json_requests_are_equivalent() -> Result<()> {
        let form = "Action=SendMessageBatch&QueueUrl=http%3A%2F%2Fh%2F0%2Forders\
            &SendMessageBatchRequestEntry.2.Id=b&SendMessageBatchRequestEntry.2.MessageBody=y\
            &SendMessageBatchRequestEntry.1.Id=a&SendMessageBatchRequestEntry.1.MessageBody=x+%C3%B6\
            &SendMessageBatchRequestEntry.1.DelaySeconds=7\
            &SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=n\
            &SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=Binary\
            &SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.BinaryValue=AP8%3D";
        let json = br#"{"QueueUrl": "http://h/0/orders", "Entries": [
            {"Id": "a", "MessageBody": "x \u00f6", "DelaySeconds": 7,
             "MessageAttributes": {"n": {"DataType": "Binary", "BinaryValue": "AP8="}}},
            {"Id": "b", "MessageBody": "y"}]}"#;
        assert_eq!(read_form(Action::SendMessageBatch, form)?, decode_json(Action::SendMessageBatch, json)?);
        let form = "QueueName=a&Attribute.1.Name=DelaySeconds&Attribute.1.Value=3&Tag.1.Key=k&Tag.1.Value=v";
        let json = br#"{"QueueName": "a", "Attributes": {"DelaySeconds": "3"}, "tags": {"k": "v"}}"#;
        assert_eq!(read_form(Action::CreateQueue, form)?, decode_json(Action::CreateQueue, json)?);
        let form = "AttributeName.1=All&TagKey.1=a&TagKey.2=b&MaxNumberOfMessages=10";
        let request = read_form(Action::ReceiveMessage, form)?;
        assert_eq!(
            (request.attribute_names, request.tag_keys),
            (vec!["All".to_owned()], vec!["a".to_owned(), "b".to_owned()])
        );
        assert_eq!(request.max_number_of_messages, Some(10));
        Ok(())
    }

    #[test]
    fn unparsable_form_is_refused() {
        let kinds: String = (0..=ITEMS_MAX).map(|n| format!("a{n}.1=x&")).collect();
        let many = "a=b&".repeat(PARAMETERS_MAX + 1);
        let nested = format!("{}=x", "AttributeName.1.".repeat(100));
        for form in [
            &format!("{}=x", "a.".repeat(1_000_000)),
            "a=%zz",
            "a=%f",
            "a=%ff",
            "AttributeName.x=1",
            "MaxResults=x",
            &kinds,
            &many,
            &nested,
        ] {
            let refused = read_form(Action::ListQueues, form).is_err_and(|failure| failure.class == MALFORMED);
            assert!(refused, "{}", &form[..form.len().min(40)]);
        }
    }

    #[test]
    fn response_is_the_xml_of_its_action() {
        assert_eq!(written(Action::DeleteMessage, &Answer::default()), "");
        assert_eq!(written(Action::ReceiveMessage, &Answer::default()), "<ReceiveMessageResult/>");
        let urls = Answer { queue_urls: vec!["a".to_owned(), "b".to_owned()], ..Answer::default() };
        let xml = "<ListQueuesResult><QueueUrl>a</QueueUrl><QueueUrl>b</QueueUrl></ListQueuesResult>";
        assert_eq!(written(Action::ListQueues, &urls), xml);
        let text =
            AttributeValue { data_type: "String".to_owned(), string_value: Some("v".to_owned()), binary_value: None };
        let message = Received {
            body: "a<&>\r\n\u{1}\"".to_owned(),
            attributes: [("SenderId".to_owned(), "me".to_owned())].into(),
            message_attributes: [("n".to_owned(), text)].into(),
            ..Received::default()
        };
        assert_eq!(
            written(Action::ReceiveMessage, &Answer { messages: vec![message], ..Answer::default() }),
            "<ReceiveMessageResult><Message><Attribute><Name>SenderId</Name><Value>me</Value></Attribute>\
             <Body>a&lt;&amp;&gt;&#xD;\n\u{fffd}&quot;</Body><MD5OfBody></MD5OfBody><MessageAttribute><Name>n</Name><Value>\
             <DataType>String</DataType><StringValue>v</StringValue></Value></MessageAttribute><MessageId></MessageId>\
             <ReceiptHandle></ReceiptHandle></Message></ReceiveMessageResult>"
        );
        let sent = Sent { id: Some("a".to_owned()), message_id: Some("m".to_owned()), ..Sent::default() };
        let failed = Failed::new("b".to_owned(), &Failure::missing("MessageBody"));
        let batch = Answer { successful: Some(vec![sent]), failed: vec![failed], ..Answer::default() };
        assert_eq!(
            written(Action::SendMessageBatch, &batch),
            "<SendMessageBatchResult><BatchResultErrorEntry><Code>MissingParameter</Code><Id>b</Id><Message>The request must \
             contain the parameter MessageBody.</Message><SenderFault>true</SenderFault></BatchResultErrorEntry>\
             <SendMessageBatchResultEntry><Id>a</Id><MessageId>m</MessageId></SendMessageBatchResultEntry>\
             </SendMessageBatchResult>"
        );
    }

    #[test]
    fn error_uses_the_query_protocol_texts() {
        let xml = String::from_utf8(xml_failure(&Failure::no_queue(), "r")).unwrap_or_default();
        assert_eq!(
            xml,
            "<?xml version=\"1.0\"?><ErrorResponse xmlns=\"http://queue.amazonaws.com/doc/2012-11-05/\"><Error>\
             <Type>Sender</Type><Code>AWS.SimpleQueueService.NonExistentQueue</Code><Message>The specified queue does not \
             exist for this wsdl version.</Message><Detail/></Error><RequestId>r</RequestId></ErrorResponse>"
        );
    }

    #[test]
    fn requests_are_recognised_by_header_path_and_type() {
        let seen = |method: &str, target: &str, amz: Option<&str>, kind: Option<&str>| {
            let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
            let header = |name: &str| match name {
                "x-amz-target" => amz.map(str::to_owned),
                "content-type" => kind.map(str::to_owned),
                _ => None,
            };
            recognise(method, path, query, header)
        };
        let (target, form) = (Some("AmazonSQS.SendMessage"), Some("application/x-www-form-urlencoded; charset=utf-8"));
        let json = Some(Protocol::Json("SendMessage".to_owned()));
        for path in ["/", "/000000000000/orders", "/queue/orders", "/v1x"] {
            assert_eq!(seen("POST", path, target, Some("application/json")), json, "{path}");
            assert_eq!(seen("POST", path, None, form), Some(Protocol::Query), "{path}");
        }
        assert_eq!(seen("GET", "/?Action=ListQueues", None, None), Some(Protocol::Query));
        for other in ["/", "/?x=Action", "/ui?Action=x", "/readyz?Action=x"] {
            assert_eq!(seen("GET", other, None, None), None, "{other}");
        }
        for path in ["/v1", "/v1/topics", "/ui/", "/livez", "/metrics", "/openapi.json"] {
            assert_eq!(seen("POST", path, target, form), None, "{path}");
        }
        assert_eq!(seen("POST", "/", None, Some("application/json")), None);
        assert_eq!(seen("PUT", "/", target, form), None);
        assert_eq!(seen("POST", "/", Some("AmazonSNS.Publish"), None), None);
    }
}
