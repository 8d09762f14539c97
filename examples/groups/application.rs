//! An application that a webhook posts to, as a process of its own: it prints the id of each message and answers 200.

use std::io::Write;
use std::net::Ipv4Addr;
use std::process::ExitCode;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;

/// Serves on the port that the command line names, until it is killed.
pub(crate) fn main() -> ExitCode {
    let port = std::env::args().nth(2).and_then(|port| port.parse().ok());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Some(port), Ok(runtime)) = (port, runtime) else { return ExitCode::FAILURE };
    match runtime.block_on(serve(port)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the application: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(port: u16) -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    axum::serve(listener, Router::new().fallback(hear)).await
}

/// What is printed is done: it is in the pipe before the answer goes out.
async fn hear(headers: HeaderMap) -> StatusCode {
    let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    match writeln!(std::io::stdout().lock(), "{} {}", word("dwell-id"), word("dwell-attempt")) {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
