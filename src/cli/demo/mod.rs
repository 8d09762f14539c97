//! stub
use super::failure::Failure;
/// Stub
#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {}
pub(super) async fn run(_args: &DemoArgs) -> Result<(), Failure> {
    Ok(())
}
