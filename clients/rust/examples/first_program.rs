use dwell_client::{Client, Delivery, Error, NewMessage, Worker, terminated};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::connect("http://127.0.0.1:7373")?;
    client.push("orders", NewMessage::text("close order 4711").delay(Duration::from_secs(2))).await?;
    let worker = Worker::new(&client, "orders")?;
    let handler = |delivery: Delivery| async move {
        println!("{}", delivery.text());
        Ok(())
    };
    worker.run_until(terminated(), handler).await
}
