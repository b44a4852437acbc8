//! An authority is replaced while pods come and go, files arrive late and the operator dies: at every moment
//! everybody trusts whoever they meet.
//!
//! The Secrets are real ones, with real certificates; kubelets and supervisors do what they do, at random.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator::{
    act::Change,
    analyse::analyse,
    observe::Seen,
    tls::{Digests, ROTATE, Side, TlsSeen, Wanted, leaf},
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use serde_json::json;
use wheelhouse::{
    Known, Plan, Step,
    certificates::{AUTHORITY_FILE, Authorities, AuthoritySeen, ISSUED, Issued, LeafSeen, digest},
    jiff::Timestamp,
    kube::ResourceExt as _,
    plan::{Certified, Certify},
};

use super::{condition, is_ready, model::World};

/// What a Secret shows and trusts.
#[derive(Clone, Debug, Default, PartialEq)]
struct Files {
    certificate: String,
    bundle: String,
}

/// What is in a pod, and what etcd in it has read.
#[derive(Clone, Debug)]
struct Pod {
    uid: String,
    mounted: BTreeMap<Side, Files>,
    loaded: Option<BTreeMap<Side, String>>,
}

struct Scene {
    world: World,
    random: SmallRng,
    authority: Option<Secret>,
    secrets: BTreeMap<Side, Secret>,
    pods: BTreeMap<String, Pod>,
    /// Who signed a certificate.
    signers: BTreeMap<String, String>,
    /// Who has signed, in order.
    authorities: Vec<String>,
    /// What outsiders may have read, and until when they may use it.
    outsiders: Vec<(Files, Option<Timestamp>)>,
    version: u64,
    reasons: BTreeSet<String>,
}

const OVERLAP: std::time::Duration = std::time::Duration::from_secs(20);

impl Scene {
    fn new(seed: u64, size: i32) -> Self {
        let mut world = World::new(size);
        let tls = json!({"automatic": {"overlapSeconds": OVERLAP.as_secs()}});
        world.cluster.spec.tls = Some(serde_json::from_value(tls).unwrap());
        Self {
            world,
            random: SmallRng::seed_from_u64(seed),
            authority: None,
            secrets: BTreeMap::new(),
            pods: BTreeMap::new(),
            signers: BTreeMap::new(),
            authorities: Vec::new(),
            outsiders: Vec::new(),
            version: 0,
            reasons: BTreeSet::new(),
        }
    }

    fn observe(&mut self) -> Seen {
        let mut seen = self.world.observe(&mut self.random);
        let at = seen.now;
        let known = |is_slow: bool, secret: Option<&Secret>, side: Side| match secret {
            _ if is_slow => Known::Unknown { why: "not asked yet".to_owned(), since: at },
            Some(secret) => Known::Value { value: LeafSeen::of(secret, &side.files()), at },
            None => Known::Absent,
        };
        let mut secrets = BTreeMap::new();
        for side in Side::ALL {
            secrets.insert(side, known(self.random.random_bool(0.05), self.secrets.get(&side), side));
        }
        let authority = match &self.authority {
            _ if self.random.random_bool(0.05) => {
                Known::Unknown { why: "not asked yet".to_owned(), since: at }
            }
            Some(secret) => Known::Value { value: AuthoritySeen::of(secret), at },
            None => Known::Absent,
        };
        seen.tls = Some(TlsSeen { authority, secrets });
        for record in &mut seen.records {
            let Some(pod) = self.pods.get(&record.reference.name) else { continue };
            if record.status.pod != pod.uid {
                continue;
            }
            let mut mounted = Digests::default();
            let mut trusts = Digests::default();
            for (side, files) in &pod.mounted {
                mounted.0.insert(side.files().certificate, digest(files.certificate.as_bytes()));
                mounted.0.insert(side.files().authorities, digest(files.bundle.as_bytes()));
            }
            for (side, bundle) in pod.loaded.iter().flatten() {
                trusts.0.insert(side.files().authorities, digest(bundle.as_bytes()));
            }
            (record.status.trusts, record.status.mounted) = (trusts.to_string(), mounted.to_string());
        }
        seen
    }

    /// One look of the operator, which may end in the middle; then everybody else.
    fn turn(&mut self, is_troubled: bool) {
        let seen = self.observe();
        let plan = analyse(&seen);
        if self.random.random_bool(0.1) {
            let recorded = format!("{} {}", json!(seen), json!(plan));
            assert!(!recorded.contains("BEGIN"), "only digests are recorded");
        }
        if let Some(status) = &plan.status {
            let reason = status["conditions"].as_array().unwrap().iter();
            let reason = reason.filter(|known| known["type"] == "CertificatesReady");
            self.reasons.extend(reason.map(|known| known["reason"].as_str().unwrap().to_owned()));
        }
        let survives = !is_troubled || self.random.random_bool(0.8);
        let (mine, others): (Vec<_>, Vec<_>) =
            plan.steps.iter().cloned().partition(|planned| matches!(planned.step, Step::Certify(_)));
        for (done, planned) in mine.iter().enumerate() {
            // It may die between two of them.
            if !survives && done > 0 {
                return;
            }
            let Step::Certify(certify) = &planned.step else { continue };
            self.certify(certify);
            self.check();
        }
        let mut rest: Plan<Change> = Plan::new();
        (rest.steps, rest.status) = (others, plan.status);
        self.world.follow(&rest, (!survives).then_some(1), &mut self.random);
        self.world.run_pods(&mut self.random);
        self.world.write(&mut self.random);
        self.world.check_nothing_is_lost();
        self.kubelets();
        self.check();
    }

    /// As act does it.
    fn certify(&mut self, certify: &Certify) {
        let now = self.world.now;
        self.version += 1;
        let kept: Option<Authorities> = self
            .authority
            .as_ref()
            .map(|secret| serde_json::from_slice(&secret.data.as_ref().unwrap()[AUTHORITY_FILE].0).unwrap());
        let mut asked = None;
        let new = match (&certify.what, kept) {
            (Certified::Authority { asked: wish, .. }, None) => {
                asked.clone_from(wish);
                Authorities::new("a", certify.validity, now).unwrap()
            }
            (Certified::Announce { asked: wish }, Some(mut kept)) => {
                asked.clone_from(wish);
                kept.announce(certify.validity, now).unwrap();
                kept
            }
            (Certified::HandOver, Some(mut kept)) => {
                kept.hand_over();
                kept
            }
            (Certified::ForgetFormer, Some(mut kept)) => {
                kept.forget_former();
                kept
            }
            (Certified::Leaf { leaf, .. }, Some(kept)) => return self.sign(&kept, certify, &leaf.secret),
            (what, kept) => panic!("{what:?} with {kept:?}"),
        };
        let data = ByteString(serde_json::to_vec(&new).unwrap());
        let mut secret = self.authority.take().unwrap_or_default();
        secret.data = Some([(AUTHORITY_FILE.to_owned(), data)].into());
        secret.metadata.resource_version = Some(self.version.to_string());
        if let Some(asked) = asked {
            secret.annotations_mut().insert("wheelhouse.dev/asked".to_owned(), asked);
        }
        self.authority = Some(secret);
    }

    fn sign(&mut self, authorities: &Authorities, certify: &Certify, secret: &str) {
        let now = self.world.now;
        let wanted = Wanted::by(&self.world.cluster);
        let side = *wanted.secrets.iter().find(|(_, name)| *name == secret).unwrap().0;
        let wish = leaf(&self.world.cluster, side, secret);
        let pair = authorities.sign(&wish.common_name, &wish.names, certify.validity, now).unwrap();
        let signer = authorities.signing().certificate.clone();
        if self.authorities.last() != Some(&signer) {
            self.authorities.push(signer.clone());
        }
        self.signers.insert(pair.certificate.clone(), signer.clone());
        let bundle = authorities.bundle();
        let before: Option<Issued> = self
            .secrets
            .get(&side)
            .map(|secret| serde_json::from_str(&secret.annotations()[ISSUED]).unwrap());
        let (by, trusted) = (digest(signer.as_bytes()), digest(bundle.as_bytes()));
        let since = |is_same: bool, before: Option<Timestamp>| before.filter(|_| is_same).unwrap_or(now);
        let old = before.as_ref();
        let issued = Issued {
            certificate: digest(pair.certificate.as_bytes()),
            names: wish.names,
            made: pair.made,
            until: pair.until,
            by_since: since(old.is_some_and(|old| old.by == by), old.map(|old| old.by_since)),
            bundle_since: since(
                old.is_some_and(|old| old.bundle == trusted),
                old.map(|old| old.bundle_since),
            ),
            by,
            bundle: trusted,
        };
        let files = side.files();
        let entry = |name: String, text: &str| (name, ByteString(text.as_bytes().to_vec()));
        let data = [
            entry(files.certificate, &pair.certificate),
            entry(files.key, &pair.key),
            entry(files.authorities, &bundle),
        ];
        let mut secret = Secret { data: Some(data.into()), ..Secret::default() };
        secret.metadata.resource_version = Some(self.version.to_string());
        secret.annotations_mut().insert(ISSUED.to_owned(), serde_json::to_string(&issued).unwrap());
        self.secrets.insert(side, secret);
        if side == Side::Client {
            // Who has read the one before may use it for as long as was promised.
            if let Some((_, until)) = self.outsiders.last_mut() {
                *until = Some(now + OVERLAP);
            }
            self.outsiders.push((Files { certificate: pair.certificate, bundle }, None));
        }
    }

    fn current(&self, side: Side) -> Option<Files> {
        let (data, files) = (self.secrets.get(&side)?.data.as_ref().unwrap(), side.files());
        let text = |file: &str| String::from_utf8(data[file].0.clone()).unwrap();
        Some(Files { certificate: text(&files.certificate), bundle: text(&files.authorities) })
    }

    /// Files get into pods with delay, each folder by itself; etcd reads whom to trust when it starts.
    fn kubelets(&mut self) {
        let there: BTreeMap<_, _> = self
            .world
            .pods
            .iter()
            .filter(|(_, pod)| pod.has_node)
            .map(|(name, pod)| (name.clone(), (pod.reference.uid.clone(), pod.runs)))
            .collect();
        self.pods.retain(|name, pod| there.get(name).is_some_and(|(uid, _)| *uid == pod.uid));
        for (name, (uid, runs)) in there {
            let is_new = !self.pods.contains_key(&name);
            for side in Side::ALL {
                let files = self.current(side).expect("no pod is made without its certificates");
                let pod = self.pods.entry(name.clone()).or_insert_with(|| Pod {
                    uid: uid.clone(),
                    mounted: BTreeMap::new(),
                    loaded: None,
                });
                if is_new || self.random.random_bool(0.1) {
                    pod.mounted.insert(side, files);
                }
            }
            let pod = self.pods.get_mut(&name).unwrap();
            let bundles = || {
                let sides = [Side::Peer, Side::Server];
                sides.into_iter().map(|side| (side, pod.mounted[&side].bundle.clone())).collect()
            };
            match (runs, &pod.loaded) {
                (true, None) => pod.loaded = Some(bundles()),
                (false, Some(_)) => pod.loaded = None,
                _ => {}
            }
        }
    }

    /// Everybody trusts whoever they meet.
    fn check(&self) {
        let trusts = |bundle: &str, certificate: &str| bundle.contains(&self.signers[certificate]);
        let running: Vec<_> =
            self.pods.values().filter_map(|pod| Some((&pod.mounted, pod.loaded.as_ref()?))).collect();
        let operator = self.current(Side::Client);
        let clients =
            self.outsiders.iter().filter(|(_, until)| until.is_none_or(|end| self.world.now <= end));
        for (mounted, loaded) in &running {
            for (other, _) in &running {
                assert!(trusts(&loaded[&Side::Peer], &other[&Side::Peer].certificate), "members part");
            }
            let server = &mounted[&Side::Server].certificate;
            let supervisor = &mounted[&Side::Client];
            for client in clients.clone().map(|(client, _)| client).chain([supervisor]).chain(&operator) {
                assert!(trusts(&loaded[&Side::Server], &client.certificate), "a client is turned away");
                assert!(trusts(&client.bundle, server), "a client turns away");
            }
        }
    }

    fn is_settled(&self) -> bool {
        let bundle = self.current(Side::Peer).map(|files| files.bundle);
        let is_loaded = |pod: &Pod| pod.loaded.as_ref().map(|loaded| &loaded[&Side::Peer]) == bundle.as_ref();
        is_ready(&self.world)
            && bundle.as_ref().is_some_and(|bundle| bundle.matches("BEGIN").count() == 1)
            && self.pods.values().all(is_loaded)
    }

    fn settle(&mut self, what: &str) {
        for _ in 0..1500 {
            self.turn(false);
            if self.is_settled() {
                return;
            }
        }
        let seen = self.observe();
        panic!("{what}: {:?} {:#?}", condition(&seen, "CertificatesReady"), self.world.story);
    }
}

#[test]
fn while_an_authority_is_replaced_everybody_trusts_whoever_they_meet() {
    for seed in 0..5 {
        let mut scene = Scene::new(seed, if seed % 4 == 0 { 1 } else { 3 });
        scene.settle("it begins");
        assert_eq!(scene.authorities.len(), 1);
        let wish = |scene: &mut Scene, value: &str| {
            scene.world.cluster.annotations_mut().insert(ROTATE.to_owned(), value.to_owned());
        };
        wish(&mut scene, "once");
        for _ in 0..60 {
            scene.turn(true);
            if scene.random.random_bool(0.05) {
                let size = scene.world.cluster.spec.size;
                scene.world.disturb(&mut scene.random);
                scene.world.cluster.spec.size = size;
            }
        }
        scene.world.heal();
        // Whether or not that was long enough for all of it.
        for _ in 0..400 {
            scene.turn(false);
        }
        scene.settle("it is asked for once");
        assert_eq!(scene.authorities.len(), 2, "seed {seed}: once for each wish");
        wish(&mut scene, "twice");
        for _ in 0..100 {
            scene.turn(false);
        }
        scene.settle("it is asked for again");
        assert_eq!(scene.authorities.len(), 3, "seed {seed}");
        assert!(scene.reasons.contains("Rotating") && scene.reasons.contains("Ready"), "{:?}", scene.reasons);
    }
}

/// Nothing is mounted in them: by the time that they have a node they get what is right then.
#[test]
fn pods_that_have_no_node_keep_no_former_authority_trusted() {
    let mut scene = Scene::new(1, 3);
    scene.settle("it begins");
    scene.world.cluster.annotations_mut().insert(ROTATE.to_owned(), "once".to_owned());
    while scene.authorities.len() == 1 {
        scene.turn(false);
    }
    (scene.world.nodes, scene.world.cluster.spec.size) = (3, 5);
    for _ in 0..400 {
        scene.turn(false);
    }
    assert_eq!(scene.world.pods.len(), 5, "two are there without a node");
    let bundle = scene.current(Side::Peer).unwrap().bundle;
    let seen = scene.observe();
    let told = condition(&seen, "CertificatesReady");
    assert_eq!(bundle.matches("BEGIN").count(), 1, "the former one is forgotten: {told:?}");
    assert!(!told.2.contains("db-3"), "{told:?}");
    scene.world.nodes = 5;
    scene.world.pods.values_mut().for_each(|pod| pod.has_node = true);
    scene.settle("there is room");
}

#[test]
fn an_authority_that_ages_is_replaced_without_being_asked() {
    let mut scene = Scene::new(1, 3);
    scene.settle("it begins");
    scene.world.now += std::time::Duration::from_secs(2434 * 24 * 3600);
    for _ in 0..400 {
        scene.turn(false);
    }
    scene.settle("it ages");
    assert_eq!(scene.authorities.len(), 2);
}

#[test]
fn without_its_certificates_no_pod_is_made_or_restarted_and_what_is_missing_is_told() {
    let (mut world, mut random) = super::settled(3);
    let tls = json!({"static": {"member": {"serverSecret": "theirs"}, "operatorSecret": "ours"}});
    world.cluster.spec.tls = Some(serde_json::from_value(tls).unwrap());
    world.pods.remove("db-1");
    let mut seen = world.observe(&mut random);
    let mut with = |secret: Known<LeafSeen>| {
        seen.tls = Some(TlsSeen { authority: Known::Absent, secrets: [(Side::Server, secret)].into() });
        seen.clone()
    };
    let pods = |seen: &Seen| {
        let all = super::steps(seen);
        all.into_iter().filter(|step| step.contains("Pod")).collect::<Vec<_>>()
    };
    let told = |seen: &Seen| condition(seen, "CertificatesReady");
    let missing = with(Known::Absent);
    assert_eq!(pods(&missing), [""; 0]);
    let (status, reason, message) = told(&missing);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Missing"));
    assert!(message.starts_with("there is no Secret theirs"), "{message}");
    let at = missing.now;
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "theirs"}, "data": {"server.crt": ""}})).unwrap();
    let broken = with(Known::Value { value: LeafSeen::of(&secret, &Side::Server.files()), at });
    assert_eq!(pods(&broken), [""; 0]);
    assert!(
        told(&broken).2.starts_with("Secret theirs: server.crt holds no certificate"),
        "{:?}",
        told(&broken)
    );
    let unknown = with(Known::Unknown { why: "no API server".to_owned(), since: at });
    assert_eq!(pods(&unknown), [""; 0]);
    assert_eq!(told(&unknown).0, "Unknown");
    let good = LeafSeen { problem: None, ..LeafSeen::of(&secret, &Side::Server.files()) };
    assert_eq!(pods(&with(Known::Value { value: good, at })), ["create Pod db-1"]);
}
