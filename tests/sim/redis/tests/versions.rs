//! Answers that depend on the version of the server: `differential` found them.

use dwell_simulated_redis::{Config, Server, Time};

/// What a server of a version answers to the last of some commands.
fn answer(version: &str, commands: &[&str]) -> String {
    let now = Time(1_700_000_000_000_000);
    let mut server = Server::new(Config { version: version.to_owned(), ..Config::default() }, 1);
    let session = server.open(now);
    for command in commands {
        server.take_output(session);
        server.receive(session, format!("{command}\r\n").as_bytes(), now);
    }
    let out = server.take_output(session);
    String::from_utf8_lossy(&out)
        .split("\r\n")
        .filter(|line| !line.starts_with(['*', '$']))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn scores_are_short_from_7_2_on() {
    let scores = ["ZADD z 4.8828125e-4 a 0.1 b 1e15 c", "ZRANGE z 0 -1 WITHSCORES"];
    assert_eq!(answer("7.0.15", &scores), "a 0.00048828125 b 0.10000000000000001 c 1000000000000000 ");
    assert_eq!(answer("8.0.2", &scores), "a 4.8828125e-4 b 0.1 c 1000000000000000 ");
}

#[test]
fn a_scan_of_a_large_set_says_long_scores() {
    let large = format!("ZADD z 0.1 {}", "x".repeat(70));
    let of = |version, add: &str| answer(version, &[add, "ZSCAN z 0"]);
    assert_eq!(of("8.0.2", "ZADD z 0.1 x"), "0 x 0.1 ");
    assert_eq!(of("8.0.2", &large), format!("0 {} 0.10000000000000001 ", "x".repeat(70)));
    assert_eq!(of("7.0.15", &large), format!("0 {} 0.10000000000000001 ", "x".repeat(70)));
}

#[test]
fn a_negative_offset_counts_from_the_end_of_a_large_set_from_7_4_on() {
    let large = format!("ZADD z 0 a 0 b 0 c 0 {}", "x".repeat(70));
    let of = |version, add: &str, range| answer(version, &[add, range]);
    let range = "ZRANGE z - (x BYLEX LIMIT -2 -1";
    assert_eq!(of("8.0.2", &large, range), "b c ");
    assert_eq!(of("8.0.2", &large, "ZRANGE z (x - BYLEX REV LIMIT -2 1"), "b ");
    assert_eq!(of("8.0.2", &large, "ZRANGE z - (x BYLEX LIMIT -4 1"), "");
    assert_eq!(of("7.0.15", &large, range), "");
    assert_eq!(of("8.0.2", "ZADD z 0 a 0 b 0 c", range), "");
}
