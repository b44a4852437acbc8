//! What happens to a PostgresCluster is in the log, in the workshop's words.

use std::{
    io,
    sync::{Arc, Mutex},
};

use kube::api::DeleteParams;
use serde_json::json;
use wheelhouse_testing::{Place, eventually};
use workshop_2_operator::{manager, postgres_cluster::api::PostgresCluster};

/// A log that can be read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// What was said of PostgresClusters, in its order.
    fn events(&self) -> Vec<String> {
        let log = String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned();
        let event =
            |line: &str| line.split_once("Postgres cluster event: ").map(|(_, event)| event.to_owned());
        log.lines().filter_map(event).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, words: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(words);
        Ok(words.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn added_modified_and_deleted_are_said_once_each() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    let place = Place::with("told", &manager()).await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    let name = "example-postgresql-cluster";
    let mut told = Vec::new();

    place.apply::<PostgresCluster>(name, json!({"size": 3, "version": "9.6.3"})).await.unwrap();
    told.push("ADDED, size 3, version 9.6.3");
    eventually("it is said that it is new", async || log.events() == told).await;
    eventually("that is remembered", async || {
        place.api::<PostgresCluster>().get(name).await.unwrap().status.is_some()
    })
    .await;

    place.apply::<PostgresCluster>(name, json!({"size": 5, "version": "9.6.3"})).await.unwrap();
    told.push("MODIFIED, size 5, version 9.6.3");
    eventually("it is said that it changed", async || log.events() == told).await;
    eventually("that is remembered", async || {
        let kept = place.api::<PostgresCluster>().get(name).await.unwrap();
        kept.status.unwrap_or_default().observed_generation == kept.metadata.generation
    })
    .await;

    // Who starts again has nothing to say.
    operating.stop().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    place.api::<PostgresCluster>().delete(name, &DeleteParams::default()).await.unwrap();
    told.push("DELETED, size 5, version 9.6.3");
    eventually("it is said that it goes", async || log.events() == told).await;
    eventually("it is gone", async || place.api::<PostgresCluster>().get_opt(name).await.unwrap().is_none())
        .await;
    operating.stop().await.unwrap();
}
