//! Calls beside those of a producer and a worker: deliveries that are reserved or streamed, and a broker itself. And what is sent again.

mod lab;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dwell_client::testing::Clock;
use dwell_client::{
    Ack, Client, Error, Extend, Nack, Nacked, NewGroup, NewMessage, Release, Reserve, Settled, StreamOptions,
    Timestamp, TopicSettings,
};
use lab::{Outcome, broker};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn statuses(verdicts: &[Settled]) -> Vec<&str> {
    verdicts.iter().map(|verdict| &*verdict.status).collect()
}

async fn receipts(client: &Client, max: usize) -> Result<Vec<String>, Error> {
    let reserve = Reserve::up_to(max).wait(Duration::from_secs(5)).visibility_timeout(Duration::from_secs(60));
    let reserved = client.reserve("orders", "default", reserve).await?;
    assert_eq!(reserved.visibility_timeout_ms, Duration::from_secs(60));
    Ok(reserved.deliveries.into_iter().map(|delivery| delivery.receipt).collect())
}

#[tokio::test]
async fn each_receipt_has_a_verdict() -> Outcome {
    let broker = broker().await?;
    let client = broker.client();
    client.push_many("orders", ["a", "b", "c", "d"].map(|text| NewMessage::text(text).key("k"))).await?;
    let taken = receipts(client, 4).await?;
    let [a, b, c, d] = &taken[..] else { return Err(format!("{taken:?}").into()) };
    let extended = client.extend("orders", "default", Extend::of([a], Duration::from_secs(90))).await?;
    assert_eq!((statuses(&extended), extended[0].deadline.is_some()), (vec!["extended"], true));
    assert_eq!(statuses(&client.ack("orders", "default", Ack::of([a, "nonsense"])).await?), ["acked", "unknown"]);
    // A single receipt that does not count is an answer, too.
    let refused = client.ack("orders", "default", Ack::of([b.to_uppercase()])).await?;
    assert!(!refused[0].is_applied(), "{refused:?}");
    assert_eq!(statuses(&client.release("orders", "default", Release::of([b])).await?), ["released"]);
    let nack = Nack::of([Nacked::from(&**c).bury().reason("no such order"), Nacked::from(&**d)]);
    assert_eq!(statuses(&client.nack("orders", "default", nack).await?), ["buried", "nacked"]);
    let again = receipts(client, 4).await?;
    assert_eq!(statuses(&client.ack("orders", "default", Ack::of(again)).await?), ["acked"]);
    Ok(())
}

#[tokio::test]
async fn a_stream_brings_deliveries_until_it_is_dropped() -> Outcome {
    let broker = broker().await?;
    let client = broker.client();
    let options = StreamOptions::default().max_in_flight(2).visibility_timeout(Duration::from_secs(600));
    // The topic does not exist yet.
    let mut stream = client.stream("orders", "default", options).await?;
    client.push_many("orders", ["a", "b", "c"].map(|text| NewMessage::text(text).key("k"))).await?;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let delivery = stream.next().await.ok_or("it ended")??;
        client.ack("orders", "default", Ack::of([delivery.receipt])).await?;
        seen.extend(delivery.contents.payload);
    }
    seen.sort();
    assert_eq!(seen, ["a", "b", "c"]);
    client.push("orders", NewMessage::text("d")).await?;
    let unsettled = stream.next().await.ok_or("it ended")??;
    drop(stream);
    let reserve = Reserve::up_to(1).wait(Duration::from_secs(20));
    let again = client.reserve("orders", "default", reserve).await?;
    assert_eq!(again.deliveries[0].id, unsettled.id);
    let refused = client.stream("orders", "nobody", StreamOptions::default()).await;
    assert!(refused.is_err_and(|error| error.is("not-found")));
    Ok(())
}

#[tokio::test]
async fn a_broker_says_how_it_is() -> Outcome {
    let broker = broker().await?;
    let client = broker.client();
    assert_eq!(client.live().await?.status, "ok");
    assert_eq!((&*client.ready().await?.status, client.brokers().await?.len()), ("ready", 1));
    assert!(client.metrics().await?.contains("dwell_build_info{"));
    assert!(client.reload().await?.changed.is_empty());
    let clock = Clock::of(client);
    let tomorrow = clock.now().await?.as_ms() + 86_400_000;
    assert!(clock.advance_to(Timestamp::from_ms(tomorrow)).await?.now.as_ms() >= tomorrow);
    assert!(!client.drain().await?.member.is_empty());
    while client.live().await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_put_says_whether_it_created_something() -> Outcome {
    let broker = broker().await?;
    let client = broker.client();
    let none = client.update_topic("orders", TopicSettings::default().max_attempts(3)).await;
    assert!(none.is_err_and(|error| error.is("precondition-failed")));
    for created in [true, false] {
        assert_eq!(client.create_topic("orders", TopicSettings::default()).await?.created, created);
        assert_eq!(client.put_group("orders", "audit", NewGroup::default().rate(2.5)).await?.created, created);
    }
    let updated = client.update_topic("orders", TopicSettings::default().max_attempts(3)).await?;
    assert_eq!(updated.settings.max_attempts, Some(3));
    Ok(())
}

/// Answers the first request of each connection, reads the second, and closes.
async fn closing(listener: TcpListener, requests: Arc<AtomicUsize>) {
    async fn serve(connection: &mut TcpStream, requests: &AtomicUsize) -> std::io::Result<()> {
        for n in 0..2 {
            if connection.read(&mut [0; 4_096]).await? == 0 {
                return Ok(());
            }
            requests.fetch_add(1, Ordering::Relaxed);
            if n == 0 {
                let body = r#"{"deliveries":[],"visibility_timeout_ms":30000}"#;
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                connection.write_all(format!("{head}{body}").as_bytes()).await?;
            }
        }
        Ok(())
    }
    while let Ok((mut connection, _)) = listener.accept().await {
        let requests = requests.clone();
        tokio::spawn(async move { serve(&mut connection, &requests).await });
    }
}

/// A request that may have arrived is sent again only by a client that repeats requests.
#[tokio::test]
async fn a_request_on_a_connection_that_closes_is_repeated_only_if_it_may_be() -> Outcome {
    for (retry_for, sent, is_answered) in [(Duration::ZERO, 2, false), (Duration::from_secs(5), 3, true)] {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let client = Client::builder().server(format!("http://{}", listener.local_addr()?)).retry_for(retry_for);
        let (client, requests) = (client.build()?, Arc::new(AtomicUsize::default()));
        let serving = tokio::spawn(closing(listener, requests.clone()));
        client.reserve("orders", "default", Reserve::up_to(1)).await?;
        match client.reserve("orders", "default", Reserve::up_to(1)).await {
            Err(Error::Unavailable(lost)) => assert!(lost.repeated && !is_answered, "{lost}"),
            answered => assert_eq!(answered.is_ok(), is_answered),
        }
        assert_eq!(requests.load(Ordering::Relaxed), sent);
        serving.abort();
    }
    Ok(())
}

#[tokio::test]
async fn a_set_up_that_cannot_work_is_refused() -> Outcome {
    assert!(matches!(Client::builder().user_agent("a\nb").build(), Err(Error::Setup(_))));
    let client = Client::builder().server("http://192.0.2.1:1").retry_for(Duration::ZERO);
    let client = client.connect_timeout(Duration::from_millis(1)).build()?;
    let Err(Error::Unavailable(unavailable)) = client.live().await else { return Err("there was an answer".into()) };
    assert!(!unavailable.repeated, "{unavailable}");
    Ok(())
}
