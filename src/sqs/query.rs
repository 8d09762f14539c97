//! The Query protocol, which older clients speak: a form in, XML out.
//!
//! The form becomes the JSON of the same request, and the XML is written from the JSON of the answer: so both protocols
//! have one model.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::errors::{Failure, MALFORMED, Result};
use super::model::{Action, Answer, ITEMS_MAX, Request};

pub(crate) const CONTENT_TYPE: &str = "text/xml";

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
pub(crate) fn decode(action: Action, pairs: &[(String, String)]) -> Result<Request> {
    let value =
        Value::Object(object(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(), DEPTH_MAX)?);
    let malformed = |error: serde_json::Error| Failure::new(MALFORMED, format!("The form cannot be read: {error}"));
    let entry = action.is_single().then(|| serde_json::from_value(value.clone())).transpose().map_err(malformed)?;
    let mut request: Request = serde_json::from_value(value).map_err(malformed)?;
    request.entries.extend(entry);
    Ok(request)
}

/// The object that `a.b=c` and `List.1.a=c` describe.
fn object(pairs: Vec<(&str, &str)>, depth: usize) -> Result<Map<String, Value>> {
    let depth = depth.checked_sub(1).ok_or_else(|| Failure::new(MALFORMED, "The parameters are nested too deep."))?;
    let mut object = Map::new();
    let mut nested: Vec<(&str, Vec<(&str, &str)>)> = Vec::new();
    for (name, value) in pairs {
        match name.split_once('.') {
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
pub(crate) fn encode(action: Action, answer: &Answer, request_id: &str) -> Vec<u8> {
    let (action, has_result) = (action.name(), action.has_result());
    let mut xml = format!("<?xml version=\"1.0\"?><{action}Response xmlns=\"{NAMESPACE}\">");
    match serde_json::to_value(answer) {
        Ok(Value::Object(members)) if !members.is_empty() => {
            element(&mut xml, &format!("{action}Result"), |xml| write_members(xml, action, &members));
        }
        _ if has_result => xml.push_str(&format!("<{action}Result/>")),
        _ => {}
    }
    element(&mut xml, "ResponseMetadata", |xml| text(xml, "RequestId", request_id));
    xml.push_str("</");
    xml.push_str(action);
    xml.push_str("Response>");
    xml.into_bytes()
}

pub(crate) fn encode_failure(failure: &Failure, request_id: &str) -> Vec<u8> {
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

/// Whether XML, and so SQS, allows a character.
pub(crate) fn is_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqs::model::{AttributeValue, Failed, Received, Sent};

    fn read(action: Action, form: &str) -> Result<Request> {
        decode(action, &pairs(form)?)
    }

    fn written(action: Action, answer: &Answer) -> String {
        let xml = String::from_utf8(encode(action, answer, "r")).unwrap_or_default();
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
        assert_eq!(read(Action::SendMessageBatch, form)?, super::super::json::decode(Action::SendMessageBatch, json)?);
        let form = "QueueName=a&Attribute.1.Name=DelaySeconds&Attribute.1.Value=3&Tag.1.Key=k&Tag.1.Value=v";
        let json = br#"{"QueueName": "a", "Attributes": {"DelaySeconds": "3"}, "tags": {"k": "v"}}"#;
        assert_eq!(read(Action::CreateQueue, form)?, super::super::json::decode(Action::CreateQueue, json)?);
        let form = "AttributeName.1=All&TagKey.1=a&TagKey.2=b&MaxNumberOfMessages=10";
        let request = read(Action::ReceiveMessage, form)?;
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
            let refused = read(Action::ListQueues, form).is_err_and(|failure| failure.class == MALFORMED);
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
        let xml = String::from_utf8(encode_failure(&Failure::no_queue(), "r")).unwrap_or_default();
        assert_eq!(
            xml,
            "<?xml version=\"1.0\"?><ErrorResponse xmlns=\"http://queue.amazonaws.com/doc/2012-11-05/\"><Error>\
             <Type>Sender</Type><Code>AWS.SimpleQueueService.NonExistentQueue</Code><Message>The specified queue does not \
             exist for this wsdl version.</Message><Detail/></Error><RequestId>r</RequestId></ErrorResponse>"
        );
    }
}
