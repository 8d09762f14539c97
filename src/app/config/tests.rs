//! A whole configuration with its sources.

use std::io::Result as IoResult;
use std::time::Duration;

use super::*;
use crate::app::config::{secs, show};
use crate::app::engine::Confirmation;
use crate::gate::access::{Scope, Scopes};
use crate::model::limits::TOKENS_MAX;
use crate::model::limits::WEBHOOKS_MAX;
use crate::model::retry::{Backoff, LadderStep};
use crate::model::topic::{Annotations, Ordering};
use crate::platform::secret::Secret;
use crate::telemetry::spans::Endpoint;

fn sources(file: &str, env: &[(&str, &str)], flags: &[(&'static str, &str)]) -> IoResult<(tempfile::TempDir, Sources)> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("dwell.toml");
    std::fs::write(&path, file)?;
    let env = env.iter().chain([&("HOME", "/home/ada")]).map(|(name, value)| (name.into(), value.into())).collect();
    let flag = |(key, value): &(&'static str, &str)| Flag { key, flag: "--flag", value: (*value).to_owned() };
    Ok((dir, Sources { file: Some(path), text: None, env, flags: flags.iter().map(flag).collect() }))
}

fn load(file: &str, env: &[(&str, &str)], flags: &[(&'static str, &str)]) -> IoResult<Result<Config, String>> {
    let (dir, sources) = sources(file, env, flags)?;
    let dir = dir.path().to_string_lossy();
    let shown = |errors: ConfigErrors| errors.to_string().replace(&format!("(file {dir}/dwell.toml)"), "(file)");
    let errors = |errors| shown(errors).replace(&*dir, "");
    Ok(Config::load(&sources).map_err(errors))
}

#[test]
fn precedence_is_flag_environment_file_default() -> IoResult<()> {
    let prefix = |file: &str, env: &[(&str, &str)], flags: &[(&'static str, &str)]| {
        load(file, env, flags).map(|loaded| loaded.map(|config| config.redis.prefix))
    };
    let file = "redis.prefix = 'file'";
    let (env, flag) = (("DWELL_REDIS_PREFIX", "env"), ("redis.prefix", "flag"));
    assert_eq!(prefix("", &[], &[])?, Ok("dwell".to_owned()));
    assert_eq!(prefix(file, &[], &[])?, Ok("file".to_owned()));
    assert_eq!(prefix(file, &[("DWELL_REDIS_PREFIX", "")], &[])?, Ok("file".to_owned()));
    assert_eq!(prefix(file, &[env], &[])?, Ok("env".to_owned()));
    assert_eq!(prefix(file, &[env], &[flag])?, Ok("flag".to_owned()));
    Ok(())
}

const WRONG: [(&str, &str); 49] = [
    ("socket_mode = '0666'", "socket_mode = \"0666\" (file): lets everybody on this machine in; accepted"),
    ("socket_mode = 0o660", "socket_mode = \"432\" (file): is not four octal digits in quotes"),
    ("listen = '0.0.0.0:7373'", "listen = \"0.0.0.0:7373\" (file): is reachable from other machines"),
    ("listen = 7373", "listen = \"7373\" (file): is not an address with a port; accepted: ADDRESS:PORT"),
    ("console = 'on'", "console = \"on\" (file): is none of the words; accepted: full, read_only, off"),
    ("data_dir = ''", "data_dir = \"\" (file): is empty"),
    ("redis.url = 'http://:s3cret@host'", "redis.url = \"http://:***@host\" (file): is not a redis:// URL"),
    ("redis.url_file = '/does/not/exist'", "redis.url_file = \"/does/not/exist\" (file): cannot be read"),
    ("redis.prefix = 'a:b'", "redis.prefix = \"a:b\" (file): has another character; accepted: 1 to 100 of"),
    ("redis.timeout = '49ms'", "redis.timeout = \"49ms\" (file): is out of range; accepted: 50ms to 1m"),
    ("redis.timeout = '60001ms'", "redis.timeout = \"60001ms\" (file): is out of range; accepted: 50ms to 1m"),
    ("redis.allow_eviction = 'yes'", "redis.allow_eviction = \"yes\" (file): is none of the words; accepted"),
    ("redis = 'redis://host'", "redis (file): is a section, not a key"),
    ("lease.ttl = '999ms'", "lease.ttl = \"999ms\" (file): is out of range; accepted: 1s to 10m"),
    ("lease.ttl = '10m1s'", "accepted: 1s to 10m"),
    (
        "lease.ttl = '2s'\ngroup.heartbeat = '1s'",
        "group.heartbeat = \"1s\" (file): 1s is too long; accepted: at most a third of lease.ttl, which is 2s",
    ),
    ("lease.ttl = '3s'\ngroup.heartbeat = '1001ms'", "accepted: at most a third of lease.ttl, which is 3s"),
    ("group.drain_timeout = '-1s'", "group.drain_timeout = \"-1s\" (file): \"-1s\" is negative"),
    ("http.idle_timeout = '999ms'", "accepted: 1s to 10m"),
    ("http.idle_timeout = '601s'", "accepted: 1s to 10m"),
    ("topic.partitions = 0", "topic.partitions = \"0\" (file): is out of range; accepted: 1 to 1024"),
    ("topic.partitions = 1025", "accepted: 1 to 1024"),
    ("topic.partitions = [8]", "topic.partitions = [\"8\"] (file): is a list; accepted: 1 to 1024"),
    ("lease.ttl = 5", "lease.ttl = \"5\" (file): 5 has no unit; write \"5s\" or \"5ms\"; accepted: 1s to 10m"),
    ("topic.visibility_timeout = '99ms'", "accepted: 100ms to 12h"),
    ("topic.max_attempts = 1001", "accepted: 0 to 1000"),
    ("topic.max_attempts = 1.5", "topic.max_attempts = \"1.5\" (file): is not such a number"),
    ("topic.dedup_window = '8d'", "accepted: 0s to 7d"),
    ("topic.ordering = 'fifo'", "accepted: none, key"),
    ("topic.ttl = '3651d'", "accepted: 0s to 3650d"),
    ("topic.on_expiry = 'keep'", "accepted: drop, bury"),
    ("topic.dead_max_age = '3651d'", "accepted: 0s to 3650d"),
    ("topic.dead_max_count = 10000001", "accepted: 0 to 10000000"),
    ("topic.auto_create = 1", "accepted: true, false"),
    ("topic.backoff.kind = 'linear'", "accepted: exponential, ladder"),
    (
        "topic.backoff.steps = ['1s']",
        "belongs to the other kind of backoff; accepted: nothing, while topic.backoff.kind",
    ),
    ("topic.backoff.max = '10ms'", "\"10ms\" (file): 10ms is too short; accepted: at least topic.backoff.ini"),
    ("topic.backoff.factor = 0.9", "accepted: 1 to 100"),
    ("topic.backoff.jitter = nan", "accepted: 0 to 1"),
    ("topic.backoff = { kind = 'ladder', steps = [] }", "topic.backoff.steps = [] (file): has 0 steps"),
    ("topic.backoff = { kind = 'ladder', steps = ['x'] }", "\"x\" is not a duration"),
    ("topic.backoff = { kind = 'ladder', max = '1s', steps = ['1s'] }", "topic.backoff.max = \"1s\" (file)"),
    ("log.level = 'loud'", "log.level = \"loud\" (file): is none of the words; accepted: off, error, warn"),
    ("log.format = {}", "log.format = a table (file): is a table; accepted: text, json"),
    ("trace.sample_ratio = 1.5", "accepted: 0 to 1"),
    ("trace.sample_ratio = nan", "accepted: 0 to 1"),
    ("trace.otlp_endpoint = 'grpc://a'", "is neither an http:// nor an https:// URL"),
    ("redis.timout = '1s'", "redis.timout (file): is not known; did you mean redis.timeout?"),
    ("listen = ", "the file (file): TOML parse error at line 1"),
];

#[test]
fn invalid_value_error_names_accepted_values() -> IoResult<()> {
    for (file, expected) in WRONG {
        let errors = load(file, &[], &[])?.err().unwrap_or_default();
        assert!(
            errors.starts_with("1 error in the configuration:\n  ") && errors.contains(expected),
            "{file}: {errors}"
        );
    }
    Ok(())
}

#[test]
fn all_errors_are_reported_with_their_sources() -> IoResult<()> {
    let env = [("DWELL_LEASE_TTL", "1ms"), ("DWELL_TOPIC_PARTITONS", "3"), ("DWELL_PORT", "tcp://10.0.0.1:7373")];
    let errors = load("log.level = 'loud'\ntypo = 1", &env, &[("listen", "nowhere")])?.err().unwrap_or_default();
    let expected = "5 errors in the configuration:
  typo (file): is not known; `dwell config show` lists every key
  DWELL_TOPIC_PARTITONS (environment variable DWELL_TOPIC_PARTITONS): is not known; did you mean DWELL_TOPIC_PARTITIONS?
  listen = \"nowhere\" (flag --flag): is not an address with a port; accepted: ADDRESS:PORT, localhost:PORT \
        or unix:/absolute/path
  lease.ttl = \"1ms\" (environment variable DWELL_LEASE_TTL): is out of range; accepted: 1s to 10m
  log.level = \"loud\" (file): is none of the words; accepted: off, error, warn, info, debug, trace";
    assert_eq!(errors, expected);
    Ok(())
}

const COMMON: [(&str, &str); 46] = [
    ("DWELL_ADMIN_LISTEN", "0.0.0.0:7374"),
    ("DWELL_LISTEN", "unix:/run/dwell.sock"),
    ("DWELL_CONSOLE", "read_only"),
    ("DWELL_SOCKET_MODE", "0660"),
    ("DWELL_HTTP_IDLE_TIMEOUT", "2m"),
    ("DWELL_HTTP_LINGER", "5s"),
    ("DWELL_DATA_DIR", "/var/lib/dwell"),
    ("DWELL_DURABILITY", "journal"),
    ("DWELL_WAL_LIMIT_BYTES", "16777216"),
    ("DWELL_WAL_HAND_OVER", "http://dwell-gateway:7373/"),
    ("DWELL_JOURNAL_WINDOW", "5s"),
    ("DWELL_REDIS_URL", "redis://:s3cret@host"),
    ("DWELL_REDIS_PREFIX", "shop"),
    ("DWELL_REDIS_TIMEOUT", "6s"),
    ("DWELL_REDIS_ALLOW_EVICTION", "true"),
    ("DWELL_REDIS_START_WITHOUT", "true"),
    ("DWELL_REDIS_MIN_REPLICAS", "2"),
    ("DWELL_REDIS_FSYNC", "true"),
    ("DWELL_LEASE_TTL", "9s"),
    ("DWELL_GROUP_DRAIN_TIMEOUT", "0s"),
    ("DWELL_GROUP_PREFETCH_LIMIT_BYTES", "33554432"),
    ("DWELL_TOPIC_PARTITIONS", "16"),
    ("DWELL_TOPIC_VISIBILITY_TIMEOUT", "PT1M"),
    ("DWELL_GROUP_HEARTBEAT", "200ms"),
    ("DWELL_GROUP_IDLE_TIMEOUT", "30s"),
    ("DWELL_TOPIC_MAX_ATTEMPTS", "3"),
    ("DWELL_TOPIC_DEDUP_WINDOW", "1h"),
    ("DWELL_TOPIC_ORDERING", "key"),
    ("DWELL_TOPIC_TTL", "1d"),
    ("DWELL_TOPIC_ON_EXPIRY", "bury"),
    ("DWELL_TOPIC_DEAD_MAX_AGE", "1d"),
    ("DWELL_TOPIC_DEAD_MAX_COUNT", "1000"),
    ("DWELL_TOPIC_AUTO_CREATE", "false"),
    ("DWELL_SQS_ENABLED", "true"),
    ("DWELL_SQS_PUBLIC_URL", "https://sqs.example:8443"),
    ("DWELL_SQS_REGION", "eu-west-1"),
    ("DWELL_SQS_ACCOUNT", "123456789012"),
    ("DWELL_SQS_PARTITIONS", "4"),
    ("DWELL_SQS_MAX_DELAY", "15m"),
    ("DWELL_SQS_STRICT", "true"),
    ("DWELL_SQS_AUTO_CREATE", "true"),
    ("DWELL_SQS_CELERY_ETA", "true"),
    ("DWELL_LOG_LEVEL", "debug"),
    ("DWELL_LOG_FORMAT", "json"),
    ("DWELL_TRACE_OTLP_ENDPOINT", "http://collector:4318"),
    ("DWELL_TRACE_SAMPLE_RATIO", "0.5"),
];

fn to_the_gateway() -> HandOverOptions {
    let (token_file, ca_file, limit) = (None, None, Duration::ZERO);
    HandOverOptions { url: "http://dwell-gateway:7373".to_owned(), token_file, ca_file, limit }
}

fn sqs_with_everything() -> SqsOptions {
    SqsOptions {
        enabled: true,
        public_url: "https://sqs.example:8443".to_owned(),
        region: "eu-west-1".to_owned(),
        account: "123456789012".to_owned(),
        partitions: 4,
        max_delay: secs(900),
        strict: true,
        auto_create: true,
        celery_eta: true,
    }
}

#[test]
fn every_key_can_come_from_the_environment() -> IoResult<()> {
    let ladder = [("DWELL_TOPIC_BACKOFF_KIND", "ladder"), ("DWELL_TOPIC_BACKOFF_STEPS", "1s, 1m")];
    let exponential = [
        ("DWELL_TOPIC_BACKOFF_KIND", "exponential"),
        ("DWELL_TOPIC_BACKOFF_INITIAL", "2s"),
        ("DWELL_TOPIC_BACKOFF_MAX", "4s"),
        ("DWELL_TOPIC_BACKOFF_FACTOR", "3"),
        ("DWELL_TOPIC_BACKOFF_JITTER", "0"),
    ];
    let given: Vec<_> = COMMON.iter().chain(&ladder).chain(&exponential).map(|(name, _)| (*name).to_owned()).collect();
    for key in KEYS.into_iter().filter(|key| !key.ends_with("_file")) {
        assert!(given.contains(&env_name(key)), "{key} is not tested");
    }
    let config = load("", &[&COMMON[..], &ladder[..]].concat(), &[])?;
    let expected = Config {
        listen: Listen::Unix("/run/dwell.sock".into()),
        admin: Listen::parse("0.0.0.0:7374").ok(),
        console: Console::ReadOnly,
        socket_mode: SocketMode::parse("0660").unwrap_or(SocketMode::PRIVATE),
        tls: None,
        http_idle_timeout: secs(120),
        linger: secs(5),
        tokens: Vec::new(),
        data_dir: Some("/var/lib/dwell".into()),
        durability: Durability::Journal,
        wal_limit_bytes: 16 * 1024 * 1024,
        hand_over: Some(to_the_gateway()),
        journal_span: secs(5),
        redis: RedisConfig {
            url: RedisUrl::parse("redis://:s3cret@host").ok(),
            password_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            prefix: "shop".to_owned(),
            timeout: secs(6),
            allow_eviction: true,
            start_without: true,
            confirmation: Confirmation { replicas: 2, fsync: true },
        },
        lease_ttl: secs(9),
        heartbeat: Duration::from_millis(200),
        idle_timeout: secs(30),
        drain_timeout: Duration::ZERO,
        prefetch_limit_bytes: 32 * 1024 * 1024,
        topic_defaults: Settings {
            partitions: std::num::NonZeroU16::MIN.saturating_add(15),
            visibility_timeout: secs(60),
            max_attempts: 3,
            backoff: Backoff::Ladder { steps: vec![LadderStep(secs(1)), LadderStep(secs(60))] },
            dedup_window: secs(3_600),
            ordering: Ordering::Key,
            ttl: secs(86_400),
            on_expiry: crate::model::topic::Expiry::Bury,
            dead_max_age: secs(86_400),
            dead_max_count: 1_000,
            annotations: Annotations::default(),
            dead_letter: None,
        },
        auto_create: false,
        sqs: sqs_with_everything(),
        log: LogConfig { level: LogLevel::Debug, format: LogFormat::Json },
        trace: TraceConfig { ratio: 0.5, ..TraceConfig::to(Endpoint::parse("http://collector:4318").ok()) },
        webhooks: Vec::new(),
    };
    assert_eq!(config, Ok(expected));
    let backoff = load("", &exponential, &[])?.map(|config| config.topic_defaults.backoff);
    assert_eq!(backoff, Ok(Backoff::Exponential { initial: secs(2), max: secs(4), factor: 3.0, jitter: 0.0 }));
    Ok(())
}

#[test]
fn operators_have_another_address_than_clients() -> IoResult<()> {
    let same = load("listen = '[::1]:1'\nadmin.listen = '[::1]:1'", &[], &[])?.err().unwrap_or_default();
    assert!(same.contains("is the address for clients; accepted: another address"), "{same}");
    Ok(())
}

#[test]
fn replica_and_fsync_settings_need_redis() -> IoResult<()> {
    for line in ["redis.min_replicas = 1", "redis.fsync = true\nredis.timeout = '5s'"] {
        let refused = load(&format!("data_dir = '/d'\n{line}"), &[], &[])?.err().unwrap_or_default();
        assert!(refused.contains("needs Redis: the embedded store is one process"), "{refused}");
        let with = load(&format!("data_dir = '/d'\nredis.url = 'redis://host'\n{line}"), &[], &[])?;
        assert!(with.is_ok(), "{with:?}");
    }
    let nobody = load("data_dir = '/d'\nwal.hand_over = 'http://a'", &[], &[])?.err().unwrap_or_default();
    assert!(nobody.contains("the embedded store buffers nothing"), "{nobody}");
    assert!(load("redis.url = 'redis://host'\nredis.min_replicas = 17", &[], &[])?.is_err());
    let hasty = load("data_dir = '/d'\nredis.url = 'redis://host'\nredis.fsync = true", &[], &[])?;
    let said = "1s is too short; accepted: at least 5s beside redis.fsync";
    assert!(hasty.as_ref().is_err_and(|refused| refused.contains(said)), "{hasty:?}");
    Ok(())
}

#[test]
fn redis_url_file_follows_the_same_precedence() -> IoResult<()> {
    let (dir, _) = sources("", &[], &[])?;
    let secret = dir.path().join("url");
    std::fs::write(&secret, "redis://:s3cret@from-file\n")?;
    let file = format!("redis.url_file = {:?}", secret.display().to_string());
    let url = |file: &str, env: &[(&str, &str)]| {
        load(file, env, &[]).map(|config| config.map(|c| c.redis.url.map(|url| url.secret().expose().to_owned())))
    };
    assert_eq!(url(&file, &[])?, Ok(Some("redis://:s3cret@from-file".to_owned())));
    assert_eq!(url(&file, &[("DWELL_REDIS_URL", "redis://env")])?, Ok(Some("redis://env".to_owned())));
    let both = url(&format!("{file}\nredis.url = 'redis://:hidden@host'"), &[])?.err().unwrap_or_default();
    assert!(both.contains("is given beside redis.url") && !both.contains("hidden"), "{both}");
    std::fs::write(&secret, "s3cret")?;
    let wrong = url(&file, &[])?.err().unwrap_or_default();
    assert!(wrong.contains("what it holds is not a URL") && !wrong.contains("s3cret"), "{wrong}");
    Ok(())
}

#[test]
fn no_error_quotes_a_password() -> IoResult<()> {
    for file in [
        "redis.url = 'redis://:s3cret@host",
        "redis.url = redis://:s3cret@host",
        "[redis]\nurl = \"redis://:s3cret@host\" s3cret",
        "redis.url = ['redis://:s3cret@host']",
        "redis.url = 's3cret'",
        "redis.url = { s3cret = 1 }",
        "redis.url = 'http://app:s3cret@host'",
        "webhook = [{ topic = 't', url = 'http://app:s3cret@host' }]",
        "trace.otlp_endpoint = 'http://app:s3cret@host'",
        "webhook = [{ topic = 't', url = ['http://app:s3cret@host'] }]",
    ] {
        let errors = load(file, &[], &[])?.err().unwrap_or_default();
        assert!(errors.starts_with("1 error") && !errors.contains("s3cret"), "{file}: {errors}");
    }
    Ok(())
}

#[test]
fn passwords_and_certificates_come_from_files() -> IoResult<()> {
    let (dir, _) = sources("", &[], &[])?;
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("password"), "s3cret\n")?;
    std::fs::write(path("pem"), "-----BEGIN")?;
    std::fs::write(path("empty"), " \n")?;
    let redis = |url: &str, keys: &[(&str, &str)]| {
        let key = |(key, file): &(&str, &str)| format!("redis.{key} = {:?}\n", path(file));
        let file = format!("redis.url = '{url}'\n{}", keys.iter().map(key).collect::<String>());
        load(&file, &[], &[]).map(|config| config.map(|config| config.redis))
    };
    let tls = [("password_file", "password"), ("ca_file", "pem"), ("cert_file", "pem"), ("key_file", "pem")];
    let given = redis("rediss://app@host", &tls)?;
    assert!(!format!("{given:?}").contains("s3cret"), "{given:?}");
    let options = given.ok().and_then(|redis| redis.options());
    let read = options.map(|options| (options.password, options.ca.is_some(), options.identity.is_some()));
    assert_eq!(read, Some((Some("s3cret".into()), true, true)));
    for (url, key, file, says) in [
        ("redis://a:b@host", "password_file", "password", "is given beside a password in the URL"),
        ("redis+unix:///s?pass=b", "password_file", "password", "is given beside a password in the URL"),
        ("redis://host", "ca_file", "pem", "is for TLS, and the URL is not"),
        ("rediss://host", "cert_file", "pem", "is given without the other one"),
        ("rediss://host", "key_file", "pem", "is given without the other one"),
        ("rediss://host", "ca_file", "empty", "is empty"),
        ("rediss://host", "ca_file", "missing", "cannot be read"),
    ] {
        let errors = redis(url, &[(key, file)])?.err().unwrap_or_default();
        assert!(errors.starts_with("1 error") && errors.contains(says), "{errors}");
    }
    Ok(())
}

#[test]
fn conflicting_values_are_refused() -> IoResult<()> {
    let file = "lease.ttl = '2s'\ngroup.heartbeat = '500ms'\nredis.timeout = '2s'\n";
    assert!(load(file, &[], &[])?.is_ok(), "without Redis its timeout does not matter");
    let errors = load(&format!("{file}redis.url = 'redis://host'"), &[], &[])?.err().unwrap_or_default();
    assert!(errors.contains("redis.timeout = \"2s\" (file): 2s is too long; accepted: less than lease.ttl"));
    Ok(())
}

#[test]
fn default_data_directory_follows_xdg() {
    let data_dir = |env: &[(&str, &str)]| {
        let env = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Config::load(&Sources { env, ..Sources::default() }).map(|config| config.data_dir)
    };
    let home = ("HOME", "/home/ada");
    assert_eq!(data_dir(&[home, ("XDG_STATE_HOME", "/state")]), Ok(Some("/state/dwell".into())));
    assert_eq!(data_dir(&[home, ("XDG_STATE_HOME", "relative")]), Ok(Some("/home/ada/.local/state/dwell".into())));
    assert!(data_dir(&[("DWELL_REDIS_URL", "redis://host")]).is_err());
    assert!(data_dir(&[]).is_err_and(|errors| errors.to_string().contains("neither XDG_STATE_HOME nor HOME")));
}

#[test]
fn shown_configuration_masks_secrets_and_round_trips() -> IoResult<()> {
    let env = [("DWELL_REDIS_URL", "redis://app:s3cret@host")];
    let (_dir, given) = sources("[redis]\nprefix = 'shop'", &env, &[("log.level", "warn")])?;
    let shown = settings(&given).map(|settings| show(&settings)).unwrap_or_default();
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "url = \"redis://app:***@host\" # environment variable DWELL_REDIS_URL",
        "level = \"warn\" # flag --flag",
        "timeout = \"1s\" # default; DWELL_REDIS_TIMEOUT",
        "# url_file =",
    ] {
        assert!(words.contains(line), "{line}\n{shown}");
    }
    let (again, first) = (load(&shown, &[], &[])?, Config::load(&given));
    let without_url = |mut config: Config| {
        config.redis.url = None;
        config
    };
    assert_eq!(again.map(without_url).ok(), first.map(without_url).ok());
    Ok(())
}

#[test]
fn annotated_example_has_every_key_with_its_default() -> IoResult<()> {
    let example = include_str!("../../../deploy/dwell.toml");
    assert_eq!(load(example, &[], &[])?, load("", &[], &[])?);
    // The same with every comment that is a key switched on, but for the secret that is given twice then.
    let is_key = |line: &str| {
        let key = line.starts_with("# ") && line.contains(" = ") && !line.contains("kind =");
        key || ["# [[webhook]]", "# [[auth.token]]"].contains(&line)
    };
    let token = tempfile::NamedTempFile::new()?;
    std::fs::write(token.path(), "0123456789abcdef")?;
    let path = token.path().to_string_lossy();
    let on = |line: &str| {
        let on = if is_key(line) { &line[2..] } else { line };
        on.replace("/run/secrets/dwell-shop", &path)
    };
    let all: Vec<String> = example.lines().map(on).filter(|line| !line.contains("_file = ")).collect();
    let errors = load(&all.join("\n"), &[], &[])?.err().unwrap_or_default();
    assert!(errors.starts_with("1 error") && errors.contains("topic.backoff.steps"), "{errors}");
    let mut section = String::new();
    let redis = ["url", "password", "ca", "cert", "key"].map(|name| format!("redis.{name}_file"));
    let mut named = Vec::from(redis);
    named.extend(["cert", "key", "client_ca"].map(|name| format!("tls.{name}_file")));
    named.extend(["webhook.secret_file", "webhook.ca_file", "trace.otlp_ca_file"].map(str::to_owned));
    named.extend(["token", "ca"].map(|name| format!("wal.hand_over_{name}_file")));
    for line in &all {
        if let Some(name) = line.strip_prefix('[') {
            section = format!("{}.", name.trim_matches(['[', ']']));
        } else if let Some((name, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            named.push(format!("{section}{name}"));
        }
    }
    named.sort();
    let webhook = WEBHOOK_KEYS.map(|name| format!("webhook.{name}"));
    let token = TOKEN_KEYS.map(|name| format!("auth.token.{name}"));
    let mut keys: Vec<_> = KEYS.map(str::to_owned).into_iter().chain(webhook).chain(token).collect();
    keys.sort();
    assert_eq!(named, keys);
    Ok(())
}

fn table(dir: &tempfile::TempDir, name: &str, token: &str, scopes: &str) -> IoResult<String> {
    let path = dir.path().join(name);
    std::fs::write(&path, token)?;
    Ok(format!("[[auth.token]]\nname = '{name}'\nfile = '{}'\nscopes = {scopes}\n", path.display()))
}

#[test]
fn tokens_allow_non_loopback_listeners() -> IoResult<()> {
    let dir = tempfile::tempdir()?;
    let shop = table(&dir, "shop", "s3cret-0123456789\n", "['produce', 'consume']")?;
    let ops = table(&dir, "ops", "s3cret-9876543210", "['admin']")?;
    let config = load(&format!("listen = '0.0.0.0:7373'\n{shop}{ops}"), &[], &[])?;
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
    let tokens = config.map(|config| config.tokens).unwrap_or_default();
    let read: Vec<_> = tokens.iter().map(|token| (&*token.name, token.scopes)).collect();
    let both = Scopes::of(&[Scope::Produce, Scope::Consume]);
    assert_eq!(read, [("shop", both), ("ops", Scopes::of(&[Scope::Admin]))]);
    let (_dir, given) = sources(&shop, &[], &[])?;
    let shown = settings(&given).map(|settings| show(&settings)).unwrap_or_default();
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("[[auth.token]] name = \"shop\" # file /"), "{shown}");
    assert!(shown.contains("scopes = [\"produce\", \"consume\"]") && !shown.contains("s3cret"), "{shown}");
    assert_eq!(load(&shown, &[], &[])?.map(|config| config.tokens), load(&shop, &[], &[])?.map(|config| config.tokens));
    Ok(())
}

#[test]
fn all_token_errors_are_reported_without_secrets() -> IoResult<()> {
    let dir = tempfile::tempdir()?;
    let good = table(&dir, "good", "s3cret-0123456789", "['produce']")?;
    let same = table(&dir, "same", "s3cret-0123456789", "['admin']")?;
    let short = table(&dir, "short", "s3cret", "[]")?;
    let empty = table(&dir, "empty", "\n", "'admin'")?;
    let words = table(&dir, "words", "s3cret s3cret s3cret", "['produce', 'Admin']")?;
    let wrong = "[[auth.token]]\nname = 'a b'\nfile = 's3cret-0123456789'\ntoken = 's3cret-0123456789'\n";
    let local = "[[auth.token]]\nname = 'local'\nfile = '/does/not/exist'\nscopes = ['admin']\n";
    // An address that needs tokens is not refused on top of it.
    let file = ["listen = '0.0.0.0:7373'\n", &good, &good, &same, &short, &empty, &words, wrong, local].concat();
    let errors = load(&file, &[("DWELL_AUTH_TOKEN", "s3cret")], &[])?.err().unwrap_or_default();
    assert!(errors.starts_with("15 errors in the configuration:"), "{errors}");
    for said in [
        "auth.token[6].token (file): is not known",
        "DWELL_AUTH_TOKEN (environment variable DWELL_AUTH_TOKEN): is not known",
        "auth.token[1].name = \"good\" (file): is the name of another token",
        "auth.token[2].file = \"/same\" (file): holds the token of \"good\"",
        "auth.token[3].file = \"/short\" (file): holds a token of 6 characters; 16 to 1024 are needed",
        "auth.token[3].scopes = [] (file): is empty",
        "auth.token[4].file = \"/empty\" (file): is empty",
        "auth.token[4].scopes = \"admin\" (file): is no list; accepted: a list of \"view\", \"produce\", \"consume\"",
        "auth.token[5].file = \"/words\" (file): holds something that is no visible ASCII",
        "auth.token[5].scopes = [\"produce\", \"Admin\"] (file): has another word",
        "auth.token[6].name = \"a b\" (file): has another character",
        "auth.token[6].file = \"***\" (file): cannot be read",
        "auth.token[6].scopes (file): is missing",
        "auth.token[7].name = \"local\" (file): is the name of whoever needs no token",
        "auth.token[7].file = \"/does/not/exist\" (file): cannot be read",
    ] {
        assert!(
            errors.replace(&*dir.path().to_string_lossy(), "").contains(&format!("\n  {said}")),
            "{said}\n{errors}"
        );
    }
    assert!(!errors.contains("s3cret"), "{errors}");
    let errors = |file: &str| load(file, &[], &[]).map(|loaded| loaded.err().unwrap_or_default());
    assert!(errors("[auth.token]\nname = 'a'")?.contains("auth.token (file): is one of many: write [[auth"));
    assert!(errors("auth = 'a'")?.contains("auth (file): is a section, not a key"));
    assert!(errors("auth.tokens = []")?.contains("auth.tokens (file): is not known"));
    assert!(errors("listen = '0.0.0.0:1'")?.contains("add an [[auth.token]]"));
    let many: String = (0..=TOKENS_MAX)
        .map(|n| table(&dir, &format!("t{n}"), &format!("s3cret-0123456789-{n}"), "['produce']"))
        .collect::<IoResult<Vec<_>>>()?
        .concat();
    assert!(
        errors(&many)?.starts_with("1 error in the configuration:\n  auth.token[100] (default): is one of 101 tokens")
    );
    Ok(())
}

const WEBHOOK: &str = "[[webhook]]\ntopic = 'orders'\nurl = 'http://localhost:8080/orders'\n";

#[test]
fn webhooks_are_read_with_their_defaults() -> IoResult<()> {
    let (dir, _) = sources("", &[], &[])?;
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "s3cret\n")?;
    let second = format!(
        "[[webhook]]\ntopic = 'mails'\ngroup = 'audit'\nurl = 'http://10.0.0.1/'\nconcurrency = 256\ntimeout = '1h'\n\
         secret_file = '{}'\nallow_remote = true\nenabled = false\n",
        secret.display()
    );
    let webhooks = load(&format!("{WEBHOOK}{second}"), &[], &[])?.map(|config| config.webhooks).unwrap_or_default();
    assert_eq!(webhooks.len(), 2);
    let (first, second) = (&webhooks[0], &webhooks[1]);
    assert_eq!((first.topic.as_str(), first.group.as_str(), first.enabled), ("orders", "default", true));
    assert_eq!((first.concurrency, first.timeout, &first.secret), (8, secs(10), &None));
    assert_eq!(first.target.to_string(), "http://localhost:8080/orders");
    assert_eq!((second.group.as_str(), second.concurrency, second.enabled), ("audit", 256, false));
    assert_eq!((second.timeout, &second.secret), (secs(3_600), &Some(Secret::new("s3cret"))));
    assert!(second.target.allows_remote() && !format!("{webhooks:?}").contains("s3cret"));
    Ok(())
}

#[test]
fn all_webhook_errors_are_reported_at_once() -> IoResult<()> {
    let file = "[[webhook]]\nurl = 'http://u:s3cret@localhost/'\nconcurrency = 257\ntimeout = '99ms'\ntypo = 1\n\
                [[webhook]]\ntopic = 'a b'\ngroup = '..'\nurl = 'http://169.254.169.254/'\nsecret_file = '/does/not/exist'\n\
                allow_remot = true\nenabled = 'yes'\n";
    let errors = load(file, &[("DWELL_WEBHOOK_URL", "http://localhost/")], &[])?.err().unwrap_or_default();
    let expected = "12 errors in the configuration:
  webhook[0].typo (file): is not known; `dwell config show` lists every key
  webhook[1].allow_remot (file): is not known; did you mean allow_remote?
  DWELL_WEBHOOK_URL (environment variable DWELL_WEBHOOK_URL): is not known; `dwell config show` lists every key
  webhook[0].topic (file): is missing; accepted: 1 to 100 of A-Z a-z 0-9 . _ -
  webhook[0].url = \"http://u:***@localhost/\" (file): has a user or a password; sign with a secret_file";
    assert!(errors.starts_with(expected), "{errors}");
    for said in [
        "\n  webhook[0].concurrency = \"257\" (file): is out of range; accepted: 1 to 256",
        "\n  webhook[0].timeout = \"99ms\" (file): is out of range; accepted: 100ms to 1h",
        "\n  webhook[1].topic = \"a b\" (file): a name has only letters",
        "\n  webhook[1].group = \"..\" (file): a name is not only dots",
        "\n  webhook[1].url = \"http://169.254.169.254/\" (file): 169.254.169.254 is not on this machine",
        "\n  webhook[1].secret_file = \"/does/not/exist\" (file): cannot be read",
        "\n  webhook[1].enabled = \"yes\" (file): is none of the words; accepted: true, false",
    ] {
        assert!(errors.contains(said), "{said}\n{errors}");
    }
    let errors = |file: &str| load(file, &[], &[]).map(|loaded| loaded.err().unwrap_or_default());
    assert!(errors("[webhook]\ntopic = 'orders'")?.contains("webhook (file): is one of many: write [[web"));
    assert!(errors("webhook = ['http://localhost']")?.contains("webhook[0] (file): is no table"));
    assert_eq!(errors(&WEBHOOK.repeat(WEBHOOKS_MAX))?, "");
    assert!(errors(&WEBHOOK.repeat(WEBHOOKS_MAX + 1))?.contains("is one of 101 webhooks; accepted: at"));
    Ok(())
}

#[test]
fn shown_webhooks_have_origins_and_round_trip() -> IoResult<()> {
    let (_dir, given) = sources(WEBHOOK, &[], &[])?;
    let shown = settings(&given).map(|settings| show(&settings)).unwrap_or_default();
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in ["[[webhook]] topic = \"orders\" # file /", "concurrency = 8 # default", "# secret_file = # default"] {
        assert!(words.contains(line), "{line}\n{shown}");
    }
    assert_eq!(load(&shown, &[], &[])?.map(|config| config.webhooks), load(WEBHOOK, &[], &[])?.map(|c| c.webhooks));
    Ok(())
}
