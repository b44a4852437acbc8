//! Changes of who the members are, carried out by a real etcd: each takes effect once, and none costs the quorum.

use std::sync::Arc;

use wheelhouse::Category;
use wheelhouse_testing::eventually;

use super::Etcd;
use crate::{
    act::What,
    asking::{Listed, first_with_quorum},
    etcd::{Confirmed, Dial, Id, Tcp},
};

impl Etcd {
    fn peer_url(&self, number: usize) -> String {
        format!("http://{}", self.peers[number])
    }

    async fn try_listed(&self) -> Result<Vec<Listed>, String> {
        let dialer: Arc<dyn Dial> = Arc::new(Tcp);
        first_with_quorum(&dialer, &self.addresses, None, Confirmed::ByTheList)
            .await
            .map(|(listed, _)| listed)
    }

    async fn listed(&self) -> Vec<Listed> {
        self.try_listed().await.unwrap()
    }
}

fn conflict(outcome: wheelhouse::Result<()>) -> String {
    let error = outcome.unwrap_err();
    assert_eq!(error.category(), Category::Conflict, "{error}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_joins_as_a_learner_and_is_added_and_removed_once_however_often_that_is_asked_for() {
    let etcd = Etcd::start(&[]).await;
    let new = || "http://127.0.0.1:1".to_owned();
    let is_new = |listed: &&Listed| listed.peer_urls == [new()];
    // Nobody joins before all have been connected for five seconds.
    eventually("etcd lists it", async || {
        etcd.change(What::AddLearner { peer_url: new() }).await.unwrap();
        etcd.listed().await.iter().any(|listed| is_new(&listed))
    })
    .await;
    etcd.change(What::AddLearner { peer_url: new() }).await.unwrap();
    let listed = etcd.listed().await;
    let added: Vec<_> = listed.iter().filter(is_new).collect();
    assert_eq!((listed.len(), added.len()), (4, 1), "{listed:?}");
    assert!(added[0].is_learner);

    let another = etcd.change(What::AddLearner { peer_url: "http://127.0.0.1:2".to_owned() }).await;
    assert!(conflict(another).contains("is still learning"), "one at a time");
    // It has never started, so it cannot have caught up: etcd says not yet, and nothing has failed.
    etcd.change(What::Promote { id: added[0].id }).await.unwrap();
    assert!(etcd.listed().await.iter().find(is_new).unwrap().is_learner);
    assert!(conflict(etcd.change(What::Promote { id: Id(1) }).await).contains("it is no member"));

    for _ in 0..2 {
        etcd.change(What::Remove { peer_url: new(), unless_started: true }).await.unwrap();
    }
    assert_eq!(etcd.listed().await.len(), 3);
    let started = etcd.change(What::Remove { peer_url: etcd.peer_url(1), unless_started: true }).await;
    assert!(conflict(started).contains("it has started"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_removed_whom_the_others_need_for_their_quorum() {
    let mut etcd = Etcd::start(&[]).await;
    etcd.end(2);
    eventually("the others have a leader", async || etcd.try_listed().await.is_ok()).await;
    let remove = async |number: usize| {
        etcd.change(What::Remove { peer_url: etcd.peer_url(number), unless_started: false }).await
    };
    assert!(conflict(remove(1).await).contains("of the 2 that would be left only 1 are well"));
    assert_eq!(etcd.listed().await.len(), 3);
    eventually("who is down is removed", async || {
        remove(2).await.unwrap();
        etcd.listed().await.len() == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_nothing_is_changed() {
    let mut etcd = Etcd::start(&[]).await;
    (1..3).for_each(|number| etcd.end(number));
    let removing = What::Remove { peer_url: etcd.peer_url(2), unless_started: false };
    let refused = etcd.change(removing).await.unwrap_err();
    assert_eq!(refused.category(), Category::Unavailable);
    assert!(refused.to_string().contains("no quorum answers"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lead_is_handed_over_to_whoever_has_a_vote() {
    let etcd = Etcd::start(&[]).await;
    let leader = etcd.answer(0).await.leader.unwrap();
    let follower = etcd.listed().await.into_iter().find(|listed| listed.id != leader).unwrap().id;
    etcd.change(What::Lead { id: follower }).await.unwrap();
    eventually("it leads", async || etcd.answer(0).await.leader == Some(follower)).await;
    eventually("that is no news to anybody", async || etcd.try_listed().await.is_ok()).await;
    etcd.change(What::Lead { id: follower }).await.unwrap();
    assert_eq!(etcd.answer(0).await.leader, Some(follower), "it was handed over once");
    assert!(conflict(etcd.change(What::Lead { id: Id(1) }).await).contains("it has no vote"));
}

/// The operator holds to that: nobody goes who answers and follows somebody.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_removed_follows_nobody() {
    let mut etcd = Etcd::start(&[]).await;
    let removed = etcd.answer(2).await.member;
    let follows = async |etcd: &Etcd| match etcd.try_client(2).await {
        Some(client) => client.status().await.is_ok_and(|status| status.leader != 0),
        None => false,
    };
    eventually("it is removed", async || {
        // If it led, there is no leader for a moment.
        let _ = etcd.change(What::Remove { peer_url: etcd.peer_url(2), unless_started: false }).await;
        etcd.try_listed().await.is_ok_and(|all| all.iter().all(|listed| listed.id != removed))
    })
    .await;
    eventually("it follows nobody", async || !follows(&etcd).await).await;
    etcd.start_again(2);
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_secs(3) {
        assert!(!follows(&etcd).await, "nor when it is started again");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
