//! Writing the data of etcd anew, without the space that is free. A member that does so serves nobody meanwhile, so clients
//! are sent elsewhere first, where there is somebody.

use std::{sync::Arc, time::Duration};

use super::serving::Health;
use crate::{
    api::{Defragment, Defragmented, EtcdMember},
    etcd::{Client, Dial, Result},
    layout,
    size::Size,
};

/// How long it may take. The operator gives up sooner, and looks again.
const PATIENCE: Duration = Duration::from_secs(1800);
/// So long kubelet and kube-proxy need to send clients elsewhere: three probes, and a little.
const DRAINED_AFTER: Duration = Duration::from_secs(5);

/// What is to be done, if it was asked for and has not been done.
pub(super) fn asked(record: &EtcdMember) -> Option<&Defragment> {
    let done = record.status.as_ref().and_then(|status| status.defragmented.as_ref());
    let is_new = |wish: &&Defragment| done.is_none_or(|done| done.asked != wish.asked);
    record.spec.defragment.as_ref().filter(|wish| !wish.given_up).filter(is_new)
}

/// Does it; what came of it. Once it has begun nobody can stop it: etcd goes on whether or not it is waited for.
pub(super) async fn defragment(
    wish: &Defragment,
    health: &Arc<Health>,
    dialer: Arc<dyn Dial>,
) -> Defragmented {
    if wish.drain {
        health.send_clients_elsewhere(true);
        tokio::time::sleep(DRAINED_AFTER).await;
    }
    let outcome = write_anew(dialer).await;
    health.send_clients_elsewhere(false);
    let (before, after, problem) = match outcome {
        Ok((before, after)) => (before, after, String::new()),
        Err(error) => (Size::default(), Size::default(), error.to_string()),
    };
    tracing::info!(%before, %after, problem, "the data was to be written anew");
    Defragmented { asked: wish.asked, before, after, problem }
}

async fn write_anew(dialer: Arc<dyn Dial>) -> Result<(Size, Size)> {
    let address = format!("127.0.0.1:{}", layout::CLIENT_PORT);
    let client = Client::connect(dialer, &address, PATIENCE).await?;
    let before = Size::said(client.status().await?.db_size);
    client.defragment().await?;
    Ok((before, Size::said(client.status().await?.db_size)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::nobody_asked(json!({}), json!({}), false)]
    #[case::once(json!({"asked": "2026-01-01T00:00:00Z"}), json!({}), true)]
    #[case::once_only(
        json!({"asked": "2026-01-01T00:00:00Z"}),
        json!({"asked": "2026-01-01T00:00:00Z", "before": 2, "after": 1}),
        false
    )]
    #[case::again(
        json!({"asked": "2026-01-02T00:00:00Z"}),
        json!({"asked": "2026-01-01T00:00:00Z", "before": 2, "after": 1}),
        true
    )]
    #[case::not_after_it_was_given_up(json!({"asked": "2026-01-01T00:00:00Z", "givenUp": true}), json!({}), false)]
    fn it_is_done_once_for_each_time_that_it_was_asked_for(
        #[case] wish: Value,
        #[case] done: Value,
        #[case] is_to_be_done: bool,
    ) {
        let field = |name: &str, value: Value| match value == json!({}) {
            true => json!({}),
            false => json!({name: value}),
        };
        let mut spec = json!({"cluster": "a", "ordinal": 0, "intent": "Existing"});
        wheelhouse::overrides::merge(&mut spec, &field("defragment", wish));
        let mut record = EtcdMember::new("a-0", serde_json::from_value(spec).unwrap());
        record.status = Some(serde_json::from_value(field("defragmented", done)).unwrap());
        assert_eq!(asked(&record).is_some(), is_to_be_done);
    }
}
