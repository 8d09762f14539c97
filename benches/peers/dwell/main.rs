//! Measures dwell: `peer-dwell http|rust|library push|drain|lateness|burst|idle`.

mod client;
mod http;
#[cfg(feature = "library")]
mod library;
#[path = "../measures.rs"]
mod measures;

use std::sync::Arc;

use measures::Result;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mode, measure) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    match mode.as_str() {
        "http" => measures::run(Arc::new(http::Http::open().await?), &measure).await,
        "rust" => measures::run(Arc::new(client::Application::open().await?), &measure).await,
        #[cfg(feature = "library")]
        "library" => measures::run(Arc::new(library::Library::open().await?), &measure).await,
        _ => Err(format!("no mode {mode:?}").into()),
    }
}
