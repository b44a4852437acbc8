//! What is asked of etcd, asked of a real one: three members of the etcd that the test control plane runs.

mod membership;

use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Stdio},
    sync::Arc,
    time::Duration,
};

use wheelhouse::Probe as _;
use wheelhouse_local::{binaries::Binaries, progress::Progress};
use wheelhouse_testing::{eventually, free_address};

use crate::{
    act::{self, Change, What},
    asking::{AlarmKind, Answer, AskHashes, AskMember},
    etcd::{AlarmAction, AlarmType, Client, Dial, DowngradeAction, Id, Tcp},
    size::Size,
    standing,
    version::Version,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// Members that end with this value.
pub(crate) struct Etcd {
    program: PathBuf,
    members: Vec<Child>,
    arguments: Vec<Vec<String>>,
    addresses: Vec<String>,
    peers: Vec<String>,
    metrics: Vec<String>,
    folder: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(end);
    }
}

fn end(member: &mut Child) {
    let _ = member.kill();
    let _ = member.wait();
}

impl Etcd {
    pub(crate) async fn start(flags: &[&str]) -> Self {
        let program = Binaries::for_tests(&Progress::shown()).await.unwrap().program("etcd");
        let folder = tempfile::tempdir().unwrap();
        let three = || (0..3).map(|_| free_address().to_string()).collect::<Vec<_>>();
        let [addresses, peers, metrics] = [three(), three(), three()];
        let all: Vec<_> =
            peers.iter().enumerate().map(|(number, peer)| format!("m{number}=http://{peer}")).collect();
        let arguments = (0..3).map(|number| {
            let (client, peer) = (&addresses[number], &peers[number]);
            let ours = [
                format!("--name=m{number}"),
                format!("--data-dir={}", folder.path().join(number.to_string()).display()),
                format!("--listen-client-urls=http://{client}"),
                format!("--advertise-client-urls=http://{client}"),
                format!("--listen-peer-urls=http://{peer}"),
                format!("--initial-advertise-peer-urls=http://{peer}"),
                format!("--listen-metrics-urls=http://{}", metrics[number]),
                format!("--initial-cluster={}", all.join(",")),
                "--unsafe-no-fsync=true".to_owned(),
                "--log-level=error".to_owned(),
            ];
            ours.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned())).collect()
        });
        let arguments = arguments.collect();
        let mut etcd = Self { program, members: Vec::new(), arguments, addresses, peers, metrics, folder };
        etcd.members = (0..3).map(|number| etcd.run(number)).collect();
        eventually("all members know a leader", async || {
            for number in 0..3 {
                let ended = etcd.members[number].try_wait().unwrap();
                assert_eq!(None, ended, "{}", std::fs::read_to_string(etcd.log(number)).unwrap());
                match etcd.try_client(number).await {
                    Some(client) if client.status().await.is_ok_and(|status| status.leader != 0) => {}
                    _ => return false,
                }
            }
            true
        })
        .await;
        etcd
    }

    /// What a member says of errors.
    fn log(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{number}.log"))
    }

    fn run(&self, number: usize) -> Child {
        let log = File::options().create(true).append(true).open(self.log(number)).unwrap();
        wheelhouse_testing::spawn_tethered(&self.program, |command| {
            command.args(&self.arguments[number]).stdout(Stdio::null()).stderr(log);
        })
        .unwrap()
    }

    /// Where clients find a member.
    pub(crate) fn address(&self, number: usize) -> String {
        self.addresses[number].clone()
    }

    /// A member is killed.
    pub(crate) fn end(&mut self, number: usize) {
        end(&mut self.members[number]);
    }

    /// One that was killed runs again.
    pub(crate) fn start_again(&mut self, number: usize) {
        self.members[number] = self.run(number);
    }

    async fn try_client(&self, number: usize) -> Option<Client> {
        Client::connect(Arc::new(Tcp), &self.addresses[number], PATIENCE).await.ok()
    }

    async fn client(&self, number: usize) -> Client {
        self.try_client(number).await.unwrap()
    }

    async fn answer(&self, number: usize) -> Answer {
        let question = AskMember {
            positions: Arc::default(),
            of: "cluster".to_owned(),
            dialer: Arc::new(Tcp),
            address: self.addresses[number].clone(),
            pod: String::new(),
            cluster: None,
            fresh_for: PATIENCE,
        };
        question.ask().await.unwrap().unwrap()
    }

    async fn change(&self, what: What) -> wheelhouse::Result<()> {
        let change = Change { what, member: "m".to_owned(), cluster: None, through: self.addresses.clone() };
        act::act(change, &(Arc::new(Tcp) as Arc<dyn Dial>)).await
    }
}

/// Fills the data, and forgets most of it: the space stays with the file.
async fn write_and_forget(client: &Client) {
    let large = "x".repeat(1 << 20);
    let mut revision = 0;
    for _ in 0..12 {
        revision = client.put("large", &large).await.unwrap().header.unwrap().revision;
    }
    client.compact(revision).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn space_that_is_free_is_seen_and_given_back() {
    let etcd = Etcd::start(&["--quota-backend-bytes=67108864"]).await;
    write_and_forget(&etcd.client(0).await).await;
    eventually("most of the file is free", async || {
        // What was given back is counted as free when somebody writes next.
        etcd.client(0).await.put("small", "x").await.unwrap();
        let upkeep = etcd.answer(0).await.upkeep;
        upkeep.size >= Size(12 << 20) && upkeep.in_use <= upkeep.size.percent(50)
    })
    .await;
    assert_eq!(etcd.answer(0).await.upkeep.quota, Some(Size(64 << 20)));
    etcd.client(0).await.defragment().await.unwrap();
    let after = etcd.answer(0).await.upkeep;
    assert!(after.size <= Size(4 << 20), "{after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn alarms_are_read_in_the_status_and_only_that_of_space_is_taken_back() {
    let etcd = Etcd::start(&[]).await;
    let (client, itself) = (etcd.client(0).await, etcd.answer(0).await.member);
    client.alarm(AlarmAction::Activate, itself.0, AlarmType::NoSpace).await.unwrap();
    client.alarm(AlarmAction::Activate, 0, AlarmType::Corrupt).await.unwrap();
    let alarms = async || {
        let answer = etcd.answer(1).await;
        let mut alarms: Vec<_> = answer.alarms().map(|alarm| (alarm.kind, alarm.member)).collect();
        alarms.sort();
        alarms
    };
    let both = [(AlarmKind::NoSpace, Some(itself)), (AlarmKind::Corrupt, None)];
    eventually("another member tells of both", async || alarms().await == both).await;
    etcd.change(What::TakeBackNoSpace { quota: Size(1) }).await.unwrap();
    eventually("one is left", async || alarms().await == [(AlarmKind::Corrupt, None)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_is_not_taken_back_while_a_member_is_full() {
    let etcd = Etcd::start(&["--quota-backend-bytes=16777216"]).await;
    let client = etcd.client(0).await;
    let large = "x".repeat(1 << 20);
    while client.put("large", &large).await.is_ok() {}
    assert!(!client.alarms().await.unwrap().is_empty());
    let refused = etcd.change(What::TakeBackNoSpace { quota: Size(1) }).await.unwrap_err();
    assert!(refused.to_string().contains("not known to have room"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_hold_the_same_have_the_same_hash_while_others_write() {
    let etcd = Etcd::start(&[]).await;
    let client = etcd.client(0).await;
    let writing = tokio::spawn(async move {
        loop {
            let _ = client.put("key", "value").await;
        }
    });
    let members = etcd.addresses.iter().map(|address| (address.clone(), String::new())).collect();
    let question = AskHashes { dialer: Arc::new(Tcp), members, cluster: None, fresh_for: PATIENCE };
    let hashes = question.ask().await.unwrap().unwrap();
    writing.abort();
    let mut all = Vec::new();
    for number in 0..3 {
        all.push(etcd.answer(number).await.member);
    }
    assert!(hashes.agree(all.iter().copied()), "{hashes:?}");
    assert!(!hashes.agree([Id(1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_way_back_is_allowed_makes_the_data_fit_and_can_be_cancelled() {
    let etcd = Etcd::start(&[]).await;
    let runs = etcd.answer(0).await.version.unwrap();
    let before = Version::new(3, runs.minor - 1, 0);
    let upkeep = async |number| etcd.answer(number).await.upkeep;
    eventually("the cluster works as what it runs", async || {
        upkeep(0).await.storage_version.is_some_and(|storage| storage.minor == runs.minor)
    })
    .await;
    let client = etcd.client(0).await;
    let too_far = client.downgrade(DowngradeAction::Validate, &format!("3.{}", runs.minor - 2)).await;
    assert!(too_far.unwrap_err().says("invalid downgrade target version"));
    let next = Version::new(3, runs.minor + 1, 0);
    etcd.change(What::CheckUpgrade { to: next }).await.unwrap();
    let refused = etcd.change(What::CheckDowngrade { to: before }).await.unwrap_err();
    assert!(refused.to_string().contains("works as a newer one yet"), "{refused}");
    for _ in 0..2 {
        // Once more is as good as once.
        etcd.change(What::AllowDowngrade { to: before }).await.unwrap();
    }
    eventually("the data of all fits", async || {
        let mut all = Vec::new();
        for number in 0..3 {
            let upkeep = upkeep(number).await;
            all.push(upkeep.downgrade_to == Some(before) && upkeep.storage_version == Some(before));
        }
        all.into_iter().all(|fits| fits)
    })
    .await;
    etcd.change(What::CheckDowngrade { to: before }).await.unwrap();
    let refused = etcd.change(What::CheckUpgrade { to: next }).await.unwrap_err();
    assert!(refused.to_string().contains("works as an older one yet"), "{refused}");
    for _ in 0..2 {
        etcd.change(What::CancelDowngrade).await.unwrap();
    }
    eventually("it works as what it runs again", async || {
        let upkeep = upkeep(2).await;
        upkeep.downgrade_to.is_none()
            && upkeep.storage_version.is_some_and(|storage| storage.minor == runs.minor)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_serves_nobody_for_want_of_a_quorum_still_tells_how_far_it_is() {
    let mut etcd = Etcd::start(&[]).await;
    let itself = etcd.answer(2).await;
    let standing = async |etcd: &Etcd| standing::ask(&etcd.metrics[2], &Tcp, &etcd.peers[2]).await;
    let told = standing(&etcd).await.unwrap_err();
    assert!(told.contains("knows a leader"), "{told}");
    let mut revision = 0;
    for _ in 0..20 {
        revision = etcd.client(0).await.put("key", "value").await.unwrap().header.unwrap().revision;
    }
    eventually("it has all of that", async || {
        etcd.client(2).await.status().await.unwrap().header.unwrap().revision == revision
    })
    .await;
    etcd.members.iter_mut().for_each(end);
    etcd.start_again(2);
    eventually("it tells how far it is", async || standing(&etcd).await.is_ok()).await;
    let told = standing(&etcd).await.unwrap();
    assert_eq!((told.cluster, told.member), (itself.cluster, itself.member));
    let position = told.position;
    // That the last entry is committed is on the disk only with the next one.
    assert!((revision - 1..=revision).contains(&position.revision), "{position:?}, and not {revision}");
    assert_eq!((position.voters, position.is_learner), (3, false));
    assert!(position.index >= 20, "{position:?}");
    let asked = async { Client::connect(Arc::new(Tcp), &etcd.addresses[2], PATIENCE).await?.status().await };
    let silence = tokio::time::timeout(Duration::from_secs(2), asked).await;
    assert!(!matches!(silence, Ok(Ok(_))), "it serves clients: {silence:?}");
}

/// It applies nothing, and tells 0, until it asks the others for their votes: a second or so.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_has_nothing_behind_its_snapshot_tells_how_far_it_is_as_soon_as_it_asks_for_votes() {
    let mut etcd = Etcd::start(&["--snapshot-count=1"]).await;
    let newest_snapshot = || {
        let names = std::fs::read_dir(etcd.folder.path().join("2/member/snap")).unwrap();
        let names = names.filter_map(|file| file.unwrap().file_name().into_string().ok());
        let index =
            |name: String| u64::from_str_radix(name.strip_suffix(".snap")?.rsplit('-').next()?, 16).ok();
        names.filter_map(index).max().unwrap_or_default()
    };
    // Every second entry there is one, and a moment later it is there.
    eventually("it has a snapshot of all that it has", async || {
        etcd.client(0).await.put("key", "value").await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let told = etcd.client(2).await.status().await.unwrap();
        told.raft_index > 20 && told.raft_index == newest_snapshot()
    })
    .await;
    let snapshot = newest_snapshot();
    etcd.members.iter_mut().for_each(end);
    assert_eq!(snapshot, newest_snapshot());
    etcd.start_again(2);
    let standing = async || standing::ask(&etcd.metrics[2], &Tcp, &etcd.peers[2]).await;
    eventually("it tells how far it is", async || standing().await.is_ok()).await;
    let position = standing().await.unwrap().position;
    assert!(position.index >= snapshot, "{position:?}, and its snapshot is of {snapshot}");
}
