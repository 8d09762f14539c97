use super::*;
use crate::model::error::Kind;

#[test]
fn name_id_and_key_limits_are_enforced() {
    assert!(TopicName::new("a".repeat(NAME_BYTES_MAX)).is_ok());
    let of_processes = TopicName::of_processes();
    for bad in ["", ".", "..", "a b", "a:b", "{a}", "é", &"a".repeat(NAME_BYTES_MAX + 1), of_processes.as_str()] {
        assert!(TopicName::new(bad).is_err(), "{bad:?}");
    }
    assert!(MessageId::new("a".repeat(ID_BYTES_MAX)).is_ok());
    assert!(MessageId::new("...").is_ok());
    for bad in ["", ".", "..", "a b", "a\n", "é", &"a".repeat(ID_BYTES_MAX + 1)] {
        assert!(MessageId::new(bad).is_err(), "{bad:?}");
    }
    assert!(Key::new("é".repeat(KEY_BYTES_MAX / 2)).is_ok());
    for bad in ["", "a\u{0}", &"a".repeat(KEY_BYTES_MAX + 1)] {
        assert!(Key::new(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_payload_at_its_limit_is_accepted_and_one_byte_more_is_too_large() {
    let now = Timestamp::from_ms(1);
    assert!(NewMessage::new(vec![0; PAYLOAD_BYTES_MAX]).accept(now).is_ok());
    let error = NewMessage::new(vec![0; PAYLOAD_BYTES_MAX + 1]).accept(now).map(|_| ()).map_err(|e| e.kind());
    assert_eq!(error, Err(Kind::TooLarge));
    let with = |attachment| NewMessage { attachment, ..NewMessage::new(vec![0; PAYLOAD_BYTES_MAX - 1]) };
    assert!(with(Bytes::from_static(b"1")).accept(now).is_ok());
    assert!(with(Bytes::from_static(b"12")).accept(now).is_err_and(|error| error.kind() == Kind::TooLarge));
}

#[test]
fn meta_limits_are_enforced() {
    let many = |n: usize| (0..n).map(|i| (format!("n{i}"), "v".to_owned())).collect::<Vec<_>>();
    assert!(check_meta(&many(META_COUNT_MAX)).is_ok());
    assert!(check_meta(&many(META_COUNT_MAX + 1)).is_err());
    assert!(check_meta(&[("a".into(), "v".repeat(META_BYTES_MAX - 1))]).is_ok());
    assert!(check_meta(&[("a".into(), "v".repeat(META_BYTES_MAX))]).is_err());
    assert!(check_meta(&[("A".into(), "v".into())]).is_err());
    assert!(check_meta(&[("a".into(), "\n".into())]).is_err());
}
