//! The web console at `/ui`: embedded pages that use only the public API. Pages need no token; their requests do.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;

use super::App;
use super::problem::{Class, Problem};
use crate::model::error::Kind;

/// The mode of the console. Tokens decide about rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Console {
    Full,
    ReadOnly,
    Off,
}

impl Console {
    pub const ALL: &[Console] = &[Console::Full, Console::ReadOnly, Console::Off];

    pub fn name(self) -> &'static str {
        match self {
            Console::Full => "full",
            Console::ReadOnly => "read_only",
            Console::Off => "off",
        }
    }
}

const PAGE: &str = include_str!("console/index.html");

/// Nothing from other sites, no inline scripts, and no markup made of text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// Pages are revalidated each time: they must match the binary.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

macro_rules! files {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!(concat!("console/", $name)))),*] };
}

/// The scripts are listed bottom-up: each imports only from those above it.
pub const FILES: [(&str, &str); 40] = files! {
    "icon.svg", "console.css", "dom.js", "format.js", "window.js", "objects.js", "command.js", "api.js", "traffic.js",
    "place.js", "notice.js", "parts.js", "age.js", "tip.js", "payload.js", "refresh.js", "dialog.js", "keys.js", "token.js", "charts.js", "frame.js", "manage.js", "forecast.js",
    "attention.js", "bulk.js", "groups.js", "group_keys.js", "overview.js", "topic.js", "selection.js", "messages.js", "message.js", "find.js", "push.js",
    "errors.js", "dead.js", "cron.js", "fleet.js", "view.js", "main.js",
};

pub(crate) fn routes(console: Console) -> Router<App> {
    if console == Console::Off {
        return Router::new();
    }
    let to_console = || async { Redirect::temporary("/ui") };
    Router::new()
        .route("/", get(to_console))
        .route("/ui", get(page))
        .route("/ui/", get(page))
        .route("/ui/{file}", get(file))
}

async fn page(State(app): State<App>) -> Response {
    let page = PAGE.replace("{console}", app.console.name()).replace("{version}", env!("CARGO_PKG_VERSION"));
    (HEADERS, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

async fn file(Path(wanted): Path<String>) -> Response {
    let found = FILES.iter().find(|(name, _)| *name == wanted);
    let kind = match wanted.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => return missing(&wanted),
    };
    match found {
        Some((_, text)) => (HEADERS, [(header::CONTENT_TYPE, kind)], *text).into_response(),
        None => missing(&wanted),
    }
}

fn missing(file: &str) -> Response {
    let problem = Problem::new(Class::Verb(Kind::NotFound), format!("the console has no file {file:?}"));
    (HEADERS, problem).into_response()
}
